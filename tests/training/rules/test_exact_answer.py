"""`exact_answer` ignores how an answer is written, and nothing that makes it another one."""

from __future__ import annotations

import json
import time
from fractions import Fraction
from pathlib import Path

import pytest

from reviews.stages.evaluation.label_checks import distinct_answers
from sessions.commands.starters.starter import make_starter
from specs.stages.base.artifacts import Item
from specs.system.errors import UserError
from testing.factories.evidence_on_disk import resolved_spec
from training.rules.tasks.exact_answer import contains_answer, final_answer, last_number, reduce_answer, verify


def item_with(answer: str, **more: str) -> Item:
    return Item(id=f"i-{answer[:9]}", group="g", kind="k", prompt="p", constraint={"answer": answer, **more})


@pytest.mark.parametrize(
    ("right", "other"),
    [
        ("-5", "5"),
        ("−5", "5"),
        ("A", "the"),
        ("A", "."),
        ("B", "A B"),
        ("50%", "50"),
        ("10⁵", "105"),
        ("x²", "x2"),
        ("H₂O", "H2O"),
        ("1½", "11/2"),
        ("+", "-"),
        ("<", ">"),
        ("!", "?"),
        (".5", "5"),
        ("$5", "5"),
        ("(5)", "5"),
        ("__init__", "init"),
        ("*args", "args"),
        ("-v", "v"),
        ("C#", "C"),
        ("C++", "C"),
        ("f()", "f"),
        ("Vitamin A", "vitamin"),
    ],
)
def test_what_makes_another_answer_survives(right: str, other: str) -> None:
    assert not verify(item_with(right), other).passed
    assert not verify(item_with(other), right).passed
    assert verify(item_with(right), right).passed


@pytest.mark.parametrize(
    ("right", "written"),
    [
        ("Paris", ' "paris." '),
        ("a green tea", "The green tea!"),
        ("-5", "−5."),
        ("A", "(A)"),
        ("A", "a)"),
        ("Paris", "**Paris**"),
        ("fish", "ﬁsh"),
        ("AB", "ＡＢ"),
        ("+", "+."),
        ("Vitamin A", "vitamin A."),
    ],
)
def test_how_an_answer_is_written_does_not_count(right: str, written: str) -> None:
    assert verify(item_with(right), written).passed


@pytest.mark.parametrize("text", ["the", "A", ".", "...", "%", "a an the", "“", "*", "?!"])
def test_nothing_is_reduced_to_nothing(text: str) -> None:
    assert reduce_answer(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("so it is 1,200.", 1200),
        ("-5", -5),
        ("it is −5", -5),
        ("x = -2", -2),
        ("8 - 3 = 5", 5),
        ("3-5", 5),
        ("pages 3–5", 5),
        (".5", Fraction(1, 2)),
        ("1/2", Fraction(1, 2)),
        ("5e3", 5000),
        ("10⁵", 10**5),
        ("10^5", 10**5),
        ("3,4", 4),
        ("3/4/2024", 2024),
        ("5/0", None),
        ("many", None),
        ("9" * 5000, None),
        ("#### 72", 72),
    ],
)
def test_the_last_number_is_a_value(text: str, value: Fraction | int | None) -> None:
    assert last_number(text) == value


def test_answers_of_any_length_are_read_at_once() -> None:
    began = time.process_time()
    for text in ("1," * 50_000, "(" * 100_000, "= " * 50_000, "*a" * 50_000, "9^" * 50_000):
        for read in (reduce_answer, last_number, final_answer):
            read(text)
    assert time.process_time() - began < 5


RATIONALE = "There are {0} boxes with 2 eggs each.\nSo {0}*2 = <<{0}*2={1}>>{1} eggs.\n#### {1}"


@pytest.mark.parametrize(
    ("text", "final"),
    [
        (RATIONALE.format(3, 6), "6"),
        ("We add 3 and 4 and get 7. The answer is: 7", "7"),
        ("Thus we have $x = \\frac{24}{2}$, so that $\\boxed{12}$.", "12"),
        ("Paris", None),
        ("The answer is 5", None),
        ("A sentence of many words, which holds no final answer at all.", None),
    ],
)
def test_a_rationale_is_recognised_by_its_final_answer(text: str, final: str | None) -> None:
    assert final_answer(text) == final


def distinct(folder: Path, *items: Item) -> tuple[str, str]:
    spec = resolved_spec(folder).spec.model_copy(update={"task": "exact_answer"})
    outcome = distinct_answers(spec, items, {})
    return outcome.status, outcome.detail


def test_the_design_gate_refuses_right_answers_that_are_compared_as_one(tmp_path: Path) -> None:
    for pair in (("5!", "5"), ("myVar", "myvar"), ("King of the hill", "King of hill"), ("_List", "_list")):
        status, detail = distinct(tmp_path, *map(item_with, pair), item_with("other"))
        assert status == "FAIL" and "compared as one" in detail, pair
    for pair in (("-5", "5"), ("Water", "water"), ("The sun", "the sun."), ("Yes", "yes!"), ("A", "B")):
        assert distinct(tmp_path, *map(item_with, pair))[0] == "PASS", pair


def test_the_design_gate_refuses_rationales_with_the_way_out(tmp_path: Path) -> None:
    rows = [RATIONALE.format(count, 2 * count) for count in range(3, 9)]
    status, detail = distinct(tmp_path, *map(item_with, rows))
    assert status == "FAIL" and "last_number" in detail
    assert distinct(tmp_path, *(item_with(row, find="last_number") for row in rows))[0] == "NOT_APPLICABLE"


def rows_of(folder: Path, completion: str) -> Path:
    path = folder / "rows.jsonl"
    rows = [
        {
            "question": f"How many eggs are in {count} boxes of 2, and what colour is word{count}?",
            "answer": completion.format(count, 2 * count),
        }
        for count in range(3, 103)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_init_compares_the_last_numbers_of_rationales_or_refuses_them(tmp_path: Path) -> None:
    starter = make_starter("gsm", data=rows_of(tmp_path, RATIONALE))
    assert any("last number" in line for line in starter.choices)
    heldout = [json.loads(line) for line in starter.files["heldout.jsonl"].splitlines()]
    assert {row["find"] for row in heldout} == {"last_number"}
    with pytest.raises(UserError, match="rationales"):
        make_starter("colours", data=rows_of(tmp_path, "It is painted by {0} people.\n#### blue"))
    plain = make_starter("plain", data=rows_of(tmp_path, "{1}"))
    assert not any("last number" in line for line in plain.choices)


def test_an_answer_that_holds_the_right_one_is_recognised() -> None:
    assert contains_answer(item_with("Paris"), "It is Paris.")
    assert contains_answer(item_with("5"), "That is 5, I think.")
    assert not contains_answer(item_with("5"), "That is 15 or -5.")
