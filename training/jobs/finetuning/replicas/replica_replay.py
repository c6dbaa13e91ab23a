"""Train some steps of replicas again, each from its own snapshot, and make the outer steps between them.

What the replicas of a round change is computed again, not read; only the outer momentum and the weights that a round
begins with are those of the snapshot, whose sketch the gate compares with the job's row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from specs.jobs.job_records import LEFT, Segment
from specs.stages.base.witness import ROWS
from specs.stages.finetuning.distributed import DistributedTraining, ReplicaRound
from specs.stages.finetuning.rows import ReplayedStep
from specs.system.digests import Contract
from training.engines import checkpoint
from training.jobs.finetuning.adapter_merge import release
from training.jobs.finetuning.online.recorded import OtherRollouts
from training.jobs.finetuning.replicas.course import ReplicaReplay
from training.jobs.finetuning.replicas.courses import COURSES
from training.jobs.finetuning.replicas.outer_weights import moved_back, outer_of, read_masters
from training.jobs.finetuning.replicas.replica_files import OUTER, of_replica
from training.jobs.finetuning.saved_weights import apart_from_end, files_apart
from training.jobs.finetuning.trainer_args import list_logged_steps
from training.jobs.finetuning.weight_sketch import collect_trained_weights, sketch
from training.jobs.job import Job, StageResult
from training.jobs.row_files import read_rows
from training.jobs.saved_steps import SNAPSHOTS, train_from
from training.jobs.witness.prompted_answers import UnusableRow
from training.rules.finetuning.replica_rounds import Share, donor_of, merged_sketch, merged_step


class RoundPart(NamedTuple):
    """What one replica's part of a round came to."""

    initial_weights: dict[str, Any]
    final_weights: dict[str, Any]
    lines: list[dict[str, Any]]
    before: list[float]


def replay(job: Job[Any]) -> StageResult:
    """Write one row for each step of the challenge; return what the saved weights say as facts.

    Raises NotAsked where a snapshot or a row is missing, or the saved weights cannot be read.
    """
    challenge = job.order.challenge
    assert challenge is not None
    arguments: DistributedTraining = job.parameters.distributed
    rounds = read_rows(job.inputs[LEFT + "replicas"], ReplicaRound)
    rows, facts = list[ReplayedStep](), dict[str, Any]()
    again = COURSES[job.order.kind].again(job)
    device = dtype = ""
    for part in challenge.segments:
        for segment in _rounds_of(part, arguments.sync_every):
            sync = arguments.rounds_of(segment.until)
            own = [row for row in rounds if row.sync == sync]
            made, model, replayed_steps = _round(job, again, segment, own, facts)
            device, dtype = checkpoint.device_of(model)
            if segment.until == arguments.last_step(sync, challenge.of):
                end = _outer_step(_start_of(job, segment, own), made, own, arguments)
                replayed_steps[-1] = replayed_steps[-1].model_copy(update={"sketch": sketch(end)})
                if segment.until == challenge.of:
                    facts["end_apart"] = apart_from_end(job, end)
            rows += replayed_steps
            job.progress(len(rows), len(challenge.rows), "steps")
    facts |= again.close()
    written: list[Contract] = [*rows, *again.answers]
    job.write_rows(ROWS, written)
    return StageResult(device, dtype, sum(row.tokens for row in rows), {}, facts)


def _rounds_of(part: Segment, every: int) -> list[Segment]:
    """Return the rounds of a part; it begins with one, and its last may end before it is synchronised."""
    return [
        Segment(after=after, until=min(after + every, part.until)) for after in range(part.after, part.until, every)
    ]


def _round(
    job: Job[Any], again: ReplicaReplay, part: Segment, own: list[ReplicaRound], facts: dict[str, Any]
) -> tuple[dict[int, RoundPart], Any, list[ReplayedStep]]:
    """Train the replicas again whose steps of a round are in the model; return them, a model and the merged rows."""
    made: dict[int, RoundPart] = {}
    model: Any = None
    for row in own:
        if row.counts:
            made[row.replica], model = _one(job, again, row.replica, part, facts)
    if not made:
        raise UnusableRow(f"no replica has steps {part.after + 1} to {part.until}")
    rows: list[ReplayedStep] = []
    before = merged_sketch([took.before for took in made.values()])
    for lines in zip(*(took.lines for took in made.values()), strict=True):
        line = merged_step(lines, COURSES[job.order.kind].merging)
        named = {name: line[name] for name in ReplayedStep.model_fields if name != "before"}
        rows.append(ReplayedStep(**named, before=tuple(before)))
        before = line["sketch"]
    return made, model, rows


def _one(
    job: Job[Any], again: ReplicaReplay, number: int, part: Segment, facts: dict[str, Any]
) -> tuple[RoundPart, Any]:
    import torch

    torch.manual_seed(job.parameters.seed)
    mine = of_replica(job, job.folder / "replicas" / str(number))
    trainer, prepared = again.build(mine, Share(number, job.parameters.distributed.replicas))
    if "files" not in facts:
        facts["files"] = files_apart(job, trainer.model, prepared.tokenizer)
    started_at: list[dict[str, Any]] = []

    def begin(model: Any) -> None:
        started_at.append(_copy_weights(model))

    if hasattr(trainer, "references"):
        trainer.train_dataset = trainer.references.of_steps(trainer, part)
    trainer.last_step, trainer.begins = part.until, begin
    try:
        train_from(trainer, _snapshot(job, part.after, number))
    except OtherRollouts as error:
        raise UnusableRow(str(error)) from error
    lines = [line for line in list_logged_steps(trainer) if part.after < line["step"] <= part.until]
    model = trainer.model
    took = RoundPart(started_at[0], _copy_weights(model), lines, list(sketch(started_at[0])))
    release(trainer, prepared)
    return took, model


def _copy_weights(model: Any) -> dict[str, Any]:
    return {name: value.detach().clone() for name, value in sorted(collect_trained_weights(model).items())}


def _snapshot(job: Job[Any], step: int, number: int) -> Path | None:
    """Return what a replica saved after a step; None for the granted weights."""
    if not step:
        return None
    folder = job.inputs[LEFT + SNAPSHOTS] / f"checkpoint-{step}" / f"replica-{number}"
    if not folder.is_dir():
        raise UnusableRow(f"no snapshot of step {step} of replica {number}")
    return folder


class RoundStart(NamedTuple):
    """What a round begins with next to its weights, as a replica saved it."""

    outer: dict[str, Any]
    masters: dict[str, Any]
    """The weights in float32, if the trained weights have another type."""


def _start_of(job: Job[Any], part: Segment, own: list[ReplicaRound]) -> RoundStart | None:
    """Return what a round begins with; None for the first."""
    import torch

    if not part.after:
        return None
    folder = _snapshot(job, part.after, next(row.replica for row in own if row.counts))
    assert folder is not None
    return RoundStart(torch.load(folder / OUTER, weights_only=True), read_masters(folder))


def _outer_step(
    start: RoundStart | None, made: dict[int, RoundPart], own: list[ReplicaRound], arguments: DistributedTraining
) -> dict[str, Any]:
    """Return the weights that a round began with, moved by the mean of what its participants contributed."""
    import torch

    started_at = made[min(made)].initial_weights
    contributed = [made[donor_of(row, own)] for row in own]
    masters = {name: value.float().clone() for name, value in started_at.items()} | (start.masters if start else {})
    outer = outer_of(list(masters.values()), arguments)
    if start is not None:
        outer.load_state_dict(start.outer)
    for name, master in masters.items():
        moves = [moved_back(took.initial_weights[name], took.final_weights[name]) for took in contributed]
        master.grad = torch.stack(moves).mean(0)
    outer.step()
    return {name: master.detach().to(started_at[name].dtype) for name, master in masters.items()}
