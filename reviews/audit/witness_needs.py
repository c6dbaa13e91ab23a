"""What repeating a session's witnesses needs: which attempts were witnessed, with which weights and software."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from reviews.evidence.registered_evidence import accepted_attempt, find
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from specs.jobs.job_records import JobOrder, Manifest


class Weights(NamedTuple):
    """A folder that only those have who trained it or found it at its source."""

    role: str
    reference: str
    """As in the spec: ``model``, or the stage and output that made it."""
    source: str
    """Where the spec says the base model comes from; empty for what a stage made."""
    digest: str
    path: str
    """Where it was, from the run folder on."""


class Need(NamedTuple):
    """What the witness of one attempt needs to be repeated."""

    stage: str
    attempt: int
    rows: int
    """That the gate's witness read."""
    of: int
    unit: str
    """What these are: rows, or training steps."""
    weights: tuple[Weights, ...]
    engine: str
    """That wrote the answers; the witness is always transformers."""
    dtype: str
    device: str
    packages: dict[str, str]
    """Of the job; those of the gate's witness in its own manifest."""

    def as_data(self) -> dict[str, Any]:
        """Return it in the form of JSON."""
        return self._asdict() | {"weights": [weight._asdict() for weight in self.weights]}


def witnessed_attempts(entries: Sequence[RecordedEntry]) -> list[tuple[str, int]]:
    """Return the witnessed attempt of each stage that counts: the accepted one, or the newest where none was."""
    counts: dict[str, int] = {}
    for value in (entry for entry in entries if entry.kind == "challenge"):
        stage, attempt = value.raw["stage"], value.raw["attempt"]
        if counts.get(stage) is None or counts[stage] != accepted_attempt(entries, stage):
            counts[stage] = attempt
    return list(counts.items())


def witness_needs(entries: Sequence[RecordedEntry], store: Store) -> list[Need]:
    """Return what each witnessed attempt needs; raises EvidenceMissing and AuditDamage as the store does."""
    return [_need(entries, store, stage, attempt) for stage, attempt in witnessed_attempts(entries)]


def _need(entries: Sequence[RecordedEntry], store: Store, stage: str, attempt: int) -> Need:
    request = find(entries, f"challenge/{stage}.{attempt}")
    ended = find(entries, f"exit/{entries[0].session}.{stage}.{attempt}")
    assert request is not None and ended is not None
    order = JobOrder.model_validate_json(store.get(request.raw["order"]))
    manifest = Manifest.model_validate_json(store.get(ended.raw["manifest"]))
    sources = {entry.key.rpartition("/")[2]: entry.raw["source"] for entry in entries if entry.kind == "model"}
    read, of = order.challenge.counts() if order.challenge else (0, 0)
    return Need(
        stage=stage,
        attempt=attempt,
        rows=read,
        of=of,
        unit=order.challenge.unit if order.challenge else "rows",
        weights=tuple(
            Weights(role, artifact.name, sources.get(artifact.name, ""), artifact.digest, artifact.path)
            for role, artifact in sorted(order.inputs.items())
            if not store.path(artifact.digest).is_file()
        ),
        engine=str(order.parameters.get("engine", "batched")),
        dtype=manifest.dtype,
        device=manifest.device,
        packages=manifest.packages,
    )
