"""Conversations as held-out items: what stands before a turn of a control, what makes one sound, what may not leak."""

from __future__ import annotations

from pathlib import Path

import pytest

from reviews.checks.definition import CheckOutcome
from reviews.checks.leakage_checks import overlap_of
from reviews.comparison.power_checks import design_kinds, design_power
from reviews.gate.design_checks import DESIGN_CHECKS, DesignEvidence
from reviews.stages.evaluation.item_checks import sound_conversations
from reviews.statistics.mcnemar import mcnemar_power
from specs.session.evaluation_plan import KindRule
from specs.session.thresholds import Thresholds
from specs.stages.base.artifacts import Item
from specs.stages.evaluation.parameters import MultiTurnParameters
from testing.factories.compared_evidence import KINDS, resolved, talks
from testing.factories.evidence_on_disk import prompt_items
from training.items.conversation_items import build
from training.planning.prompt_lengths import prompt_tokens
from training.rules.tasks import conversation
from training.rules.tasks.conversation import answers_to, donors, judge, reveals, turns_of, user_turns_of
from training.rules.tasks.format_instructions import Judgement
from training.rules.tasks.verifier_cases import cases_of


def design(folder: Path, heldout: tuple[Item, ...], *changes: tuple[str, str]) -> dict[str, CheckOutcome]:
    """Return what each design check finds of conversations."""
    spec = resolved(folder, *changes)
    evidence = DesignEvidence(spec, heldout, {"prompts": prompt_items()}, spec.attempt_costs())
    return {check.id: check.run(evidence) for check in DESIGN_CHECKS}


def test_donors_are_other_conversations_of_other_kinds_that_do_not_say_what_is_asked() -> None:
    items = build(40, seed=3)
    results = donors(items, seed=7)
    for place, (item, chosen) in enumerate(zip(items, results, strict=True)):
        assert len(chosen) == len(turns_of(item)) - 1 and len(set(chosen)) == len(chosen)
        for number, whose in enumerate(chosen):
            assert whose != place and items[whose].kind != item.kind
            assert not reveals(item, turns_of(items[whose])[number])
    assert donors(items, seed=7) == results != donors(items, seed=8)
    # Drawn from many: one donor for all would make one history of the control.
    assert len({whose for chosen in results for whose in chosen}) > len(items) / 3


def test_without_another_kind_there_is_no_donor() -> None:
    alone = [item for item in build(5) if item.kind == "memory"]
    with pytest.raises(ValueError, match=r"no other kind has a turn 1 to show instead"):
        donors(alone, 0)
    telling = Item(
        id="t", group="t", kind="update", prompt="Tom, Ada.", constraint={"turn_2": "So?", "form_2": "title"}
    )
    asks = Item(id="a", group="a", kind="memory", prompt="I am Tom.", constraint={"turn_2": "Who?", "require_2": "tom"})
    with pytest.raises(ValueError, match="conversation 'a'"):
        donors([asks, telling], 0)


def test_every_conversation_that_can_be_built_is_met_by_an_answer_made_from_it() -> None:
    for item in build(75):
        assert all(judgement.passed for judgement in judge(item, answers_to(item))), item.id


def test_known_answers_of_conversations_have_both_labels_in_two_lengths() -> None:
    cases = cases_of("conversation")
    assert sum(case.good for case in cases) >= 15 <= sum(not case.good for case in cases)


def test_sound_conversations_pass_the_design(tmp_path: Path) -> None:
    large = ("  minimum_effect: 0.3\n", "  minimum_effect: 0.9\n  expected_lost: 0.01\n")
    outcomes = design(tmp_path, talks(), large)
    assert {id: outcome.status for id, outcome in outcomes.items() if outcome.status not in ("PASS", "WARN")} == {
        "design.answers": "NOT_APPLICABLE",
        "design.alike": "NOT_APPLICABLE",
        "design.brought": "NOT_APPLICABLE",
        "design.drawn": "NOT_APPLICABLE",
        "design.principles": "NOT_APPLICABLE",
        "design.transfer": "NOT_APPLICABLE",
        "design.common_answer": "NOT_APPLICABLE",
        "design.distinct": "NOT_APPLICABLE",
        "design.scaling": "NOT_APPLICABLE",
    }
    assert "40 held-out conversations can be missed" in outcomes["design.items"].detail
    assert "by kind: a gain of 0.9 in a kind is found with probability" in outcomes["design.power"].detail


CONTRADICTORY = {"turn_2": "Name it.", "require_2": "red", "forbid_2": "red"}
UNSOUND = [
    ({"turn_2": "Name {colour} things.", "form_2": "lowercase"}, "holds the unfilled {colour}"),
    (CONTRADICTORY, "refuses an answer that is made to follow it: it holds red"),
    ({"turn_2": "Name it.", "require_2": "one; two; three", "most_words_2": 2}, "refuses an answer"),
    ({"turn_2": "Name it.", "forbid_2": "zzz"}, "accepts whatever is said"),
    ({"turn_2": "Name it.", "form_2": "bullets"}, "cannot be read"),
    ({"turn_3": "Name it.", "form_3": "lowercase"}, "cannot be read"),
]


@pytest.mark.parametrize(("constraint", "fault"), UNSOUND, ids=[case[1][:24] for case in UNSOUND])
def test_a_conversation_that_nothing_or_everything_meets_is_found(
    tmp_path: Path, constraint: dict[str, str | int], fault: str
) -> None:
    bad = talks()[0].model_copy(update={"constraint": constraint})
    outcome = design(tmp_path, (bad, *talks()[1:]))["design.items"]
    assert outcome.status == "FAIL" and outcome.figure == 1.0 and fault in outcome.detail


def test_conversations_as_they_are_built_are_sound() -> None:
    outcome = sound_conversations(build(75))
    assert outcome.status == "PASS", outcome.detail


def test_memory_is_planned_for_a_shuffled_history_as_for_the_whole() -> None:
    planned = {
        history: prompt_tokens(MultiTurnParameters.model_validate({"history": history}), "chat", 40)
        for history in ("whole", "shuffled", "none")
    }
    assert planned["shuffled"] == planned["whole"] > planned["none"]


def test_conversations_that_differ_in_a_later_turn_only_are_two(tmp_path: Path) -> None:
    item = talks()[0]
    other = item.model_copy(update={"id": "other", "constraint": {**item.constraint, "turn_2": "What cat is it?"}})
    assert design(tmp_path / "two", (*talks(), other))["design.unique"].status == "PASS"
    same = item.model_copy(update={"id": "same"})
    assert design(tmp_path / "one", (*talks(), same))["design.unique"].status == "FAIL"


LONG = "Please tell me once more where in the town my old aunt has her bakery."


def test_a_long_later_turn_may_not_be_trained_on_and_a_short_one_may() -> None:
    item = talks()[0].model_copy(update={"constraint": {"turn_2": "And then?", "turn_3": LONG, "require_3": "quay"}})
    assert user_turns_of(item) == ("My cat is called Tom.", "And then?", LONG)
    outcome = overlap_of([("t", f"User: And then?\nUser: {LONG}")], (item,), Thresholds())
    assert outcome.status == "FAIL" and outcome.rows[0]["how"] == "contained"
    assert overlap_of([("t", "And then?")], (item,), Thresholds()).status == "PASS"
    assert overlap_of([("t", "My cat is called Tom.")], (item,), Thresholds()).status == "FAIL"


RULES = [
    (KindRule(primary="memory"), "PASS", "(memory, 10 items)"),
    (KindRule(primary="Memory".lower(), risen=4), "PASS", "(update, 10 items)"),
    (KindRule(risen=5), "FAIL", "risen asks for 5 kinds, there are 4"),
    (KindRule(kept=5, margin=0.5), "FAIL", "kept asks for 5 kinds, there are 4"),
    (KindRule(primary="recall"), "FAIL", "no held-out item is of the primary kind 'recall'"),
    (KindRule(kept=1, margin=0.2), "FAIL", "with a margin of 0.2 only 0 kinds can be shown not to fall"),
    (KindRule(kept=4, margin=0.24), "PASS", "begins at -0.231 or above"),
]


@pytest.mark.parametrize(("rule", "status", "output"), RULES, ids=[f"{case[1]} {case[2][:16]}" for case in RULES])
def test_a_rule_that_cannot_be_met_is_refused_before_anything_is_paid(
    tmp_path: Path, rule: KindRule, status: str, output: str
) -> None:
    analysis = resolved(tmp_path).spec.analysis.model_copy(
        update={"kinds": rule, "minimum_effect": 0.9, "expected_lost": 0.0}
    )
    outcome = design_kinds(analysis, talks())
    assert (outcome.status, output in outcome.detail) == (status, True), outcome.detail


def test_the_power_of_a_kind_is_that_of_its_own_items_and_the_least_alpha(tmp_path: Path) -> None:
    analysis = resolved(tmp_path).spec.analysis.model_copy(update={"kinds": KindRule(primary="memory")})
    outcome = design_kinds(analysis, talks())
    power = mcnemar_power(10, 0.35, 0.05, 0.05 / len(KINDS))
    assert outcome.status == "FAIL" and f"{power:.3f} (memory, 10 items)" in outcome.detail
    assert outcome.figure != design_power(analysis).figure


def test_the_design_gate_asks_the_rule_and_the_judge_of_conversations(tmp_path: Path) -> None:
    outcomes = design(tmp_path, talks(), ("kept: 3, margin: 0.3", "kept: 3, margin: 0.1"))
    assert outcomes["design.power"].status == "FAIL" and "by kind" in outcomes["design.power"].detail
    assert "can be shown not to fall" in outcomes["design.power"].detail


def test_a_judge_of_conversations_that_is_wrong_is_found_before_anything_is_paid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert design(tmp_path, talks())["design.scorer"].status == "PASS"

    def by_length(_: Item, output: str) -> Judgement:
        return Judgement(len(output) < 60)

    monkeypatch.setattr(conversation, "verify", by_length)
    outcome = design(tmp_path, talks())["design.scorer"]
    assert outcome.status == "FAIL" and "'conversation' misjudges" in outcome.detail
