"""Paired tests registered next to the analysis: the test of the outcome, its power, and what closes a gate."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from reviews.comparison.paired_checks import design_of
from reviews.comparison.paired_tests import carried_out, is_shown, outcomes, power_of
from reviews.evidence.evidence import ArmEvidence, Evidence
from specs.session.evaluation_plan import EvaluationPlan, PairedTest
from specs.trail.verdict import CheckResult
from testing.factories.evaluation_evidence import (
    choice_rows,
    choose_evidence,
    conversation_rows,
    converse_evidence,
    perplexity_evidence,
    perplexity_rows,
    row,
)
from testing.factories.evidence_on_disk import N, answers, evidence_of, resolved_spec, write_rows
from testing.factories.flaws_evaluation import with_plan
from testing.factories.judged_evidence import results_of
from testing.factories.spec_files import list_problems, write_spec


def registered(**arguments: Any) -> PairedTest:
    values: dict[str, Any] = {"before": "base", "after": "tuned", "outcome": "binary", "test": "exact_mcnemar"}
    return PairedTest.model_validate(values | {"minimum_effect": 0.2} | arguments)


def compared(evidence: Evidence, before: list[Any], folder: Path, *tests: dict[str, Any]) -> CheckResult:
    """Return the check on an attempt that is held against rows of a stage named base."""
    plan = EvaluationPlan(paired=tuple(registered(after=evidence.stage.name, **test) for test in tests))
    rows = write_rows(folder / "earlier.jsonl", [row(item) if not isinstance(item, dict) else item for item in before])
    arm = ArmEvidence(rows, evidence.manifest, evidence.parameters)
    return results_of(replace(with_plan(evidence, plan), arms={"base": arm}))["paired.registered"]


CONTINUOUS = {"outcome": "continuous", "test": "paired_t", "minimum_effect": 0.5}


def test_the_test_of_each_outcome_and_its_figures() -> None:
    binary = carried_out(registered(), [0.0] * 8 + [1.0] * 2, [1.0] * 7 + [0.0] + [1.0, 0.0])
    # 7 gained, 1 lost: 2 * 9 / 256.
    assert (binary.n, binary.effect, binary.p) == (10, pytest.approx(0.6), pytest.approx(18 / 256))
    assert "7 gained, 1 lost of 10" in binary.description and "h = " in binary.description
    # R: t.test and wilcox.test of the sleep data.
    before = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    after = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    by_t = carried_out(registered(**CONTINUOUS), before, after)
    assert (by_t.p, by_t.effect) == pytest.approx((0.00283289019738, 1.28455756259), rel=1e-9)
    by_rank = carried_out(registered(outcome="continuous", test="wilcoxon"), before, after)
    assert (by_rank.p, by_rank.effect) == pytest.approx((0.00909069801593, by_t.effect), rel=1e-9)
    ordinal = carried_out(
        registered(outcome="ordinal", test="sign"), [0.0, 1, 2, 3, 1, 1, 0, 2], [9.0, 2, 3, 3, 2, 2, 1, 1]
    )
    # 6 rose, 1 fell: 2 * 8 / 128.
    assert (ordinal.effect, ordinal.p) == (pytest.approx(5 / 8), pytest.approx(16 / 128))
    assert "6 rose, 1 fell, 1 stayed of 8" in ordinal.description and "Bowker" in ordinal.description


def test_a_test_has_to_fit_its_outcome() -> None:
    for bad in (
        {"test": "paired_t"},
        {"outcome": "continuous"},
        {"outcome": "ordinal", "test": "wilcoxon"},
        {"alpha": 0.9},
        {"minimum_effect": 0.95},
    ):
        with pytest.raises(ValidationError, match=r"not a test|less than or equal to 0.1|exceed all items"):
            registered(**bad)


def test_a_gain_is_shown_only_when_it_is_certain_and_as_large_as_registered() -> None:
    strong = carried_out(registered(), [0.0] * 10, [1.0] * 10)
    assert is_shown(strong, strong.p) and not is_shown(strong, 0.05)
    turned = carried_out(registered(), [1.0] * 10, [0.0] * 10)
    assert turned.p == strong.p and not is_shown(turned, turned.p)
    small = carried_out(registered(minimum_effect=0.5), [0.0] * 20, [1.0] * 9 + [0.0] * 11)
    assert small.p < 0.05 and not is_shown(small, small.p)


def test_power_is_that_of_the_registered_test() -> None:
    # R: power.t.test(n = 20, delta = 0.5, sd = 1, type = "paired", strict = TRUE); 34 pairs reach 0.8.
    power = power_of(registered(**CONTINUOUS), 20)
    assert power.power == pytest.approx(0.564504418439, abs=1e-9) and not power.enough
    assert "34 items would do" in power.description
    assert power_of(registered(**CONTINUOUS), 34).enough
    # 34 items are worth 32 to Wilcoxon's test.
    assert not power_of(registered(**CONTINUOUS | {"test": "wilcoxon"}), 34).enough
    # R: the exact power with 60 items, 0.25 gained, 0.05 lost; 61 reach 0.8.
    exact = power_of(registered(), 60)
    assert exact.power == pytest.approx(0.797295708899, abs=1e-9) and "61 items would do" in exact.description
    assert power_of(registered(), 61).enough and not power_of(registered(), 61, together=2).enough
    assert power_of(registered(outcome="ordinal", test="sign"), 60).power == exact.power


def test_perplexity_is_compared_by_nats_per_byte_and_less_is_better(tmp_path: Path) -> None:
    evidence = perplexity_evidence(tmp_path)
    worse = [
        perplexity_row.model_copy(update={"nats": perplexity_row.nats + 0.3 * perplexity_row.bytes + n})
        for n, perplexity_row in enumerate(perplexity_rows())
    ]
    better = compared(evidence, worse, tmp_path, CONTINUOUS | {"alpha": 0.1, "decides": True})
    assert better.status == "PASS" and ": shown" in better.detail, better.detail
    assert outcomes(evidence, evidence.outputs["rows"], "continuous")[0] == pytest.approx(-12 / 16)
    now = [
        perplexity_row.model_copy(update={"nats": perplexity_row.nats * 0.5}) for perplexity_row in perplexity_rows()
    ]
    fell = compared(evidence, now, tmp_path, CONTINUOUS | {"alpha": 0.1})
    assert fell.status == "WARN" and "it fell" in fell.detail, fell.detail


def test_conversations_are_compared_by_turns_and_choices_by_how_much_likelier(tmp_path: Path) -> None:
    talk = converse_evidence(tmp_path)
    bad = conversation_rows(("No.", "Hello.", "No.", "One two three four five six seven eight nine ten."), times=8)
    ordinal = {"outcome": "ordinal", "test": "sign", "decides": True}
    assert compared(talk, bad, tmp_path, ordinal).status == "PASS"
    same = compared(talk, conversation_rows(times=8), tmp_path, ordinal)
    assert same.status == "FAIL" and "0 rose, 0 fell" in same.detail
    choose = choose_evidence(
        tmp_path / "multiple_choice", choice_rows([(1.0, 30.0), (40.0, 1.0), (3.0, 20.0), (20.0, 1.0)])
    )
    # By byte: 3 - 1; the right one is the second: 40 - 0.1; 2 - 3; 20 - 0.1.
    results = outcomes(choose, choose.outputs["rows"], "continuous")
    assert results == pytest.approx([2.0, 39.9, -1.0, 19.9])
    assert outcomes(choose, choose.outputs["rows"], "binary") == [1.0, 1.0, 0.0, 1.0]


def test_only_a_test_that_decides_closes_the_gate_and_all_are_adjusted_together(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "tuned", answers([True] * N))
    before = answers([False] * 6 + [True] * (N - 6))
    # 6 gained of 6: p = 1/32. Alone below 0.05; next to a test that shows nothing it is 1/16.
    alone = compared(evidence, before, tmp_path, {"decides": True})
    assert alone.status == "PASS" and "adjusted p = 0.0312" in alone.detail
    plan = EvaluationPlan(paired=(registered(decides=True), registered(before="other", minimum_effect=0.1)))
    base = ArmEvidence(tmp_path / "earlier.jsonl", evidence.manifest, evidence.parameters)
    other = base._replace(rows=write_rows(tmp_path / "same.jsonl", answers([True] * N)))
    both = results_of(replace(with_plan(evidence, plan), arms={"base": base, "other": other}))["paired.registered"]
    assert both.status == "FAIL" and "adjusted p = 0.0625" in both.detail
    assert compared(evidence, answers([True] * N), tmp_path, {}).status == "PASS"
    assert compared(evidence, answers([True] * N), tmp_path, {"decides": True}).status == "FAIL"


def test_arms_that_were_measured_otherwise_block(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "tuned")
    plan = EvaluationPlan(paired=(registered(),))
    assert results_of(with_plan(evidence, plan))["paired.registered"].status == "BLOCKED"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{before: base, after: tuned, outcome: ordinal, test: sign, minimum_effect: 0.2}", "no ordinal outcome"),
        ("{before: tuned, after: base, outcome: binary, test: exact_mcnemar, minimum_effect: 0.2}", "does not come"),
        (
            "{before: bass, after: tuned, outcome: binary, test: exact_mcnemar, minimum_effect: 0.2}",
            "unknown stage 'bass'",
        ),
        ("{before: base, after: tuned, outcome: binary, test: sign, minimum_effect: 0.2}", "not a test of a binary"),
    ],
)
def test_what_cannot_be_compared_is_reported_with_its_place(tmp_path: Path, section: str, message: str) -> None:
    problems = list_problems(write_spec(tmp_path, ("stages:\n", f"evaluation:\n  paired: [{section}]\nstages:\n")))
    assert any(message in problem and "evaluation.paired" in problem for problem in problems), problems


def test_a_registered_test_is_part_of_the_registration_and_of_the_design_gate(tmp_path: Path) -> None:
    test = "{before: base, after: tuned, outcome: binary, test: exact_mcnemar, minimum_effect: 0.8, decides: true}"
    plan = ("stages:\n", f"evaluation:\n  paired: [{test}]\nstages:\n")
    resolved = resolved_spec(tmp_path, plan)
    other = resolved_spec(tmp_path, (plan[0], plan[1].replace("0.8", "0.3")))
    none = resolved_spec(tmp_path)
    assert len({spec.registration() for spec in (resolved, other, none)}) == 3
    assert design_of(resolved.spec, N, {}).status == "PASS"
    assert design_of(other.spec, N, {}).status == "FAIL"
    assert design_of(none.spec, N, {}).detail == "no paired test is registered next to the analysis"
    gentle = other.spec.model_copy(update={"evaluation": EvaluationPlan(paired=(registered(minimum_effect=0.3),))})
    assert design_of(gentle, N, {}).status == "WARN"


def test_the_effect_of_scores_without_spread_is_reported_and_not_a_number_is_refused() -> None:
    same = carried_out(registered(**CONTINUOUS), [1.0, 2.0], [1.0, 2.0])
    assert (same.effect, same.p) == (0.0, 1.0)
    with pytest.raises(ValueError, match="finite"):
        carried_out(registered(**CONTINUOUS), [1.0, math.nan], [1.0, 2.0])
