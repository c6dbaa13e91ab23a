"""Selections of samples: what the filters mean, for one arm and for two, and how much of an answer is sent."""

from __future__ import annotations

import pytest

from reviews.stages.evaluation.judged_answers import JudgedAnswer
from sessions.pages.report.samples.judged_samples import SELECTIONS, JudgedSample, Samples
from sessions.pages.view.samples import WHOLE, in_full
from specs.stages.base.artifacts import Item
from specs.stages.evaluation.rows import EvaluationRow
from specs.system.errors import UserError


def judged(
    number: int, passed: bool, output: str = "answer", *, kind: str = "short", cut: bool = False
) -> JudgedAnswer:
    item = Item(id=f"i{number}", group="g", kind=kind, prompt=f"Question {number}", constraint={})
    row = EvaluationRow(item=item.id, prompt_tokens=1, output=output, output_tokens=1, truncated=cut)
    return JudgedAnswer(item, row, passed, "" if passed else "because")


BOTH = Samples(
    (
        JudgedSample(1, judged(1, False), judged(1, True)),
        JudgedSample(2, judged(2, True), judged(2, False, "ÄPFEL", cut=True)),
        JudgedSample(3, judged(3, True, kind="long"), judged(3, True, kind="long")),
        JudgedSample(4, judged(4, False, "pears"), judged(4, False)),
    ),
    ("base", "tuned"),
)


def numbers(samples: Samples, output: str = "all", kind: str = "", text: str = "") -> list[int]:
    return [samples.rows[place].number for place in samples.select(output, kind, text)]


def test_each_filter_selects_what_it_says() -> None:
    assert {name: numbers(BOTH, name) for name in SELECTIONS} == {
        **{"all": [1, 2, 3, 4], "right": [1, 3], "wrong": [2, 4], "gained": [1], "lost": [2], "truncated": [2]}
    }
    assert BOTH.counts() == {name: len(numbers(BOTH, name)) for name in SELECTIONS}


def test_filters_kind_and_text_narrow_each_other() -> None:
    assert numbers(BOTH, kind="long") == [3] and numbers(BOTH, "wrong", "long") == []
    assert numbers(BOTH, text="äpfel") == [2] and numbers(BOTH, text="PEARS") == [4]
    assert numbers(BOTH, text="question 3") == [3] and numbers(BOTH, "right", text="question 2") == []
    assert BOTH.kinds() == {"long": 1, "short": 3}


def test_of_one_arm_nothing_is_gained_or_lost() -> None:
    alone = Samples(tuple(sample._replace(after=None) for sample in BOTH.rows), ("base",))
    assert numbers(alone, "right") == [2, 3] and numbers(alone, "gained") == numbers(alone, "lost") == []
    assert in_full(alone, 1)["after_right"] is None and "after" in in_full(alone, 1)


def test_a_name_or_a_number_that_is_none_is_refused() -> None:
    with pytest.raises(UserError, match="does not select samples"):
        BOTH.select("better", "", "")
    for number in (0, 5):
        with pytest.raises(UserError, match=f"no item {number}"):
            in_full(BOTH, number)


def test_a_long_answer_is_glimpsed_in_the_list_and_cut_when_it_is_opened() -> None:
    long = Samples((JudgedSample(1, judged(1, False, "<b>x</b>" * 40_000), None),), ("base",))
    whole = in_full(long, 1)["before"]
    assert len(whole) == WHOLE and whole.startswith("<b>x</b>") and whole.endswith("characters left out]")
    assert in_full(long, 1)["before_reason"] == "because"
