"""Further arms at the treatment's gate: their table against statsmodels, what they decide, and what closes the gate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from reviews.audit.metric_lines import parts_of
from reviews.comparison.power_checks import design_power
from reviews.evidence.evidence import Evidence
from reviews.gate.check_list import run_checks
from reviews.gate.measurer import measure
from reviews.gate.packet import criteria_results
from specs.stages.base.metric import MetricSet
from specs.system.digests import digest_file
from specs.system.errors import EvidenceMissing
from specs.trail.verdict import CheckResult
from testing.factories.evidence_on_disk import N, answers, evidence_of, write_rows
from testing.factories.more_arms import with_arm

NONE, ALL = [False] * N, [True] * N


def first(count: int) -> list[bool]:
    return [number < count for number in range(N)]


def tuned(folder: Path, right: list[bool] = ALL) -> Evidence:
    return evidence_of(folder, "tuned", answers(right))


def judged(evidence: Evidence) -> tuple[MetricSet | None, dict[str, CheckResult]]:
    metrics: MetricSet | None
    try:
        metrics = measure(evidence)
    except EvidenceMissing:
        metrics = None
    return metrics, {check.id: check for check in run_checks(evidence, metrics)}


def unmet(evidence: Evidence) -> list[str]:
    """Return the parts of the hypothesis that do not hold; a criterion without a value is marked."""
    criteria = criteria_results(evidence.resolved, evidence.stage, judged(evidence)[0])
    return [
        f"{criterion.criterion}{' ?' if criterion.value is None else ''}" for criterion in criteria if not criterion.met
    ]


def p_of(before: list[bool], after: list[bool]) -> float:
    """Return the exact p-value of statsmodels."""
    table = np.zeros((2, 2), int)
    for was, now in zip(before, after, strict=True):
        table[int(was), int(now)] += 1
    result: Any = mcnemar(table, exact=True)
    return float(result.pvalue)


def test_the_table_is_that_of_statsmodels_over_all_comparisons(tmp_path: Path) -> None:
    treatment = [number != 3 for number in range(N)]
    arms = {"own drafts": first(5), "fewer pairs": [number % 3 == 0 for number in range(N)], "no change": NONE}
    evidence = tuned(tmp_path, treatment)
    for name, passed in arms.items():
        evidence = with_arm(evidence, passed, name, beaten=name != "no change")
    metrics, checks = judged(evidence)
    rows = checks["arms.compared"].rows
    gains = [p_of(NONE, passed) for passed in (treatment, *arms.values())]
    leads = [p_of(passed, treatment) for passed in arms.values()]
    adjusted: Any = multipletests([*gains, *leads], method="holm")[1]
    assert [row["gain_p_adjusted"] for row in rows[1:]] == pytest.approx(list(adjusted[:4]), rel=1e-12)
    assert [row["lead_p_adjusted"] for row in rows[2:]] == pytest.approx(list(adjusted[4:]), rel=1e-12)
    assert [row["name"] for row in rows] == ["baseline", "treatment", *arms]
    for row, passed in zip(rows, (NONE, treatment, *arms.values()), strict=True):
        interval: Any = proportion_confint(sum(passed), N, method="wilson")
        assert (row["accuracy"], row["low"], row["high"]) == pytest.approx((sum(passed) / N, *interval))
    # The least lead, and the largest p, of the two arms that must be beaten; the third is reported only.
    assert metrics is not None
    assert metrics.metrics["arms_lead"].value == pytest.approx(min(11 - sum(first(5)), 11 - 4) / N)
    assert metrics.metrics["arms_p"].value == pytest.approx(max(adjusted[4:6]), rel=1e-12)
    assert metrics.rows["own_drafts"] == digest_file(evidence.arms["own_drafts"].rows or tmp_path)


def test_an_arm_that_is_beaten_leaves_the_gate_open(tmp_path: Path) -> None:
    evidence = with_arm(tuned(tmp_path), first(2))
    _, checks = judged(evidence)
    assert (checks["arms.alike"].status, checks["arms.compared"].status) == ("PASS", "PASS")
    assert checks["arms.compared"].rows[2]["beaten"] is True
    assert unmet(evidence) == []


def test_an_arm_that_is_not_beaten_is_an_unmet_hypothesis(tmp_path: Path) -> None:
    evidence = with_arm(tuned(tmp_path), first(8))
    _, checks = judged(evidence)
    assert checks["arms.compared"].status == "WARN" and not checks["arms.compared"].closes
    assert checks["arms.compared"].detail.startswith("not shown to be better than 'own drafts': 'own drafts' 8/12")
    assert unmet(evidence) == ["arms_p < 0.05"]


def test_the_adjustment_can_decide(tmp_path: Path) -> None:
    # Seven ahead and none behind: p = 1/64, the second of three, so 1/32; with another arm 1/16.
    single = with_arm(tuned(tmp_path), first(5))
    assert unmet(single) == []
    assert unmet(with_arm(single, first(7), "fewer pairs", beaten=False)) == ["arms_p < 0.05"]


def test_a_treatment_that_is_worse_than_an_arm_does_not_beat_it_however_small_p(tmp_path: Path) -> None:
    evidence = with_arm(tuned(tmp_path, NONE), ALL)
    assert {"arms_lead > 0"} <= set(unmet(evidence)) and "arms_p < 0.05" not in unmet(evidence)
    assert judged(evidence)[1]["arms.compared"].rows[2]["beaten"] is False


def test_an_arm_that_is_only_reported_decides_nothing(tmp_path: Path) -> None:
    evidence = with_arm(tuned(tmp_path), ALL, beaten=False)
    metrics, checks = judged(evidence)
    assert metrics is not None and "arms_p" not in metrics.metrics
    assert checks["arms.compared"].status == "PASS" and unmet(evidence) == []


def test_an_arm_that_failed_closes_the_gate(tmp_path: Path) -> None:
    evidence = with_arm(tuned(tmp_path), first(2))
    failed = replace(evidence, arms={})
    metrics, checks = judged(failed)
    assert metrics is None
    assert checks["arms.alike"].status == "BLOCKED" and checks["arms.alike"].closes
    assert "the arm 'own drafts' has no accepted attempt" in checks["jobs.measured"].detail
    assert "arms_p < 0.05 ?" in unmet(failed)
    # So does one that must not be beaten: what was registered is not left out.
    reported = replace(with_arm(tuned(tmp_path), first(2), beaten=False), arms={})
    assert judged(reported)[1]["arms.alike"].status == "BLOCKED"


def test_an_arm_with_fewer_items_closes_the_gate(tmp_path: Path) -> None:
    metrics, checks = judged(with_arm(tuned(tmp_path), [], rows=answers(first(2))[:-1]))
    assert metrics is None and checks["jobs.measured"].status == "BLOCKED"
    assert "arm 'own drafts' rows" in checks["jobs.measured"].detail


@pytest.mark.parametrize(
    ("field", "value", "what"),
    [
        ("effective", {"max_new_tokens": 64}, "settings"),
        ("code", "sha256:" + "0" * 64, "code"),
        ("packages", {"torch": "1.0"}, "packages"),
        ("facts", {"stop_ids": [7]}, "chat template, stop tokens"),
    ],
)
def test_an_arm_that_was_measured_otherwise_is_rejected(tmp_path: Path, field: str, value: Any, what: str) -> None:
    evidence = with_arm(tuned(tmp_path), first(2))
    arm = evidence.arms["own_drafts"]
    assert arm.manifest is not None
    other = arm._replace(manifest=arm.manifest.model_copy(update={field: value}))
    check = judged(replace(evidence, arms={"own_drafts": other}))[1]["arms.alike"]
    assert (check.status, check.repairable) == ("FAIL", False)
    assert f"'own drafts' differs from the treatment in {what}" in check.detail


def test_an_arm_with_other_parameters_prompts_items_or_the_treatments_weights_is_rejected(tmp_path: Path) -> None:
    evidence = with_arm(tuned(tmp_path), first(2))
    arm = evidence.arms["own_drafts"]
    assert arm.manifest is not None and evidence.manifest is not None
    rows = write_rows(tmp_path / "other.jsonl", answers(first(2), prompt_digest="sha256:" + "1" * 64))
    same = arm.manifest.model_copy(update={"inputs": evidence.manifest.inputs})
    items = arm.manifest.model_copy(update={"inputs": arm.manifest.inputs | {"items": "sha256:" + "2" * 64}})
    for other, what in (
        (arm._replace(parameters={**arm.parameters, "max_new_tokens": 64}), "in parameters"),
        (arm._replace(rows=rows), "in prompts"),
        (arm._replace(manifest=items), "in items"),
        (arm._replace(manifest=same), "evaluated the treatment's weights"),
    ):
        check = judged(replace(evidence, arms={"own_drafts": other}))[1]["arms.alike"]
        assert check.status == "FAIL" and what in check.detail


def test_without_arms_nothing_is_asked(tmp_path: Path) -> None:
    _, checks = judged(tuned(tmp_path))
    assert {checks[id].status for id in ("arms.alike", "arms.compared")} == {"NOT_APPLICABLE"}


def test_the_lines_behind_the_metrics_of_arms_are_those_that_differ(tmp_path: Path) -> None:
    evidence = with_arm(tuned(tmp_path, first(10)), [False, *[True] * 3, *[False] * 7, True])
    ahead, behind = parts_of(evidence, "arms_p")
    assert (ahead.what, ahead.lines) == ("against 'own drafts': right here alone", (1, 5, 6, 7, 8, 9, 10))
    assert (behind.lines, behind.of) == ((12,), N)


def test_the_design_says_with_what_probability_a_lead_is_seen(tmp_path: Path) -> None:
    analysis = with_arm(tuned(tmp_path), first(2)).resolved.spec.analysis
    wide = analysis.model_copy(update={"n": 300, "minimum_effect": 0.3})
    outcome = design_power(wide)
    assert outcome.status == "PASS" and "of 3 comparisons, with probability" in outcome.detail
    narrow = analysis.model_copy(update={"n": 40, "minimum_effect": 0.28, "power": 0.8})
    assert design_power(narrow.model_copy(update={"arms": ()})).status == "PASS"
    assert design_power(narrow).status == "WARN"
