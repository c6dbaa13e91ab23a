"""Held-out items that are nonsense: what their own verifier shows of them, and what the arms show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.checks.definition import apply
from reviews.evidence.evidence import Evidence
from reviews.gate.measurer import measure
from reviews.gate.packet import build_packet
from reviews.stages.evaluation.item_checks import CHECKS, sound
from specs.session.evaluation_plan import EvaluationPlan, Gap
from specs.session.thresholds import Thresholds
from specs.stages.base.artifacts import Item
from specs.system.digests import digest_bytes
from specs.trail.verdict import CheckResult
from testing.factories.evidence_on_disk import (
    N,
    answers,
    design_results,
    evidence_of,
    heldout_items,
    resolved_spec,
    write_rows,
)
from testing.factories.flaws_evaluation import with_plan
from training.rules.tasks import load_items
from training.rules.tasks.instruction_following import constraint_of
from training.rules.tasks.verifier_cases import EXACT, FOLLOWING

SHIPPED = Path(__file__).parents[3] / "specs" / "library" / "data" / "format_heldout.jsonl"
FORMAT, EXACTLY, FOLLOWS = "format_instructions", "exact_answer", "instruction_following"


def item(kind: str, prompt: str, **constraint: str | int) -> Item:
    return Item(id="odd", group="odd", kind=kind, prompt=prompt, constraint=constraint)


NO_WORDS = constraint_of([("length_constraints:number_words", {"relation": "at least", "num_words": 0})])
NONSENSE: list[tuple[str, Item, str]] = [
    (FORMAT, item("bullets", "List 3 facts about tea.", count=4), "does not say '4'"),
    (FORMAT, item("bullets", "List 0 facts about tea.", count=0), "refuses an answer"),
    (FORMAT, item("bullets", "List some facts about tea.", count="some"), "cannot be read: ValueError"),
    (FORMAT, item("bullets", "List facts about tea."), "cannot be read: 'count' is missing or unknown"),
    (FORMAT, item("ending", "Write about tea. End with: Bye.", phrase="That is all."), "does not say 'That is all.'"),
    (FORMAT, item("ending", "Write about tea.", phrase=""), "refuses an answer"),
    (FORMAT, item("uppercase", "Write about tea. Use only lowercase letters."), "asks for the form of lowercase, and"),
    (FORMAT, item("quoted", "Tell of tea. Put a title wrapped in << and >> on the first line."), "form of title, and"),
    (FORMAT, item("haiku", "Write a haiku about tea."), "is missing or unknown"),
    (FORMAT, item("lowercase", "Write one sentence about {topic}."), "holds the unfilled {topic}"),
    (FORMAT, item("lowercase", "?!"), "asks nothing"),
    (EXACTLY, item("sum", "Convert four meters to Fahrenheit.", find="last_number"), "is missing or unknown"),
    (EXACTLY, item("sum", "Convert four meters to Fahrenheit.", answer="none", find="last_number"), "cannot be read"),
    (EXACTLY, item("fact", "How many wheels has a square?", answer=" "), "refuses an answer"),
    (FOLLOWS, item("w", "Say anything.", **NO_WORDS), "accepts whatever is said"),
    (FOLLOWS, item("w", "Say anything.", **{"1": "no:such_type"}), "cannot be read: ValueError"),
]  # fmt: skip


@pytest.mark.parametrize(("task", "odd", "why"), NONSENSE)
def test_failure_31_an_item_that_nothing_or_everything_meets_is_found(task: str, odd: Item, why: str) -> None:
    outcome = sound(task, [odd])
    assert outcome.status == "FAIL" and why in outcome.detail and not outcome.repairable, outcome.detail
    assert [row["heldout"] for row in outcome.rows] == ["odd"]


def test_what_is_sound_passes() -> None:
    # The control: every item that is shipped, and every type of instruction there is.
    shipped = load_items(SHIPPED)
    assert sound(FORMAT, shipped).detail == "120 held-out items can be missed, 120 of them are met by a known answer"
    followed = [
        item(
            constraint_answers.kind,
            "Say it.",
            **constraint_of([(constraint_answers.kind, constraint_answers.arguments)]),
        )
        for constraint_answers in FOLLOWING
    ]
    assert sound(FOLLOWS, followed).detail.endswith(
        f"{len(followed)} held-out items can be missed, 0 of them are met by a known answer"
    )
    assert (
        sound(
            EXACTLY, [item("x", "What is it?", **constraint_answers.arguments) for constraint_answers in EXACT]
        ).status
        == "PASS"
    )
    assert sound(FORMAT, [item("bullets", "List three facts about tea.", count=3)]).status == "PASS"
    # Another wording asks for no kind that is known, and two forms at once for both.
    assert sound(FORMAT, [item("uppercase", "Shout about tea, in capitals.")]).status == "PASS"
    both = "Write about tea. Use only lowercase letters. Put your whole answer inside double quotation marks."
    assert sound(FORMAT, [item("quoted", both)]).status == "PASS"


def test_two_forms_that_exclude_each_other_are_no_question() -> None:
    either = "Write about tea. Use only lowercase letters. Use only capital letters."
    outcome = sound(FORMAT, [item("lowercase", either)])
    assert outcome.status == "FAIL" and "lowercase and uppercase, and no answer can be both" in outcome.detail


ASKS = {
    "English": ("Write about {}. Use small letters.", "Write about {}. Put it in quotes.", "Write about {}."),
    "French": ("Parle de {} sans majuscules.", "Parle de {} entre guillemets.", "Parle de {}."),
    "Chinese": ("写一句关于{}的话，全用小写。", "写一句关于{}的话，加引号。", "写一句关于{}的话。"),
}


@pytest.mark.parametrize("language", ASKS)
def test_a_prompt_that_asks_for_no_form_is_no_item_of_its_kind(language: str) -> None:
    lower, quoted, neither = ASKS[language]
    topics = ("owls", "bees", "tea", "rain", "chess", "bread", "trains", "clouds")
    sound_items = [
        Item(id=f"{kind}{n}", group=topic, kind=kind, prompt=text.format(topic), constraint={})
        for kind, text in (("lowercase", lower), ("quoted", quoted))
        for n, topic in enumerate(topics)
    ]
    assert sound(FORMAT, sound_items).status == "PASS"
    half = [
        item.model_copy(update={"prompt": neither.format(item.group)}) if place % 2 else item
        for place, item in enumerate(sound_items)
    ]
    outcome = sound(FORMAT, half)
    assert (outcome.status, outcome.figure) == ("FAIL", 8) and "does not ask for lowercase" in outcome.detail


def test_one_unsound_item_closes_the_design_gate(tmp_path: Path) -> None:
    resolved = resolved_spec(tmp_path)
    results = {check.id: check for check in design_results(resolved, heldout_items(), {})}
    assert results["design.items"].status == "PASS"
    odd = (*heldout_items()[1:], item("bullets", "List 3 facts about tea.", count=4))
    result = next(check for check in design_results(resolved, odd, {}) if check.id == "design.items")
    assert (result.status, result.blocking, result.repairable) == ("FAIL", True, False)


def two_kinds(evidence: Evidence) -> Evidence:
    """Return evidence whose second half of the held-out items is of another kind."""
    items = [
        other_item.model_copy(update={"kind": "lowercase" if n < N // 2 else "quoted"})
        for n, other_item in enumerate(heldout_items())
    ]
    return replace(evidence, heldout=tuple(items))


def checked(evidence: Evidence, id: str) -> CheckResult:
    check = next(gate_check for gate_check in CHECKS if gate_check.id == id)
    return apply(check, evidence, measure(evidence))


def halves(first: bool, second: bool) -> list[dict[str, Any]]:
    """Return answers that meet or miss either half: small letters, or double quotation marks."""
    rows = answers([first] * N)
    for row in rows[N // 2 :]:
        row["output"] = '"It is said so."' if second else "It is said so."
    return rows


@pytest.mark.parametrize(("second", "status"), [(False, "FAIL"), (True, "PASS")])
def test_failure_31_a_kind_that_the_ceiling_cannot_do_closes_the_gate(
    tmp_path: Path, second: bool, status: str
) -> None:
    evidence = two_kinds(evidence_of(tmp_path, "base", halves(True, second)))
    assert checked(evidence, "items.ceiling").status == "NOT_APPLICABLE"
    ceiling = with_plan(evidence, EvaluationPlan(gap=Gap(base=("tuned",), ceiling="base")))
    result = checked(ceiling, "items.ceiling")
    assert (result.status, result.threshold) == (status, ">= 0.25")
    assert {row["kind"] for row in result.rows} == ({"quoted"} if status == "FAIL" else set())
    assert (result.repairable, len(result.rows)) == ((False, N // 2) if status == "FAIL" else (True, 0))


def test_the_share_that_a_ceiling_has_to_pass_is_registered(tmp_path: Path) -> None:
    rows = halves(True, False)
    rows[-1]["output"] = '"It is said so."'
    evidence = with_plan(
        two_kinds(evidence_of(tmp_path, "base", rows)), EvaluationPlan(gap=Gap(base=("tuned",), ceiling="base"))
    )
    lines: list[str] = []
    for least in (1 / 6, 0.17):
        spec = evidence.resolved.spec.model_copy(update={"thresholds": Thresholds(ceiling_kind=least)})
        moved = replace(evidence, resolved=evidence.resolved.model_copy(update={"spec": spec}))
        lines.append(checked(moved, "items.ceiling").status)
    assert lines == ["PASS", "FAIL"]


@pytest.mark.parametrize(
    ("before", "after", "status"), [(False, False, "WARN"), (False, True, "PASS"), (True, False, "PASS")]
)
def test_failure_31_items_that_no_arm_answers_are_listed_in_the_packet(
    tmp_path: Path, before: bool, after: bool, status: str
) -> None:
    evidence = two_kinds(evidence_of(tmp_path, "tuned", halves(True, after)))
    assert evidence.baseline_rows is not None
    write_rows(evidence.baseline_rows, halves(False, before))
    result = checked(evidence, "items.answered")
    assert (result.status, result.blocking) == (status, False)
    assert result.figure == (0 if status == "PASS" else N // 2)
    assert result.detail.count("neither arm is right on") == 1
    # The report has the line, the packet the texts.
    assert all(other_item.id in result.detail for other_item in heldout_items()[N // 2 :]) == (status == "WARN")
    packet = build_packet(evidence, measure(evidence), (result,), checks_digest=digest_bytes(b"checks"), claims=())
    listed = [row["heldout"] for row in packet.flagged_rows]
    assert listed == ([other_item.id for other_item in heldout_items()[N // 2 :]] if status == "WARN" else [])
