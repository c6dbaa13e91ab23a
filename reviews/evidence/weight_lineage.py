"""Follows the weights that a stage reads back to the model the spec names, by the trail.

A checkpoint that a builder's script trained carries the digest of that script through all later training.
"""

from __future__ import annotations

from typing import NamedTuple

from reviews.history.attempt import read_order
from reviews.history.recorded_history import RecordedHistory
from reviews.trail.chain.envelope import RecordedEntry
from specs.jobs.job_records import JobOrder
from specs.session.design import Design
from specs.stages.recipes.parameters import RecipeParameters
from specs.stages.registry import STAGE_KINDS, Stage, kind_of, outputs_of
from specs.trail.session_bodies import ExitEntry, LaunchEntry, ModelEntry

NAMED = ("model", "control")
"""References to weights that the spec names."""


class LineageCheckpoint(NamedTuple):
    """A checkpoint on the way, and what made it."""

    reference: str
    """``STAGE.OUTPUT``, ``model`` or ``control``."""
    digest: str
    by: str
    """The kind of the stage that made it; for weights the spec names, the kind it declares of them."""
    attempt: int | None
    entry: int | None
    """The entry that records it."""
    script: str | None
    """Digest of the builder's script that trained it; None where Peergate's own code did."""


Lineage = tuple[LineageCheckpoint, ...]
"""The checkpoint itself first, then what each was made from."""


def lineages(history: RecordedHistory, spec: Design, order: JobOrder) -> dict[str, Lineage]:
    """Return, for each checkpoint that a job is given, by its role, where it comes from.

    Raises:
        EvidenceMissing: the order of an earlier job is not in the store.
        AuditDamage: it has other bytes than its name.
    """
    results = {
        role: tuple(_walk(history, spec, artifact.name, artifact.digest))
        for role, artifact in sorted(order.inputs.items())
        if _is_checkpoint(spec, artifact.name)
    }
    return {role: way for role, way in results.items() if way}


def trained_from(spec: Design, reference: str) -> tuple[str, ...]:
    """Return a reference and what it was trained from, by the spec, up to where a stage reads several weights."""
    way = [reference]
    while way[-1] not in NAMED:
        owner = way[-1].partition(".")[0]
        stage = next((stage for stage in spec.stages if stage.name == owner), None)
        read = (
            {reference for reference in stage.inputs.values() if _is_checkpoint(spec, reference)}
            if stage
            else set[str]()
        )
        if len(read) != 1:
            break
        way += read
    return tuple(way)


def weights_before(spec: Design, reference: str) -> frozenset[str]:
    """Return every reference to weights that some weights were made from, by the spec, themselves included."""
    known, open_references = set[str](), {reference}
    while open_references:
        known |= open_references
        owners = {weights.partition(".")[0] for weights in open_references}
        stages = [stage for stage in spec.stages if stage.name in owners]
        open_references = {weights for stage in stages for weights in _weights_read(spec, stage)} - known
    return frozenset(known)


def _weights_read(spec: Design, stage: Stage) -> list[str]:
    trained = stage.inputs.get(getattr(stage.parameters, "trains", None) or "")
    return [weights for weights in ([trained] if trained else stage.inputs.values()) if _is_checkpoint(spec, weights)]


def measured_starts(spec: Design) -> tuple[str, ...]:
    """Return the stages before the treatment that measure, as the baseline does, what its weights were made from."""
    treatment, baseline = spec.stage(spec.analysis.treatment), spec.stage(spec.analysis.baseline)
    starts = weights_before(spec, baseline.inputs["model"]) - {baseline.inputs["model"]}
    alike = [
        stage.name
        for stage in spec.stages[: spec.stages.index(treatment)]
        if (stage.kind, stage.parameters) == (baseline.kind, baseline.parameters)
        and stage.inputs == baseline.inputs | {"model": stage.inputs["model"]}
        and stage.inputs["model"] in starts
    ]
    return tuple(alike)


def is_trained(spec: Design, stage: Stage) -> bool:
    """Return whether a stage trains, or reads weights that an earlier stage of the session trained."""
    owners = {
        weights.partition(".")[0]
        for reference in stage.inputs.values()
        if _is_checkpoint(spec, reference)
        for weights in trained_from(spec, reference)
    }
    return any(_trains(named) for named in spec.stages if named.name in owners or named.name == stage.name)


def _trains(stage: Stage) -> bool:
    return bool(kind_of(stage).trains or getattr(stage.parameters, "trains", None))


def _is_checkpoint(spec: Design, reference: str) -> bool:
    if reference in NAMED:
        return True
    owner, _, output = reference.partition(".")
    stage = next((stage for stage in spec.stages if stage.name == owner), None)
    return stage is not None and outputs_of(stage.kind, stage.parameters).get(output) == "checkpoint"


def _walk(history: RecordedHistory, spec: Design, reference: str, digest: str) -> list[LineageCheckpoint]:
    way: list[LineageCheckpoint] = []
    seen_pairs: set[tuple[str, str]] = set()
    while (reference, digest) not in seen_pairs:
        seen_pairs.add((reference, digest))
        if reference in NAMED:
            named = history.find(ModelEntry, *(() if reference == "model" else (reference,)))
            source = spec.model if reference == "model" else spec.control
            kind = source.kind if source is not None else "not declared"
            way.append(LineageCheckpoint(reference, digest, kind, None, named.seq if named else None, None))
            break
        owner, _, output = reference.partition(".")
        ended = _exit_with(history, owner, output, digest)
        order = read_order(history.find(LaunchEntry, ended.body.key), history.store) if ended else None
        if ended is None or order is None:
            break
        role, script = _made_from(order)
        way.append(LineageCheckpoint(reference, digest, order.kind, ended.body.attempt, ended.seq, script))
        if role not in order.inputs:
            break
        reference, digest = order.inputs[role].name, order.inputs[role].digest
    return way


def _exit_with(history: RecordedHistory, stage: str, output: str, digest: str) -> RecordedEntry[ExitEntry] | None:
    """Return the newest end of a job of a stage that left this."""
    for entry in reversed(history.of(ExitEntry)):
        remaining = entry.body.outputs.get(output)
        if entry.body.stage == stage and remaining is not None and remaining.digest == digest:
            return entry
    return None


def _made_from(order: JobOrder) -> tuple[str, str | None]:
    """Return the role of the checkpoint that a job's own was made from, and the script that made it if one did."""
    parameters = STAGE_KINDS[order.kind].parameters.model_validate(order.parameters)
    if isinstance(parameters, RecipeParameters):
        return parameters.trains or "", parameters.code
    return "model", None
