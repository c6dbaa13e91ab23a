"""A judge of two responses as part of a stage: it judges the labelled sample first, then the pairs group by group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from specs.stages.base.rubric import Rubric
from specs.stages.critique.parameters import ShownResponse
from specs.stages.critique.rows import ComparisonRow, JudgeCalibrationRow
from training.engines.checkpoint import device_of, load_for_inference, tokenizer_in
from training.jobs.critique.critic import Critic, pairs_scored
from training.jobs.job import Job, batches_of
from training.jobs.witness.label_scores import LabelJudge
from training.jobs.witness.prompted_answers import left_rows
from training.jobs.witness.scoring import Scoring
from training.rules.critique.subjects import LabelFault, ResponsePair, labelled_pairs
from training.rules.prompt_encoding import form_of
from training.rules.rubric_prompts import rubric_for
from training.rules.tasks import load_items

GROUP = 256
"""Pairs compared together and written as a whole."""

Labelled = list[tuple[ResponsePair, Any]]


class JudgeRun(NamedTuple):
    """A judge's comparisons, and what it ran on."""

    comparisons: list[ComparisonRow]
    device: str
    dtype: str
    facts: dict[str, Any]


def labelled_sample(job: Job) -> Labelled:
    """Return the labelled sample of a job's judge; exits before anything is sampled if an item is not labelled."""
    try:
        return list(labelled_pairs(load_items(job.inputs["calibration"])))
    except LabelFault as error:
        raise SystemExit(f"the labelled sample cannot be used: {error}") from error


def ask_judge(
    job: Job, rubric: Rubric | None, parameters: ShownResponse, sample: Labelled, pairs: Sequence[ResponsePair]
) -> JudgeRun:
    """Judge the labelled sample and all pairs; write ``comparisons`` and ``calibration``."""
    model, tokenizer = load_for_inference(job.inputs["judge"])
    form = form_of(job.order.model_kind)
    judge = Critic(model, tokenizer, rubric_for("comparison", rubric), parameters, form)
    calibration = job.shard("calibration", JudgeCalibrationRow)
    if not calibration.groups:
        calibration.add(judge.calibrated_pairs(sample))
    compared = job.shard("comparisons", ComparisonRow)
    job.fill(compared, batches_of(pairs, GROUP), lambda _, batch: judge.comparisons(batch), "comparisons")
    comparisons = compared.rows()
    job.write_rows("comparisons", comparisons)
    job.write_rows("calibration", calibration.rows())
    device, dtype = device_of(model)
    facts = judge.facts() | {"comparisons": len(comparisons), "labelled": len(sample)}
    return JudgeRun(comparisons, device, dtype, facts)


def judge_scored(
    job: Job,
    rubric: Rubric | None,
    parameters: ShownResponse,
    pairs: Sequence[ResponsePair],
    output: str,
    places: Sequence[int],
) -> list[Scoring]:
    """Return what the judge scored for rows of ``comparisons``, one for each of the pairs, or of ``calibration``."""
    if output == "calibration":
        due_pairs = [(pair, {"label": label}) for pair, label in labelled_sample(job)]
        rows: Sequence[tuple[int, ComparisonRow]] = left_rows(job, JudgeCalibrationRow, places, output)
    else:
        due_pairs = [(pair, {}) for pair in pairs]
        rows = left_rows(job, ComparisonRow, places, output)
    judge = LabelJudge(tokenizer_in(job.inputs["judge"]), form_of(job.order.model_kind), "judge")
    return pairs_scored(judge, rubric_for("comparison", rubric), parameters, rows, due_pairs)
