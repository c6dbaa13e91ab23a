"""Conversations as the registered comparison: its test, its kinds, its controls, against other implementations."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

from reviews.evidence.evidence import Evidence
from reviews.gate.check_list import run_checks
from reviews.gate.decide import decide
from reviews.gate.measurer import measure
from reviews.gate.packet import criteria_results
from specs.stages.base.metric import MetricSet
from specs.system.digests import digest_bytes
from specs.system.errors import EvidenceMissing
from specs.trail.verdict import CheckResult, Decision, Verdict
from testing.factories.compared_evidence import EACH, KINDS, all_of, compared, first, rows_of, talks
from testing.factories.evidence_on_disk import with_manifest, write_rows

Flaw = Callable[[Evidence], Evidence]
NOTHING = all_of(False)
GAIN = all_of(True, update=first(8), continuity=first(9))
"""The treatment of most tests, against a baseline that passes nothing."""


def judged(evidence: Evidence) -> tuple[MetricSet | None, dict[str, CheckResult]]:
    metrics: MetricSet | None
    try:
        metrics = measure(evidence)
    except EvidenceMissing:
        metrics = None
    return metrics, {check.id: check for check in run_checks(evidence, metrics)}


def decided(evidence: Evidence) -> Decision:
    metrics, checks = judged(evidence)
    criteria = criteria_results(evidence.resolved, evidence.stage, metrics)
    verdict = Verdict(
        reviewer="checklist",
        recommendation="go on",
        reasoning="nothing",
        risks=(),
        approve=True,
        findings=(),
        not_judged=(),
    )
    return decide(
        stage="tuned",
        attempt=1,
        checks=tuple(checks.values()),
        criteria=criteria,
        verdict=verdict,
        packet_digest=digest_bytes(b"packet"),
        resolvable=lambda _: True,
        allowed_ranges={},
        current=evidence.parameters,
        attempts_left=1,
    )


def values(evidence: Evidence) -> dict[str, float]:
    return {id: metric.value for id, metric in measure(evidence).metrics.items()}


def test_healthy_conversations_pass_every_check_and_are_accepted(tmp_path: Path) -> None:
    evidence = compared(tmp_path, NOTHING, GAIN)
    _, checks = judged(evidence)
    assert {id: check.detail for id, check in checks.items() if check.status not in ("PASS", "NOT_APPLICABLE")} == {
        "scorer.length": checks["scorer.length"].detail
    }
    decision = decided(evidence)
    assert (decision.outcome, decision.required_changes) == ("approve", ())
    assert "kinds_kept >= 3" in decision.reasons[0] and "control_excess_p < 0.05" in decision.reasons[0]


MIXED_BEFORE = {
    "memory": first(2),
    "preference": first(6),
    "continuity": [False, True] * 5,
    "update": [number % 3 == 0 for number in range(EACH)],
}
MIXED_AFTER = {
    "memory": first(9),
    "preference": first(3),
    "continuity": [True, True, False, False, True] * 2,
    "update": [number % 4 != 1 for number in range(EACH)],
}


def tables(before: Any, after: Any) -> dict[str, np.ndarray]:
    """Return each kind's table: before in the rows, after in the columns, fails first."""
    arrays = {kind: np.zeros((2, 2), int) for kind in KINDS}
    for kind in KINDS:
        for was, now in zip(before[kind], after[kind], strict=True):
            arrays[kind][int(was), int(now)] += 1
    return arrays


def p_of(table: np.ndarray) -> float:
    """Return the exact p-value of statsmodels."""
    result: Any = mcnemar(table, exact=True)
    return float(result.pvalue)


def bonett_price(table: np.ndarray) -> tuple[float, float]:
    """Return the adjusted Wald interval, written down from the paper anew."""
    n = table.sum() + 2
    p12, p21 = (table[0, 1] + 1) / n, (table[1, 0] + 1) / n
    half = 1.959963984540054 * np.sqrt((p12 + p21 - (p12 - p21) ** 2) / n)
    return p12 - p21 - half, p12 - p21 + half


def test_the_comparison_is_that_of_statsmodels_for_the_whole_and_for_each_kind(tmp_path: Path) -> None:
    by_kind = tables(MIXED_BEFORE, MIXED_AFTER)
    whole = sum(by_kind.values())
    assert isinstance(whole, np.ndarray)
    rule = ("kinds: {primary: memory, kept: 3, margin: 0.3, false_discovery: 0.1}",)
    evidence = compared(
        tmp_path, MIXED_BEFORE, MIXED_AFTER, (rule[0], "kinds: {primary: memory, risen: 1, kept: 2, margin: 0.3}")
    )
    metrics = measure(evidence).metrics
    expected = p_of(whole)
    assert metrics["mcnemar_p"].value == pytest.approx(expected, rel=1e-12)
    assert (metrics["gained"].value, metrics["lost"].value) == (whole[0, 1], whole[1, 0])
    assert metrics["accuracy_gain"].value == pytest.approx((whole[0, 1] - whole[1, 0]) / whole.sum())
    assert metrics["accuracy_gain"].interval == pytest.approx(bonett_price(whole))
    assert metrics["conversation_pass_rate"].value == pytest.approx(whole[:, 1].sum() / whole.sum())

    p_values = [p_of(by_kind[kind]) for kind in KINDS]
    adjusted: Any = multipletests(p_values, method="fdr_bh")[1]
    gains = [(by_kind[kind][0, 1] - by_kind[kind][1, 0]) / EACH for kind in KINDS]
    assert metrics["primary_kind_p"].value == pytest.approx(adjusted[0], rel=1e-12)
    assert metrics["primary_kind_p"].value > p_values[0]  # Adjusted, or four tests would count as one.
    assert metrics["primary_kind_gain"].value == pytest.approx(gains[0])
    assert metrics["primary_kind_gain"].interval == pytest.approx(bonett_price(by_kind["memory"]))
    assert metrics["kinds_risen"].value == sum(p < 0.05 and gain > 0 for p, gain in zip(adjusted, gains, strict=True))
    selected = [kind for kind in KINDS if bonett_price(by_kind[kind])[0] > -0.3]
    assert metrics["kinds_kept"].value == len(selected) and "preference" not in selected
    assert metrics["kinds_kept"].n == 4


def test_the_excess_over_a_control_is_tested_by_its_sign_and_has_a_resampled_interval(tmp_path: Path) -> None:
    before, after = all_of(False, memory=first(3)), all_of(True, update=first(4))
    control = all_of(False, memory=first(3)), all_of(False, memory=first(8), preference=first(5))
    metrics = measure(compared(tmp_path, before, after, control=control)).metrics

    def changes(item: Any, other: Any) -> list[int]:
        return [int(other[kind][n]) - int(item[kind][n]) for n in range(EACH) for kind in KINDS]

    excess = np.array(changes(before, after)) - np.array(changes(*control))
    assert metrics["control_excess"].value == pytest.approx(excess.mean())
    rose, fell = int((excess > 0).sum()), int((excess < 0).sum())
    assert metrics["control_excess_p"].value == pytest.approx(binomtest(rose, rose + fell, 0.5).pvalue, rel=1e-12)
    drawn = np.random.default_rng(5).choice(excess, (20000, len(excess))).mean(axis=1)
    low, high = metrics["control_excess"].interval or (0.0, 0.0)
    assert (low, high) == pytest.approx(tuple(np.quantile(drawn, (0.025, 0.975))), abs=0.03)


def test_the_worst_of_several_controls_counts(tmp_path: Path) -> None:
    evidence = compared(tmp_path, NOTHING, GAIN)
    weak = write_rows(tmp_path / "weak.jsonl", rows_of(all_of(True)))
    analysis = evidence.resolved.spec.analysis
    two = analysis.model_copy(
        update={"controls": (*analysis.controls, analysis.controls[0].model_copy(update={"after": "other"}))}
    )
    arms = {**evidence.arms, "other": evidence.arms["tuned_shuffled"]._replace(rows=weak)}
    spec = evidence.resolved.spec.model_copy(update={"analysis": two})
    both = replace(evidence, arms=arms, resolved=evidence.resolved.model_copy(update={"spec": spec}))
    row, other = values(evidence), values(both)
    assert row["control_excess"] > 0.9 and other["control_excess"] < 0
    assert row["control_excess_p"] < 1e-9 and other["control_excess_p"] > 0.2


def test_an_arm_that_wins_only_under_shuffled_history_is_no_result(tmp_path: Path) -> None:
    wins = all_of(False), all_of(True)
    decision = decided(compared(tmp_path / "only", NOTHING, NOTHING, control=wins))
    assert (
        decision.outcome == "null" and "no significant difference: mcnemar_p < 0.05 is not met" in decision.reasons[0]
    )
    # The gain is there, and as large without memory: the test alone would have accepted it.
    evidence = compared(tmp_path / "also", NOTHING, GAIN, control=wins)
    assert values(evidence)["mcnemar_p"] < 1e-6
    decision = decided(evidence)
    assert decision.outcome == "null"
    assert [reason.split(": ")[1] for reason in decision.reasons] == [
        "control_excess_p < 0.05 is not met",
        "control_excess > 0 is not met",
    ]
    _, checks = judged(evidence)
    assert checks["controls.excess"].status == "WARN"
    assert "this does not show that the gain comes from memory" in checks["controls.excess"].detail
    without = decided(compared(tmp_path / "unasked", NOTHING, GAIN, control=wins, flag=False))
    assert without.outcome == "approve"


def test_a_kind_that_falls_closes_on_the_rule_and_one_that_may_is_let_go(tmp_path: Path) -> None:
    before = all_of(False, preference=[True] * EACH)
    after = all_of(True, preference=[False] * EACH)
    control = before, before
    three = compared(tmp_path / "three", before, after, control=control)
    assert values(three)["kinds_kept"] == 3.0 and decided(three).outcome == "approve"
    four = ("kept: 3", "kept: 4")
    decision = decided(compared(tmp_path / "four", before, after, four, control=control))
    assert decision.outcome == "null" and decision.reasons == (
        "the difference is not the registered one: kinds_kept >= 4 is not met: 3",
    )


def test_a_fall_that_is_only_not_shown_is_not_kept(tmp_path: Path) -> None:
    before, after = all_of(False, update=first(5)), all_of(True, update=first(2))
    metrics = measure(compared(tmp_path, before, after)).metrics
    # Three of ten lost: far from significant, and no evidence that it did not fall.
    assert p_of(tables(before, after)["update"]) > 0.2
    assert metrics["kinds_lost"].value == 0 and metrics["kinds_kept"].value == 3


def test_the_primary_kind_has_to_rise_whatever_the_others_do(tmp_path: Path) -> None:
    after = all_of(True, memory=first(1))
    decision = decided(compared(tmp_path / "stays", NOTHING, after))
    assert decision.outcome == "null" and len(decision.reasons) == 1
    assert decision.reasons[0].startswith("the difference is not the registered one: primary_kind_p < 0.1 is not met")
    # A kind that fell as clearly is as far from a gain, whatever its p.
    fell = all_of(False, memory=[True] * EACH), all_of(True, memory=[False] * EACH)
    decision = decided(compared(tmp_path / "falls", *fell, ("margin: 0.3", "margin: 0.5"), control=(fell[0], fell[0])))
    assert [reason.split(": ")[1] for reason in decision.reasons] == ["primary_kind_gain > 0 is not met"]


def test_how_many_kinds_have_to_rise_is_registered(tmp_path: Path) -> None:
    after = all_of(False, memory=[True] * EACH, preference=[True] * EACH)
    for number, outcome in ((2, "approve"), (3, "null")):
        rule = ("kinds: {primary: memory, kept: 3, margin: 0.3", f"kinds: {{risen: {number}")
        decision = decided(compared(tmp_path / str(number), NOTHING, after, rule))
        assert decision.outcome == outcome
    assert decision.reasons == ("the difference is not the registered one: kinds_risen >= 3 is not met: 2",)
    # One that fell as clearly has not risen.
    before = all_of(False, update=[True] * EACH)
    assert values(compared(tmp_path / "fell", before, after))["kinds_risen"] == 2.0


def test_one_kind_that_carries_everything_is_found_as_with_items(tmp_path: Path) -> None:
    after = all_of(False, memory=[True] * EACH)
    rule = ("  minimum_effect: 0.3\n", "  minimum_effect: 0.2\n")
    _, checks = judged(compared(tmp_path, NOTHING, after, rule))
    assert checks["strata.sensitivity"].status == "WARN"
    assert "without 'memory' a gain of +0.000 remains on 30 items" in checks["strata.sensitivity"].detail
    _, checks = judged(compared(tmp_path / "lost", all_of(False, update=[True] * EACH), all_of(True, update=first(0))))
    assert checks["strata.kinds"].status == "WARN" and "1 lost significantly" in checks["strata.kinds"].detail


def _without_control(evidence: Evidence) -> Evidence:
    return replace(evidence, arms={"base_shuffled": evidence.arms["base_shuffled"]})


def _other_control(name: str, **changes: Any) -> Flaw:
    def flaw(evidence: Evidence) -> Evidence:
        arm = evidence.arms[name]
        assert arm.manifest is not None
        arguments = {"parameters": arm.parameters | {"max_new_tokens": 9}} if not changes else {}
        manifest = arm.manifest.model_copy(update=changes)
        return replace(evidence, arms=evidence.arms | {name: arm._replace(manifest=manifest, **arguments)})

    return flaw


ALIKE: list[tuple[str, Flaw, str]] = [
    ("other weights", _other_control("tuned_shuffled", inputs={"items": "x"}), "weights"),
    ("the base on both sides", _other_control("base_shuffled", code=digest_bytes(b"other code")), "code"),
    ("other limits", _other_control("tuned_shuffled"), "parameters"),
    ("other threads", _other_control("base_shuffled", threads=9), "threads"),
]


@pytest.mark.parametrize(("flaw", "named"), [case[1:] for case in ALIKE], ids=[case[0] for case in ALIKE])
def test_a_control_that_differs_in_more_than_history_closes_the_gate(tmp_path: Path, flaw: Flaw, named: str) -> None:
    _, checks = judged(flaw(compared(tmp_path, NOTHING, GAIN)))
    assert checks["controls.alike"].status == "FAIL" and named in checks["controls.alike"].detail


def test_a_control_that_never_ended_is_missing_evidence(tmp_path: Path) -> None:
    metrics, checks = judged(_without_control(compared(tmp_path, NOTHING, GAIN)))
    assert metrics is None and checks["controls.alike"].status == "BLOCKED" == checks["power.test"].status
    assert decided(_without_control(compared(tmp_path / "again", NOTHING, GAIN))).outcome == "escalate"


def _rows(evidence: Evidence, rows: Sequence[Any]) -> Evidence:
    write_rows(evidence.outputs["rows"], list(rows))
    return evidence


ARM_FLAWS: list[tuple[str, Flaw, str, str]] = [
    ("fewer turns", lambda evidence: _rows(evidence, [row | {"turns": row["turns"][:1]} for row in rows_of(GAIN)]),
     "power.n",
     "BLOCKED"),
    ("a conversation left out", lambda evidence: _rows(evidence, rows_of(GAIN)[1:]), "power.test", "BLOCKED"),
    ("other settings", lambda evidence: with_manifest(evidence, effective={"max_new_tokens": 9}), "parity.settings",
     "FAIL"),
    ("the same weights", lambda evidence: replace(evidence, baseline_manifest=evidence.manifest), "parity.models",
     "FAIL"),
    ("cut off", lambda evidence: _rows(evidence, rows_of(GAIN, cut=[item.id for item in talks()])),
     "health.truncation", "FAIL"),
    ("mute", lambda evidence: _rows(evidence, [
        row | {"turns": [turn | {"output": " "} for turn in row["turns"]]} for row in rows_of(GAIN)]), "health.empty",
     "FAIL"),
    ("collapsed", lambda evidence: _rows(evidence, [
        row | {"turns": [turn | {"output": "Yes."} for turn in row["turns"]]} for row in rows_of(GAIN)]),
     "health.collapse", "FAIL"),
    ("longer answers", lambda evidence: _rows(evidence, rows_of(GAIN, longer=20)), "scorer.length", "WARN"),
    ("a kind no one passes", lambda evidence: _rows(evidence, rows_of(all_of(True, memory=first(0)))),
     "items.answered", "WARN"),
    ("counted too often", lambda evidence: replace(evidence, evaluations_of_heldout=9), "registration.evaluations",
     "WARN"),
]  # fmt: skip


@pytest.mark.parametrize(("flaw", "check", "status"), [case[1:] for case in ARM_FLAWS], ids=[c[0] for c in ARM_FLAWS])
def test_arms_that_hold_conversations_are_asked_what_other_arms_are(
    tmp_path: Path, flaw: Flaw, check: str, status: str
) -> None:
    _, checks = judged(flaw(compared(tmp_path, NOTHING, GAIN)))
    assert checks[check].status == status, checks[check].detail


def test_a_gain_that_lives_on_cut_off_answers_is_found(tmp_path: Path) -> None:
    evidence = compared(tmp_path, NOTHING, GAIN)
    assert evidence.baseline_rows is not None
    failed = [item.id for item in talks()][4:]
    write_rows(evidence.baseline_rows, rows_of(NOTHING, cut=failed))
    _, checks = judged(evidence)
    assert checks["parity.truncation"].status == "FAIL" and "on the 4 whole pairs" in checks["parity.truncation"].detail


def test_a_baseline_that_passes_everything_leaves_no_room(tmp_path: Path) -> None:
    evidence = compared(tmp_path, NOTHING, all_of(True))
    base = replace(evidence, stage=evidence.resolved.spec.stage("base"))
    _, checks = judged(base)
    assert checks["power.headroom"].status == "FAIL" and checks["power.n"].status == "PASS"
    assert checks["controls.alike"].status == "NOT_APPLICABLE"
    assert "mcnemar_p" not in values(base)


def test_rows_of_the_file_hold_what_was_said(tmp_path: Path) -> None:
    rows = [json.loads(line) for line in compared(tmp_path, NOTHING, GAIN).outputs["rows"].read_text().splitlines()]
    assert len(rows) == 4 * EACH and rows[0]["turns"][1]["output"] == "Tom."
