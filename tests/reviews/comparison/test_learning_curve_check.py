"""The learning curve at the treatment's gate, and what of its registration is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reviews.checks.definition import GateCheck, apply
from reviews.comparison.learning_curve import CHECKS
from reviews.evidence.evidence import ArmEvidence, Evidence
from reviews.statistics.curve_fit import forecast
from specs.loading.loading import load_spec
from specs.trail.verdict import CheckResult
from testing.factories.evidence_on_disk import N, answers, evidence_of
from testing.factories.more_arms import ARM, armed_spec, with_curve
from testing.factories.spec_files import problems_of

(CURVE,) = (check for check in CHECKS if check.id == "curve.forecast")
POINTS = {100: 3, 300: 5, 1000: 7, 3000: 9}


def first(count: int) -> list[bool]:
    return [number < count for number in range(N)]


def curved(folder: Path, points: dict[int, int], at: int = 15000) -> Evidence:
    evidence = evidence_of(folder, "tuned", answers(first(points[max(points)])))
    return with_curve(evidence, {size: first(count) for size, count in points.items()}, at)


def judged(evidence: Evidence, check: GateCheck = CURVE) -> CheckResult:
    return apply(check, evidence, None)


def test_the_gate_states_the_forecast_of_the_points(tmp_path: Path) -> None:
    evidence = curved(tmp_path, POINTS, at=3300)
    result = judged(evidence)
    groups = [item.group for item in evidence.heldout]
    expected = forecast(tuple(POINTS), [first(count) for count in POINTS.values()], groups, 3300, "log_linear")
    *points, ahead = result.rows
    assert [(row["examples"], row["accuracy"]) for row in points] == [(size, n / N) for size, n in POINTS.items()]
    assert [row["fitted"] for row in points] == pytest.approx(expected.fitted)
    assert (ahead["accuracy"], ahead["gain"], ahead["ratio"]) == (expected.accuracy, expected.gain, 1.1)
    assert (ahead["low"], ahead["high"], ahead["gain_low"]) == (*expected.interval, expected.gain_interval[0])
    assert result.status == "PASS" and not result.blocking
    assert "3300 examples, 1.1 times the most that were trained on: accuracy" in result.detail


def test_a_flat_curve_expects_no_gain(tmp_path: Path) -> None:
    result = judged(curved(tmp_path, dict.fromkeys(POINTS, 6)))
    assert result.status == "WARN" and result.detail.startswith("no gain expected, the interval includes 0: 15000 ")


def test_what_is_not_comparable_is_not_determined_or_missing(tmp_path: Path) -> None:
    evidence = curved(tmp_path, POINTS)
    train = evidence.arms["train_100"]
    other = replace(evidence, arms={**evidence.arms, "train_100": train._replace(parameters={"seed": 8})})
    assert judged(other).detail == "not determined: 'of 100' and 'treatment' were trained differently"
    assert train.manifest is not None
    unstated: ArmEvidence = train._replace(manifest=train.manifest.model_copy(update={"facts": {}}))
    for arms, text in (
        ({**evidence.arms, "train_100": unstated}, "the training of 'of 100' does not state its examples"),
        (
            {name: arm for name, arm in evidence.arms.items() if name != "train_100"},
            "'of 100' of the learning curve has",
        ),
    ):
        result = judged(replace(evidence, arms=arms))
        assert result.status == "BLOCKED" and text in result.detail, result.detail
    same = {
        size: ArmEvidence(None, train.manifest, train.parameters) for size in ("train_100", "train_300", "train_1000")
    }
    assert judged(replace(evidence, arms={**evidence.arms, **same})).detail.startswith("not determined: 2 numbers of")


SECOND_ARM = ARM.replace("own drafts", "fewer").replace("drafts_after", "fewer_after")
SECOND_STAGES = """\
  - name: fewer
    kind: sft
    inputs: {model: model, examples: sample.accepted}
    parameters: {learning_rate: 1e-5, epochs: 2, seed: 7, max_examples_per_kind: 1}
  - name: fewer_after
    kind: evaluate
    inputs: {model: fewer.checkpoint, items: heldout}
    parameters: {max_new_tokens: 32, seed: 7}
  - name: drafts
"""
DRAFTS = "parameters: {learning_rate: 1e-5, epochs: 2, batch_size: 1, seed: 7}"
SAME = "parameters: {learning_rate: 1e-5, epochs: 2, seed: 7, max_examples_per_kind: 2}"


def curve_spec(folder: Path, drafts: str = SAME, curve: str = "{arms: [fewer, own drafts], at: 15000}") -> Path:
    registered = ARM + SECOND_ARM + f"  learning_curve: {curve}\n"
    hours = ("  max_hours: 2\n", "  max_hours: 4\n")
    return armed_spec(folder, hours, (ARM, registered), (DRAFTS, drafts), ("  - name: drafts\n", SECOND_STAGES))


def test_a_curve_is_registered_and_named_by_spec_check(tmp_path: Path) -> None:
    spec = load_spec(curve_spec(tmp_path)).spec
    assert spec.analysis.list_curve_stages() == ("fewer_after", "drafts_after", "tuned")
    assert spec.trained_for("fewer_after") is spec.stage("fewer") and spec.trained_for("base") is None


CASES = [
    (SAME, "{arms: [fewer, drafts], at: 15000}", "analysis.learning_curve.arms[1]", "unknown arm 'drafts'"),
    (SAME.replace("1e-5", "2e-5"), "", "stages[4].parameters.learning_rate", "learning_rate is 2e-05 here and"),
    (SAME.replace(", max_examples_per_kind: 2", ""), "", "analysis.learning_curve.arms[1]",
     "the arm 'own drafts' is trained on as many examples as the treatment"),
    (SAME, "{arms: [fewer, own drafts], at: 15000, form: power_law}", "analysis.learning_curve",
     "a power_law curve needs 3 arms besides the treatment, got 2"),
    (SAME, "{arms: [fewer, fewer], at: 15000}", "analysis.learning_curve", "arms has a duplicate name"),
    (SAME, "{arms: [fewer], at: 15000}", "analysis.learning_curve.arms", "at least 2"),
]  # fmt: skip


@pytest.mark.parametrize(("drafts", "curve", "keys", "message"), CASES, ids=[case[3] for case in CASES])
def test_a_mistake_is_reported_where_it_is(tmp_path: Path, drafts: str, curve: str, keys: str, message: str) -> None:
    path = curve_spec(tmp_path, drafts, curve) if curve else curve_spec(tmp_path, drafts)
    problems = [problem for problem in problems_of(path) if message in problem.message]
    assert [problem.keys for problem in problems] == [keys], problems_of(path)
    assert problems[0].line and problems[0].column
