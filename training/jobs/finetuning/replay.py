"""Train some steps of a job again, and look whether what it saved is what it trained.

A witness runs this in a separate process, from the granted weights and data alone. The steps are those of the
challenge, which no one knew before the job had ended; of the job it takes the snapshots to begin with.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specs.jobs.job_records import LEFT, Segment
from specs.stages.base.witness import ROWS
from specs.stages.finetuning.parameters import DpoParameters, SftParameters
from specs.stages.finetuning.rows import ReplayedStep
from training.engines import checkpoint
from training.jobs.finetuning import dpo, sft
from training.jobs.finetuning.adapter_merge import release
from training.jobs.finetuning.saved_weights import apart_from_end, files_apart, saved_facts
from training.jobs.finetuning.trained_model import PreparedModel
from training.jobs.finetuning.trainer_args import list_logged_steps
from training.jobs.finetuning.weight_sketch import collect_trained_weights, sketch
from training.jobs.job import Job, StageResult
from training.jobs.saved_steps import SNAPSHOTS, train_from
from training.jobs.witness.prompted_answers import UnusableRow


def replay(job: Job[SftParameters | DpoParameters]) -> StageResult:
    """Write one row for each step of the challenge; return what the saved weights say as facts.

    Raises NotAsked where a snapshot is missing or the saved weights cannot be read.
    """
    challenge = job.order.challenge
    assert challenge is not None
    rows: list[ReplayedStep] = []
    device, dtype = "", ""
    facts: dict[str, Any] = {}
    for segment in challenge.segments:
        trainer, prepared = _build_trainer(job)
        device, dtype = checkpoint.device_of(trainer.model)
        if "files" not in facts:
            facts["files"] = files_apart(job, trainer.model, prepared.tokenizer)
        trainer.add_callback(_after_each_step(job, challenge.saved_step, facts))
        rows += steps_of(job, trainer, segment)
        job.progress(len(rows), len(challenge.rows), "steps")
        release(trainer, prepared)
    job.write_rows(ROWS, rows)
    facts |= saved_facts(job, challenge.ended)
    return StageResult(device, dtype, sum(row.tokens for row in rows), {}, facts)


def _after_each_step(job: Job[Any], saved_step: int, facts: dict[str, Any]) -> Any:
    """Return a callback that compares the saved weights with those of a replay that reaches their step.

    It saves no step: a witness is not resumed, and each would take three times the model's space.
    """
    from transformers import TrainerCallback

    class Comparing(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            control.should_save = False
            if state.global_step == saved_step:
                facts["end_apart"] = apart_from_end(job, collect_trained_weights(model))

    return Comparing()


def _build_trainer(job: Job[Any]) -> tuple[Any, PreparedModel]:
    """Return a trainer as the job had it before its first step."""
    import torch

    # As every job begins, so that adapters begin with the same weights.
    torch.manual_seed(job.parameters.seed)
    built = (sft if job.order.kind == "sft" else dpo).build(job)
    return built.trainer, built.prepared


def steps_of(job: Job[Any], trainer: Any, segment: Segment) -> list[ReplayedStep]:
    """Train a part again; raises NotAsked where its snapshot is missing."""
    beginning: list[Sequence[float]] = []

    def begin(model: Any) -> None:
        beginning.append(sketch(collect_trained_weights(model)))

    if hasattr(trainer, "references"):
        trainer.train_dataset = trainer.references.of_steps(trainer, segment)
    trainer.last_step, trainer.begins = segment.until, begin
    train_from(trainer, _snapshot(job, segment.after))
    entries = [value for value in list_logged_steps(trainer) if segment.after < value["step"] <= segment.until]
    rows: list[ReplayedStep] = []
    for entry in entries:
        before = rows[-1].sketch if rows else tuple(beginning[0])
        named = {name: entry[name] for name in ("step", "loss", "learning_rate", "grad_norm", "tokens")}
        rows.append(
            ReplayedStep(**named, batches=tuple(entry["batches"]), before=before, sketch=tuple(entry["sketch"]))
        )
    return rows


def _snapshot(job: Job[Any], step: int) -> Path | None:
    """Return the snapshot after a step; None for the granted weights."""
    if not step:
        return None
    folder = job.inputs[LEFT + SNAPSHOTS] / f"checkpoint-{step}"
    if not folder.is_dir():
        raise UnusableRow(f"no snapshot of step {step}")
    return folder
