"""Thresholds are the decimals of the spec's text, and what is made of counts is compared exactly."""

from __future__ import annotations

import ast
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviews.checks import definition
from reviews.evidence.evidence import Evidence
from reviews.evidence.measured_value import MeasuredValue, metric_of
from reviews.evidence.subgroups import PairCounts
from reviews.gate.check_list import CHECKS, run_checks
from reviews.gate.decide import decide
from reviews.gate.measurer import measure
from reviews.gate.packet import criteria_results
from reviews.statistics.agreement import cohens_kappa
from reviews.statistics.mcnemar import benjamini_hochberg, exact_mcnemar, mcnemar_power
from specs.loading.loading import load_spec
from specs.loading.stored_spec import read_resolved
from specs.session.thresholds import Thresholds
from specs.stages.base.artifacts import Item
from specs.stages.base.metric import Metric, MetricSet
from specs.stages.base.stage import Criterion
from specs.system.digests import digest_bytes
from specs.system.errors import SpecError
from specs.trail.verdict import CheckResult, Verdict
from testing.factories.evidence_on_disk import RIGHT, WRONG, answers, evidence_of, write_rows
from testing.factories.spec_files import write_spec

WORDS = ["elm", "oak", "ash", "fir", "yew", "box", "bay", "fig", "nut", "pea", "rye", "hop"]


def compared(folder: Path, n: int, before: int, after: int, least: str) -> Evidence:
    """Return a comparison of ``n`` items of which the arms have so many right, with a registered minimum effect."""
    evidence = evidence_of(folder, "tuned")
    items = tuple(
        Item(id=f"h{i}", group=f"g{i}", kind="lowercase", prompt=f"Write {WORDS[i % 12]} of {i}.", constraint={})
        for i in range(n)
    )
    assert evidence.baseline_rows is not None
    for path, right in ((evidence.baseline_rows, before), (evidence.outputs["rows"], after)):
        rows = [
            answers([place < right] * 12)[0]
            | {"item": item.id, "output": f"{RIGHT if place < right else WRONG} {place}"}
            for place, item in enumerate(items)
        ]
        write_rows(path, rows)
    resolved = evidence.resolved
    analysis = resolved.spec.analysis.model_copy(update={"n": n, "minimum_effect": float(least)})
    spec = resolved.spec.model_copy(update={"analysis": analysis})
    return replace(evidence, heldout=items, resolved=resolved.model_copy(update={"spec": spec}))


def decision_of(evidence: Evidence, metrics: MetricSet) -> tuple[str, tuple[str, ...]]:
    digest = digest_bytes(b"packet")
    decision = decide(
        stage="tuned",
        attempt=1,
        checks=(),
        criteria=criteria_results(evidence.resolved, evidence.stage, metrics),
        verdict=Verdict(reviewer="r", findings=(), recommendation="", reasoning="", risks=(), approve=True),
        packet_digest=digest,
        resolvable=lambda _: True,
        allowed_ranges={},
        current={},
        attempts_left=0,
    )
    return decision.outcome, decision.reasons


def check_of(evidence: Evidence, metrics: MetricSet, id: str) -> CheckResult:
    return definition.apply(next(check for check in CHECKS if check.id == id), evidence, metrics)


def test_a_gain_of_exactly_the_registered_minimum_is_a_result(tmp_path: Path) -> None:
    assert 42 / 60 - 24 / 60 < 0.3, "this is the rounding the test is about"
    evidence = compared(tmp_path, 60, 24, 42, "0.3")
    metrics = measure(evidence)
    assert metrics.metrics["accuracy_gain"].value == 0.3
    assert decision_of(evidence, metrics)[0] == "approve"


def test_a_gain_just_below_the_minimum_is_a_null_that_says_how_many(tmp_path: Path) -> None:
    evidence = compared(tmp_path, 60, 25, 42, "0.3")
    outcome, reasons = decision_of(evidence, measure(evidence))
    assert outcome == "null"
    assert reasons == ("the gain is not the registered one: accuracy_gain >= 0.3 is not met: 17 of 60 (0.283333)",)


def test_the_statement_never_shows_the_number_it_says_was_missed(tmp_path: Path) -> None:
    evidence = compared(tmp_path, 60, 24, 42, "0.3000000001")
    outcome, reasons = decision_of(evidence, measure(evidence))
    assert outcome == "null"
    assert reasons[0].endswith("accuracy_gain >= 0.3000000001 is not met: 18 of 60 (0.3)")
    criterion = Criterion(metric="first_loss", below=2.0)
    metrics = MetricSet(
        stage="t",
        attempt=1,
        rows={},
        code=digest_bytes(b""),
        metrics={"first_loss": metric_of("first_loss", MeasuredValue(2.0000000003, 3))},
    )
    stage = evidence.stage.model_copy(
        update={"gate": evidence.stage.gate.model_copy(update={"criteria": (criterion,)})}
    )
    result = criteria_results(evidence.resolved, stage, metrics)[0]
    assert result.unmet() == "first_loss < 2 is not met: 2.0000000003"


@pytest.mark.parametrize(("before", "after", "n", "least"), [(24, 42, 120, "0.15"), (24, 42, 60, "0.3")])
def test_the_checks_of_the_effect_use_the_exact_gain(
    tmp_path: Path, before: int, after: int, n: int, least: str
) -> None:
    assert after / n - before / n < float(least)
    evidence = compared(tmp_path, n, before, after, least)
    metrics = measure(evidence)
    assert check_of(evidence, metrics, "power.margin").status == "WARN", "the gain reaches, its interval does not"
    # One kind, so nothing can be left out: but the effect was reached, which is asked first.
    assert "one constraint kind" in check_of(evidence, metrics, "strata.sensitivity").detail


def test_headroom_of_exactly_the_minimum_effect_is_enough(tmp_path: Path) -> None:
    assert 1 - 0.9 < 0.1
    evidence = evidence_of(tmp_path, "base")
    analysis = evidence.resolved.spec.analysis.model_copy(update={"minimum_effect": 0.1})
    spec = evidence.resolved.spec.model_copy(update={"analysis": analysis})
    evidence = replace(evidence, resolved=evidence.resolved.model_copy(update={"spec": spec}))
    for right, status in ((9, "PASS"), (10, "FAIL")):
        metrics = MetricSet(
            stage="base",
            attempt=1,
            rows={},
            code=digest_bytes(b""),
            metrics={"accuracy": metric_of("accuracy", MeasuredValue(Fraction(right, 10), 10))},
        )
        assert check_of(evidence, metrics, "power.headroom").status == status


def _decimals(n: int) -> list[int]:
    """Return the ``k`` for which ``k / n`` has a finite decimal."""
    return [k for k in range(n + 1) if not (rest := _without(n, k)) or rest == 1]


def _without(n: int, k: int) -> int:
    rest = Fraction(k, n).denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest


def _text(value: Fraction) -> str:
    return str(Decimal(value.numerator) / Decimal(value.denominator))


def _verdicts(n: int, k: int, threshold: str, lost: int) -> tuple[bool, bool]:
    """Return (what the gate says, what fractions say) of a gain of ``k`` of ``n`` that has to be at least so much."""
    gain = metric_of("accuracy_gain", MeasuredValue(PairCounts("", n, k + lost, lost).gain, n))
    stored = Metric.model_validate_json(gain.model_dump_json(), strict=True)
    registered = Criterion.model_validate_json(
        Criterion(metric="accuracy_gain", at_least=float(threshold)).canonical(), strict=True
    )
    return registered.met(stored.exact()), Fraction(k, n) >= Fraction(threshold)


def test_every_gain_that_can_be_hit_exactly_is_judged_as_fractions_judge_it() -> None:
    hits = wrong_in_floats = 0
    for n in range(1, 201):
        for k in _decimals(n):
            for near in (k - 1, k, k + 1):
                ours, exact = _verdicts(n, near, _text(Fraction(k, n)), 0) if near <= n else (True, True)
                assert ours == exact, (n, near, k)
            hits += 1
            # The negative control: the same question to a difference of two floats.
            wrong_in_floats += any((b + k) / n - b / n < k / n for b in range(n - k + 1))
    assert hits > 2000
    assert wrong_in_floats > 500


@given(st.data())
def test_any_decimal_threshold_is_judged_as_fractions_judge_it(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 200))
    k = data.draw(st.integers(-n, n))
    digits = data.draw(st.integers(1, 6))
    at = data.draw(st.one_of(st.just(round(Fraction(k, n) * 10**digits)), st.integers(-(10**digits), 10**digits)))
    ours, exact = _verdicts(n, k, _text(Fraction(at, 10**digits)), max(0, -k))
    assert ours == exact


def test_a_metric_cannot_say_one_value_and_another_ratio() -> None:
    whole = metric_of("accuracy", MeasuredValue(Fraction(3, 10), 10)).model_dump()
    assert whole["ratio"] == (3, 10)
    for change in ({"value": 0.31}, {"ratio": (1, 3)}, {"ratio": (3, 0)}):
        with pytest.raises(ValueError, match="ratio"):
            Metric.model_validate(whole | change)


@pytest.mark.parametrize("text", ["0.30000000000000001", "0.1000000000000000055511151231257827", "1e-400"])
def test_a_threshold_with_more_digits_than_are_kept_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SpecError, match="digits") as caught:
        load_spec(write_spec(tmp_path, ("minimum_effect: 0.1", f"minimum_effect: {text}")))
    assert any("minimum_effect" in str(problem) for problem in caught.value.problems)


@pytest.mark.parametrize("text", ["0.3", "3e-1", ".30", "0.300", "0.15"])
def test_a_threshold_is_the_decimal_of_the_text_after_registration_too(tmp_path: Path, text: str) -> None:
    resolved = load_spec(write_spec(tmp_path, ("minimum_effect: 0.1", f"minimum_effect: {text}")))
    again = read_resolved(resolved.canonical())
    assert again.registration() == resolved.registration()
    criterion = next(item for item in again.spec.analysis.hypothesis() if item.metric == "accuracy_gain")
    assert criterion.met(Fraction(text))
    assert not criterion.met(Fraction(text) - Fraction(1, 10**15))


def test_kappa_is_exact_where_it_is_hit_exactly() -> None:
    # 40 of 50 good ones and 40 of 50 bad ones: 0.8 observed, 0.5 by chance, kappa 3 / 5.
    labels = [1] * 50 + [0] * 50
    decided = [1] * 40 + [0] * 10 + [0] * 40 + [1] * 10
    assert cohens_kappa(decided, labels).exact == Fraction(3, 5)
    for n in range(10, 40):
        for wrong in range(n // 2):
            items, other = [1] * n + [0] * n, [0] * wrong + [1] * (n - wrong) + [1] * wrong + [0] * (n - wrong)
            assert cohens_kappa(items, other).kappa == float(Fraction(n - 2 * wrong, n))


def test_an_exact_p_of_exactly_alpha_is_not_below_it() -> None:
    for gained in range(1, 60):
        assert exact_mcnemar(gained, 0) == 2.0 ** (1 - gained)
    assert exact_mcnemar(1, 6) == 1 / 8
    # Eight kinds, five of them with 6 of 6 (p = 1/32): adjusted 1/32 * 8/5 is 0.05 and not below it.
    adjusted = benjamini_hochberg([1 / 32] * 5 + [1.0] * 3)
    assert adjusted[0] == 0.05


def test_power_does_not_count_outcomes_whose_p_is_exactly_alpha() -> None:
    for discordant in range(2, 30):
        alpha = 2.0 ** (1 - discordant)
        # All items are discordant and all are gained: p is alpha, and the test rejects below it only.
        assert mcnemar_power(discordant, 1.0, 0.0, alpha) == 0.0
        assert mcnemar_power(discordant, 1.0, 0.0, alpha * 1.000001) == pytest.approx(1.0)


def test_run_checks_at_every_limit_of_counts(tmp_path: Path) -> None:
    """A share that equals its limit is on the healthy side, in every check of a share."""
    evidence = evidence_of(tmp_path, "base")
    spec = evidence.resolved.spec
    thresholds = spec.thresholds.model_copy(update={"truncated_answers": 0.25})
    resolved = evidence.resolved.model_copy(update={"spec": spec.model_copy(update={"thresholds": thresholds})})
    for cut, status in ((3, "PASS"), (4, "FAIL")):
        rows = [row | {"truncated": place < cut} for place, row in enumerate(answers([True] * 12))]
        write_rows(evidence.outputs["rows"], rows)
        checks = run_checks(replace(evidence, resolved=resolved), measure(evidence))
        assert next(check for check in checks if check.id == "health.truncation").status == status


_LIMITS = {
    *(name for name, field in Thresholds.model_fields.items() if field.annotation is not int),
    *("alpha", "minimum_effect", "margin", "false_discovery", "base_at_most", "ceiling_at_least"),
}


def test_no_code_compares_with_a_threshold_by_itself() -> None:
    """Only :func:`specs.system.exact.holds` compares with a registered decimal; a bare operator compares floats."""
    home = Path(__file__).parents[3]
    results: list[str] = []
    for path in sorted([*(home / "reviews").rglob("*.py"), *(home / "sessions").rglob("*.py")]):
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(function, ast.FunctionDef):
                results += [f"{path.relative_to(home)}: {ast.unparse(compare)}" for compare in _bare(function)]
    assert results == []


def _bare(function: ast.FunctionDef) -> list[ast.Compare]:
    """Return the comparisons by size of a registered decimal, or of a local name for one."""
    names = {
        target.id
        for node in ast.walk(function)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute) and node.value.attr in _LIMITS
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt | ast.LtE | ast.Gt | ast.GtE)
        for expression in (node.left, *node.comparators)
        if (isinstance(expression, ast.Attribute) and expression.attr in _LIMITS)
        or (isinstance(expression, ast.Name) and expression.id in names)
    ]


def test_a_bare_comparison_would_be_seen() -> None:
    (function,) = ast.parse("def f(a, s):\n    most = s.thresholds.refusals\n    return a > most\n").body
    assert isinstance(function, ast.FunctionDef)
    assert [ast.unparse(compare) for compare in _bare(function)] == ["a > most"]
