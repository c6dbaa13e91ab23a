"""Reads the registered spec back from a trail, and the evidence of an attempt under it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from reviews.evidence.evidence import Evidence
from reviews.evidence.gather import collect_evidence, entries_of_attempt, registering_entry
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from specs.loading.loading import read_resolved
from specs.session.session_spec import ResolvedSpec


def registered_spec(entries: Sequence[RecordedEntry], store: Store) -> tuple[ResolvedSpec, str]:
    """Return the resolved spec that is registered at the end of these entries, and the registration they name.

    Raises:
        EvidenceMissing: the session has no ``open`` entry or its spec is not in the store.
    """
    body = registering_entry(entries).raw
    return read_resolved(store.get(body["spec"])), body["registration"]


def gather(run: Path, entries: Sequence[RecordedEntry], store: Store, stage_name: str, attempt: int) -> Evidence:
    """Collect the evidence of one attempt, under the spec that was registered when its job ended.

    Raises:
        EvidenceMissing: the session's registration itself cannot be read.
        AuditDamage: something in the store has other bytes than its name.
    """
    resolved, registered = registered_spec(entries_of_attempt(entries, stage_name, attempt), store)
    return collect_evidence(run, entries, store, stage_name, attempt, resolved, registered)
