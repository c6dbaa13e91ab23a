"""Stages that keep what a single-token A/B critic accepts: good and confident, in both orders of the labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from specs.stages.base.artifacts import Example, Item
from specs.stages.base.rubric import Judges
from specs.stages.critique.parameters import (
    CriticParameters,
    CritiqueInstructionsParameters,
    CritiqueResponsesParameters,
)
from specs.stages.critique.rows import CalibrationRow, CritiqueRow
from specs.system.digests import Contract
from training.engines.checkpoint import device_of, load_for_inference, tokenizer_in
from training.jobs.critique.critic import Critic, subjects_scored
from training.jobs.job import Job, StageResult, batches_of
from training.jobs.row_files import read_rows
from training.jobs.witness.label_scores import LabelJudge
from training.jobs.witness.prompted_answers import left_rows
from training.jobs.witness.scoring import Scoring
from training.rules.critique.subjects import LabelFault, Subject, of_examples, of_items, read_labelled_subjects
from training.rules.prompt_encoding import form_of
from training.rules.rubric_prompts import rubric_for
from training.rules.tasks import load_items

GROUP = 256
"""Subjects judged together and written as a whole. Lengths are sorted within a group."""
Line = TypeVar("Line", Item, Example)


def critique_instructions(job: Job[CritiqueInstructionsParameters]) -> StageResult:
    """Write ``rows`` and ``calibration`` (every log-probability) and ``accepted`` (the kept items, unchanged)."""
    return _judge(job, "instruction", read_rows(job.inputs["items"], Item), of_items)


def critique_responses(job: Job[CritiqueResponsesParameters]) -> StageResult:
    """Write ``rows`` and ``calibration`` (every log-probability) and ``accepted`` (the kept examples, unchanged)."""
    return _judge(job, "response", read_rows(job.inputs["examples"], Example), of_examples)


def scored_instructions(job: Job[CritiqueInstructionsParameters], output: str, places: Sequence[int]) -> list[Scoring]:
    """Return what the critic scored for these rows: the instructions, or the labelled ones."""
    return _build_scorings(job, "instruction", of_items(read_rows(job.inputs["items"], Item)), output, places)


def scored_responses(job: Job[CritiqueResponsesParameters], output: str, places: Sequence[int]) -> list[Scoring]:
    """Return what the critic scored for these rows: the responses, or the labelled ones."""
    return _build_scorings(job, "response", of_examples(read_rows(job.inputs["examples"], Example)), output, places)


def _build_scorings(
    job: Job[Any], judges: Judges, subjects: Sequence[Subject], output: str, places: Sequence[int]
) -> list[Scoring]:
    parameters: CriticParameters = job.parameters
    if output == "calibration":
        sample = read_labelled_subjects(load_items(job.inputs["calibration"]), responses=judges == "response")
        pairs = [(subject, {"label": label}) for subject, label in sample]
        rows: Sequence[tuple[int, CritiqueRow]] = left_rows(job, CalibrationRow, places, output)
    else:
        pairs = [(subject, {}) for subject in subjects]
        rows = left_rows(job, CritiqueRow, places, output)
    judge = LabelJudge(tokenizer_in(job.inputs["model"]), form_of(job.order.model_kind))
    return subjects_scored(judge, rubric_for(judges, parameters.rubric), parameters, rows, pairs)


def _judge(
    job: Job[Any], judges: Judges, lines: list[Line], subjects_of: Callable[[list[Line]], list[Subject]]
) -> StageResult:
    """Judge the labelled sample, then all lines; write them with what was accepted."""
    parameters: CriticParameters = job.parameters
    subjects = subjects_of(lines)
    try:
        sample = read_labelled_subjects(load_items(job.inputs["calibration"]), responses=judges == "response")
    except LabelFault as error:
        raise SystemExit(f"the labelled sample cannot be used: {error}") from error
    model, tokenizer = load_for_inference(job.inputs["model"])
    form = form_of(job.order.model_kind)
    critic = Critic(model, tokenizer, rubric_for(judges, parameters.rubric), parameters, form)
    calibration = job.shard("calibration", CalibrationRow)
    if not calibration.groups:
        calibration.add(critic.judge_labelled_sample(sample))
    grouped_rows = job.shard("critiques", CritiqueRow)
    job.fill(grouped_rows, batches_of(subjects, GROUP), lambda _, batch: critic.critiques(batch), "subjects")
    rows = grouped_rows.rows()
    job.write_rows("rows", rows)
    job.write_rows("calibration", calibration.rows())
    accepted: list[Contract] = [line for line, row in zip(lines, rows, strict=True) if row.accepted]
    job.write_rows("accepted", accepted)
    device, dtype = device_of(model)
    facts = critic.facts() | {"subjects": len(subjects), "labelled": len(sample)}
    tokens = sum(arrangement.scores.prompt_tokens for row in rows for arrangement in (row.plain, row.swapped))
    return StageResult(device, dtype, tokens, parameters.model_dump(mode="json"), facts)
