"""Have a judge compare two answers to each item, in both orders, and the labelled pairs in the same way.

The judge is a model that writes one token, A or B; a preference that changes with the order is a tie.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from specs.stages.base.artifacts import Item
from specs.stages.base.rubric import Rubric
from specs.stages.base.witness import Arrangement, arrangement, decide
from specs.stages.evaluation.parameters import PairwiseJudgeParameters
from specs.stages.evaluation.rows import DuelRow, EvaluationRow
from specs.system.text import plural
from training.engines.checkpoint import device_of, load_for_inference, tokenizer_in
from training.engines.label_scoring import score_both
from training.jobs.job import Job, StageResult, batches_of
from training.jobs.row_files import read_rows
from training.jobs.witness.label_scores import LabelJudge, judgement
from training.jobs.witness.prompted_answers import left_rows
from training.jobs.witness.scoring import Scoring
from training.rules.rubric_prompts import JudgementPrompts, labelled_pairs, prompts_of_comparison, rubric_for
from training.rules.tasks import load_items

GROUP = 128
"""Pairs judged together and written as a whole."""


class AnswerPair(NamedTuple):
    """Two answers to one item."""

    item: Item
    reference: str
    candidate: str


def compare(job: Job[PairwiseJudgeParameters]) -> StageResult:
    """Write ``rows`` (one judgement for each item) and ``calibration`` (one for each labelled pair).

    Raises ValueError if an answer or all labelled pairs are missing, or a prompt is longer than the judge's context.
    """
    parameters = job.parameters
    pairs, labelled = _pairs(job), _load_labelled_pairs(job)
    model, tokenizer = load_for_inference(job.inputs["model"])
    rubric = rubric_for("comparison", parameters.rubric)
    duel_rows: dict[str, list[DuelRow]] = {}
    for name, output, answer_pairs in (("calibration", "calibration", labelled), ("duels", "rows", pairs)):
        shard = job.shard(name, DuelRow)
        requested_partial = partial(_judge_pairs, model, tokenizer, rubric, parameters)
        job.fill(shard, batches_of(answer_pairs, GROUP), requested_partial, f"pairs of {name}")
        duel_rows[output] = shard.rows()
        job.write_rows(output, duel_rows[output])
    device, dtype = device_of(model)
    read = sum(
        row.plain.scores.prompt_tokens + row.swapped.scores.prompt_tokens for rows in duel_rows.values() for row in rows
    )
    return StageResult(device, dtype, read, parameters.model_dump(mode="json"), {"rubric": rubric.content_digest()})


def _pairs(job: Job[PairwiseJudgeParameters]) -> list[AnswerPair]:
    """Return the two answers to each item; raises ValueError if one is missing."""
    items = load_items(job.inputs["items"])
    answers = {
        side: {row.item: row.output for row in read_rows(job.inputs[side], EvaluationRow)}
        for side in ("reference", "candidate")
    }
    missing = [item.id for item in items for answer in answers.values() if item.id not in answer]
    if missing:
        raise ValueError(
            f"{plural(len(missing), 'answer is', 'answers are')} missing, for example one to '{missing[0]}'"
        )
    return [AnswerPair(item, answers["reference"][item.id], answers["candidate"][item.id]) for item in items]


def _load_labelled_pairs(job: Job[PairwiseJudgeParameters]) -> list[AnswerPair]:
    return [AnswerPair(*pair[:3]) for pair in labelled_pairs(load_items(job.inputs["labelled"]))]


def build_scorings(job: Job[PairwiseJudgeParameters], output: str, places: Sequence[int]) -> list[Scoring]:
    """Return what the judge scored for these rows: the two answers to each item, or the labelled pairs."""
    parameters, sides = job.parameters, _load_labelled_pairs(job) if output == "calibration" else _pairs(job)
    rubric = rubric_for("comparison", parameters.rubric)
    judge = LabelJudge(tokenizer_in(job.inputs["model"]), parameters.form)
    scorings: list[Scoring] = []
    for place, row in left_rows(job, DuelRow, places, output):
        if place >= len(sides):
            scorings.append(Scoring(place, {}, ("item",)))
            continue
        item, reference, candidate = sides[place]
        fields = {"item": item.id, "reference": reference, "candidate": candidate, "rubric": rubric.content_digest()}
        both = (
            arrangement(row.plain.scores, "A", parameters.margin),
            arrangement(row.swapped.scores, "B", parameters.margin),
        )
        follows = (row.plain, row.swapped) == both and row.preferred == _choose_preferred(both, parameters)
        scorings.append(
            judgement(judge, place, row, _prompts(rubric, parameters, sides[place]), fields, follows=follows)
        )
    return scorings


def _prompts(rubric: Rubric, judge_parameters: PairwiseJudgeParameters, sides: AnswerPair) -> JudgementPrompts:
    limit = judge_parameters.shown_characters
    return prompts_of_comparison(
        rubric, sides.item.prompt, sides.reference.strip()[:limit], sides.candidate.strip()[:limit]
    )


def _choose_preferred(
    both: tuple[Arrangement, Arrangement], judge_parameters: PairwiseJudgeParameters
) -> Literal["reference", "candidate"] | None:
    sides: dict[bool | None, Literal["reference", "candidate"]] = {True: "reference", False: "candidate"}
    return sides.get(decide(*both, judge_parameters.agreement, judge_parameters.margin))


def _judge_pairs(
    model: Any, tokenizer: Any, rubric: Rubric, parameters: PairwiseJudgeParameters, _: int, pairs: Sequence[AnswerPair]
) -> list[DuelRow]:
    prompts = [_prompts(rubric, parameters, sides) for sides in pairs]
    size, margin = parameters.batch_size, parameters.margin
    both = score_both(model, tokenizer, prompts, form=parameters.form, batch_size=size, alike=True, margin=margin)
    return [
        DuelRow(
            item=sides.item.id,
            reference=sides.reference,
            candidate=sides.candidate,
            rubric=rubric.content_digest(),
            plain=plain,
            swapped=swapped,
            preferred=_choose_preferred((plain, swapped), parameters),
        )
        for sides, (plain, swapped) in zip(pairs, both, strict=True)
    ]
