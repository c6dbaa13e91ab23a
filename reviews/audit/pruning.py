"""Weights that a person pruned from a closed session: which may be, which were, and what that leaves unproven.

An entry names them before any is deleted. Only they may be missing; a file that is there must be the recorded one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from reviews.history.attempt import read_order
from reviews.history.recorded_history import RecordedHistory
from specs.stages.base.stage import WEIGHTS
from specs.stages.registry import STAGE_KINDS
from specs.trail.session_bodies import ExitEntry, LaunchEntry, ModelEntry, PrunedWeights, PruningEntry

SAVED_STEPS = "trainer"
"""The folder of a job with saved steps that no entry names (``training/jobs/saved_steps.py``)."""


def weights_left(history: RecordedHistory) -> list[PrunedWeights]:
    """Return everything that jobs left and a person may prune: no rows, and nothing that the store keeps.

    Raises:
        EvidenceMissing: the order of a job is not in the store.
        AuditDamage: it has other bytes than its name, or this version cannot read it.
    """
    pruned_weights: list[PrunedWeights] = []
    for body in (ended.body for ended in history.of(ExitEntry)):
        order = read_order(history.find(LaunchEntry, body.key), history.store)
        if order is None:
            continue
        kind = STAGE_KINDS[order.kind]
        artifact_kinds = kind.outputs_of(kind.parameters.model_validate(order.parameters))
        for output, made in body.outputs.items():
            own = made.path == f"jobs/{body.key}/out/{output}"
            if own and not made.stored and artifact_kinds.get(output) in WEIGHTS:
                named = made.model_dump(include={"path", "digest", "bytes"})
                pruned_weights.append(PrunedWeights(stage=body.stage, attempt=body.attempt, output=output, **named))
    return pruned_weights


def pruned_weights(history: RecordedHistory) -> dict[str, PrunedWeights]:
    """Return by path what was recorded as pruned."""
    return {weights.path: weights for entry in history.of(PruningEntry) for weights in entry.body.weights}


def saved_steps(history: RecordedHistory) -> list[str]:
    """Return where jobs that were launched may have saved steps."""
    return [f"jobs/{entry.body.key}/{SAVED_STEPS}" for entry in history.of(LaunchEntry)]


def prune_damage(history: RecordedHistory) -> Iterator[str]:
    """Check that only ended sessions were pruned, and of nothing but what jobs left as weights."""
    before: dict[str, PrunedWeights] = {}
    for recorded in history.of(PruningEntry):
        where, body = f"entry {recorded.seq} ({recorded.kind})", recorded.body
        earlier = history.before(recorded)
        if not earlier.is_closed:
            yield f"{where}: the session had not ended"
        known = weights_left(earlier)
        for pruned_weights in body.weights:
            if pruned_weights not in known:
                yield f"{where}: {pruned_weights.path} is not what a job left as weights"
            if pruned_weights.path in before:
                yield f"{where}: {pruned_weights.path} had been pruned before"
            before[pruned_weights.path] = pruned_weights
        steps = saved_steps(earlier)
        yield from (
            f"{where}: {leftover} is not a folder of saved steps"
            for leftover in body.leftovers
            if leftover not in steps
        )


def not_witnessed_again(history: RecordedHistory, pruned: Collection[PrunedWeights]) -> Iterator[str]:
    """Yield for each stage with pruned weights what no witness can recompute without a copy of them."""
    if not pruned:
        return
    gone = {pruned_weights.path for pruned_weights in pruned}
    still = {weights.digest: weights.path for weights in weights_left(history) if weights.path not in gone}
    still |= {entry.body.digest: entry.body.path for entry in history.of(ModelEntry)}
    for stage in dict.fromkeys(pruned_weights.stage for pruned_weights in pruned):
        removed = [pruned_weights for pruned_weights in pruned if pruned_weights.stage == stage]
        lost = {pruned_weights.digest for pruned_weights in removed} - still.keys()
        message = f"weights of {stage} were pruned ({', '.join(pruned_weights.path for pruned_weights in removed)}): "
        if lost:
            yield message + f"without a copy {_read_from(history, stage, lost)} can no longer be witnessed"
        else:
            yield (
                message
                + f"the same weights are still in {', '.join(sorted({still[pruned.digest] for pruned in removed}))}"
            )


def _read_from(history: RecordedHistory, stage: str, lost: set[str]) -> str:
    """Return in words what was made with these weights: the steps of their stage, answers and scores of others."""
    trained, readers = False, dict[str, None]()
    for launch in history.of(LaunchEntry):
        order = read_order(launch, history.store)
        if order is None:
            continue
        trained = trained or (launch.body.stage == stage and bool(STAGE_KINDS[order.kind].trains))
        if any(artifact.digest in lost for artifact in order.inputs.values()):
            readers[launch.body.stage] = None
    parts = ["its training steps"] if trained else []
    if readers:
        parts.append(f"answers and scores of {', '.join(readers)}")
    return " and ".join(parts) or "what it wrote"
