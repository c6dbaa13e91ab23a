"""Flaws of items that are answered several times: rows left out, repeated, picked or drawn otherwise."""

from __future__ import annotations

from pathlib import Path

from bench.flaws.families.rows import ROWS, read_lines
from bench.flaws.lying import other_parameters
from bench.flaws.operator import Change, Operator, Row
from testing.fixtures.tiny_training import write_lines
from training.jobs.job import Job
from training.rules.tasks import load_items, verifier

SAMPLES_PER_ITEM = 4
_EVALUATION = "items: heldout}\n    parameters: {max_new_tokens: 48, batch_size: 16"


def answer_several(
    drawn: str = f"temperature: 0.7, samples_per_item: {SAMPLES_PER_ITEM}", test: str = "sign_flip"
) -> tuple[Change, ...]:
    """Return the changes by which both arms answer each item several times."""
    arms = (f"inputs: {{model: {model}, {_EVALUATION}" for model in ("model", "train.checkpoint"))
    return ("  alpha: 0.05\n", f"  test: {test}\n  alpha: 0.05\n"), *((arm, f"{arm}, {drawn}") for arm in arms)


def _leave_out(rows: list[Row], _: Path) -> None:
    del rows[2::11]


def _repeat_first(rows: list[Row], _: Path) -> None:
    for place in range(len(rows)):
        _copy(rows, place - place % SAMPLES_PER_ITEM, place)


def _copy(rows: list[Row], source: int, target: int) -> None:
    sample = {"sample": target % SAMPLES_PER_ITEM} if target % SAMPLES_PER_ITEM else {}
    rows[target] = {name: value for name, value in rows[source].items() if name != "sample"} | sample


def _state_best(job: Job) -> None:
    """State the best of an item's answers as all of them."""
    items, judge = load_items(job.inputs["items"]), verifier(job.order.task)
    path = job.out / "rows.jsonl"
    rows = read_lines(path)
    for at, item in enumerate(items):
        places = range(SAMPLES_PER_ITEM * at, SAMPLES_PER_ITEM * (at + 1))
        best = next((place for place in places if judge(item, rows[place]["output"]).passed), places[0])
        for place in places:
            if place != best:
                _copy(rows, best, place)
    write_lines(path, rows)


def _use_other_seed(job: Job) -> None:
    other_parameters(job, seed=4)


def _draw_colder(job: Job) -> None:
    other_parameters(job, temperature=0.2)


OPERATORS = (
    Operator("answers-left-out", "several", "some of an item's answers are left out", ("health.complete",),
             stage="before", spec=answer_several(), lie=_leave_out),
    Operator("samples-repeated", "several", "an item's first answer is stated as all four", ROWS, stage="after",
             spec=answer_several(), lie=_repeat_first),
    Operator("best-of-several", "several", "the best of an item's four answers is stated as all four",
             ROWS, stage="after", spec=answer_several(), spoil=_state_best),
    Operator("picked-seed", "several", "the answers are drawn by another seed than the registered one", ROWS,
             stage="after", spec=answer_several(), swap=_use_other_seed),
    Operator("colder-samples", "several", "the answers are drawn at 0.2, and 0.7 is stated", ROWS, stage="after",
             spec=answer_several(), swap=_draw_colder),
    Operator("greedy-samples", "several", "four greedy answers to each item", ("all the same",),
             spec=answer_several(f"samples_per_item: {SAMPLES_PER_ITEM}")),
    Operator("answers-as-items", "several", "four answers to each item are to be tested as if each were an item",
             ("answer each item",), spec=answer_several(test="exact_mcnemar")),
)  # fmt: skip
