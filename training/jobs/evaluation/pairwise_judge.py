"""Have a judge compare two answers to each item, in both orders, and the labelled pairs in the same way.

The judge is a model that is asked for one token, A or B; a preference that turns with the order is a tie. Judgements
are kept group by group: a stage that was ended goes on after the last whole group and gives the same rows.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from specs.stages.artifacts import Item
from specs.stages.evaluation.parameters import PairwiseJudgeParameters
from specs.stages.evaluation.rows import DuelRow, EvaluationRow
from specs.stages.label_scores import arrangement, decide
from specs.stages.rubric import Rubric
from training.engines.checkpoint import device_of, load
from training.engines.label_scoring import score_both
from training.jobs.job import Done, Job, run_stage
from training.jobs.row_files import GroupedRows, read_rows
from training.rules.evaluation.labelled_pairs import labelled_pairs
from training.rules.rubric_prompts import prompts_of_comparison, rubric_for
from training.rules.tasks import load_items

GROUP = 128
"""Pairs judged together and written down as a whole."""


class Sides(NamedTuple):
    """Two answers to one item."""

    item: Item
    reference: str
    candidate: str


def compare(job: Job) -> Done:
    """Write ``rows`` (one judgement for each item) and ``calibration`` (one for each labelled pair).

    Raises:
        ValueError: an item has no answer of one side, there are no labelled pairs, or a prompt is longer than the
            judge's context.
    """
    parameters = job.parameters
    assert isinstance(parameters, PairwiseJudgeParameters)
    items = load_items(job.inputs["items"])
    answers: dict[str, dict[str, str]] = {side: _answers(job, side) for side in ("reference", "candidate")}
    missing = [item.id for item in items for given in answers.values() if item.id not in given]
    if missing:
        raise ValueError(f"{len(missing)} answers are missing, for example one to '{missing[0]}'")
    pairs = [Sides(item, answers["reference"][item.id], answers["candidate"][item.id]) for item in items]
    labelled = [Sides(*pair[:3]) for pair in labelled_pairs(load_items(job.inputs["labelled"]))]
    model, tokenizer = load(job.inputs["model"])
    rubric = rubric_for("comparison", parameters.rubric)
    given = {"calibration": labelled, "duels": pairs}
    total, done = len(pairs) + len(labelled), 0
    kept = {name: GroupedRows(job.folder / "shards" / f"{name}.jsonl", DuelRow) for name in given}
    for name, some in given.items():
        for number, at in enumerate(range(0, len(some), GROUP)):
            group = some[at : at + GROUP]
            if number >= len(kept[name].groups):
                kept[name].add(_judged(model, tokenizer, rubric, parameters, group))
            done += len(group)
            job.progress(done, total, "pairs")
    rows, calibration = kept["duels"].rows(), kept["calibration"].rows()
    job.write_rows("rows", rows)
    job.write_rows("calibration", calibration)
    device, dtype = device_of(model)
    read = sum(row.plain.scores.prompt_tokens + row.swapped.scores.prompt_tokens for row in (*rows, *calibration))
    return Done(device, dtype, read, parameters.model_dump(mode="json"), {"rubric": rubric.content_digest()})


def _answers(job: Job, side: str) -> dict[str, str]:
    return {row.item: row.output for row in read_rows(job.inputs[side], EvaluationRow)}


def _judged(
    model: Any, tokenizer: Any, rubric: Rubric, parameters: PairwiseJudgeParameters, pairs: list[Sides]
) -> list[DuelRow]:
    limit = parameters.shown_characters
    prompts = [
        prompts_of_comparison(rubric, one.item.prompt, one.reference.strip()[:limit], one.candidate.strip()[:limit])
        for one in pairs
    ]
    plain, swapped = score_both(
        model, tokenizer, prompts, form=parameters.form, batch_size=parameters.batch_size, alike=True
    )
    sides: dict[bool | None, Literal["reference", "candidate"] | None] = {
        True: "reference",
        False: "candidate",
        None: None,
    }
    rows: list[DuelRow] = []
    for one, first, second in zip(pairs, plain, swapped, strict=True):
        in_order = arrangement(first, "A", parameters.margin)
        turned = arrangement(second, "B", parameters.margin)
        verdict = decide(in_order, turned, parameters.agreement, parameters.margin)
        rows.append(
            DuelRow(
                item=one.item.id,
                reference=one.reference,
                candidate=one.candidate,
                rubric=rubric.content_digest(),
                plain=in_order,
                swapped=turned,
                preferred=sides[verdict],
            )
        )
    return rows


if __name__ == "__main__":
    run_stage("pairwise_judge", compare)
