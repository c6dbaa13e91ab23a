"""Short ways to what a list of entries registers and holds, for the audit."""

from __future__ import annotations

from collections.abc import Sequence

from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from specs.session.session_spec import ResolvedSpec


def find(entries: Sequence[RecordedEntry], key: str) -> RecordedEntry | None:
    """Return the entry with this key, if there is one."""
    return next((entry for entry in entries if entry.key == key), None)


def registered_spec(entries: Sequence[RecordedEntry], store: Store) -> tuple[ResolvedSpec, str]:
    """Return the resolved spec that is registered at the end of these entries, and the registration they name.

    Raises:
        EvidenceMissing: the session has no ``open`` entry or its spec is not in the store.
    """
    history = History(entries, store)
    return history.resolved, history.registration


def accepted_attempt(entries: Sequence[RecordedEntry], stage: str) -> int | None:
    """Return the attempt of a stage that opened the next one (by the gate, or by a person over it)."""
    attempt = History(entries).accepted_attempt(stage)
    return attempt.number if attempt else None
