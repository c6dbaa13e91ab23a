"""What repeating a session's witnesses needs: which attempts were witnessed, with which weights and software."""

from __future__ import annotations

from typing import Any, NamedTuple

from reviews.history.attempt import read_order
from reviews.history.recorded_history import RecordedHistory
from specs.trail.session_bodies import ChallengeEntry, ModelEntry


class Weights(NamedTuple):
    """A folder that only those have who trained it or found it at its source."""

    role: str
    reference: str
    """The name in the spec: ``model``, or the stage and output that made it."""
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
    """The packages of the job; the manifest of the gate's witness has its own."""

    def as_data(self) -> dict[str, Any]:
        """Return it in the form of JSON."""
        return self._asdict() | {"weights": [weight._asdict() for weight in self.weights]}


def witnessed_attempts(history: RecordedHistory) -> list[tuple[str, int]]:
    """Return the witnessed attempt of each stage that counts: the accepted one, or the newest where none was."""
    counts: dict[str, int] = {}
    for body in (entry.body for entry in history.of(ChallengeEntry)):
        accepted = history.accepted_attempt(body.stage)
        if counts.get(body.stage) is None or accepted is None or counts[body.stage] != accepted.number:
            counts[body.stage] = body.attempt
    return list(counts.items())


def witness_needs(history: RecordedHistory) -> list[Need]:
    """Return what each witnessed attempt needs; raises EvidenceMissing and AuditDamage as the store does."""
    return [_need(history, stage, attempt) for stage, attempt in witnessed_attempts(history)]


def _need(history: RecordedHistory, stage: str, number: int) -> Need:
    attempt, store = history.attempt(stage, number), history.store
    order, manifest = read_order(attempt.challenge, store), attempt.manifest
    assert order is not None and manifest is not None
    sources = {entry.key.rpartition("/")[2]: entry.body.source for entry in history.of(ModelEntry)}
    read, of = order.challenge.counts() if order.challenge else (0, 0)
    return Need(
        stage=stage,
        attempt=number,
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
