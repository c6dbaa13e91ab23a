"""Items that are answered several times: metrics, comparison and checks of evaluate stages, and what a spec may ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import permutation_test
from statsmodels.stats.proportion import proportion_confint

from reviews.audit.metric_lines import parts_of
from reviews.comparison.arms import gain_by_sample
from reviews.comparison.power_checks import design_power
from reviews.comparison.seed_comparison import SeedComparison, SeedOutcome, combine_seeds
from reviews.evidence.evidence import Evidence
from reviews.evidence.subgroups import ArmPair
from reviews.gate.check_list import run_checks
from reviews.gate.measurer import measure
from reviews.gate.packet import criteria_results
from specs.loading.loading import load_spec
from specs.system.errors import EvidenceMissing
from testing.factories.evidence_on_disk import N, evidence_of, write_rows
from testing.factories.sampled_evidence import EACH, sampled_answers, sampled_arms, sampled_spec
from testing.factories.spec_files import problems_of, write_spec

BEFORE = (0, 1, 0, 2, 0, 0, 4, 1, 0, 0, 3, 0)
AFTER = (4, 3, 4, 4, 4, 0, 4, 4, 2, 3, 2, 1)
PAIRS = tuple(zip(BEFORE, AFTER, strict=True))


def closing(evidence: Evidence) -> dict[str, str]:
    metrics = measure(evidence)
    return {check.id: check.detail for check in run_checks(evidence, metrics) if check.closes}


def test_healthy_arms_pass_every_check_that_reads_answers(tmp_path: Path) -> None:
    assert closing(sampled_arms(tmp_path)) == {}


def test_the_comparison_is_that_of_scipy_over_items(tmp_path: Path) -> None:
    metrics = measure(sampled_arms(tmp_path, BEFORE, AFTER)).metrics
    changes = (np.array(AFTER) - np.array(BEFORE)) / EACH
    again: Any = permutation_test((changes,), np.mean, permutation_type="samples", n_resamples=10_000)
    assert metrics["sign_flip_p"].value == pytest.approx(float(again.pvalue))
    gain = metrics["accuracy_gain"]
    assert gain.exact() == Fraction(sum(AFTER) - sum(BEFORE), EACH * N) and gain.n == N
    wide = np.array([*changes, 1, -1])
    half = 1.959963984540054 * wide.std() / np.sqrt(N + 2)
    assert gain.interval == pytest.approx((wide.mean() - half, wide.mean() + half))
    assert (metrics["gained"].value, metrics["lost"].value) == (9, 1)
    assert "mcnemar_p" not in metrics


def test_an_arm_counts_answers_and_its_interval_counts_items(tmp_path: Path) -> None:
    metrics = measure(evidence_of(tmp_path, "base", sampled_answers(AFTER), spec=sampled_spec())).metrics
    accuracy = metrics["accuracy"]
    assert (accuracy.exact(), accuracy.n, metrics["items"].value) == (Fraction(sum(AFTER), EACH * N), EACH * N, N)
    assert accuracy.interval == pytest.approx(proportion_confint(sum(AFTER) / EACH, N, method="wilson"))


def test_pass_at_k_of_both_arms_and_its_gain(tmp_path: Path) -> None:
    evidence = sampled_arms(tmp_path, BEFORE, AFTER, f"temperature: 0.7, samples_per_item: {EACH}, k: 2")
    metrics = measure(evidence).metrics

    def at_two(right: Sequence[int]) -> Any:
        # By counting: of the six choices of two of four answers, those without a right one are of the wrong ones.
        return np.array([1 - (EACH - count) * (EACH - count - 1) / 12 for count in right])

    assert metrics["accuracy_at_k"].value == pytest.approx(at_two(AFTER).mean())
    changes = at_two(AFTER) - at_two(BEFORE)
    wide = np.array([*changes, 1, -1])
    half = 1.959963984540054 * wide.std() / np.sqrt(N + 2)
    gain = metrics["gain_at_k"]
    assert gain.value == pytest.approx(changes.mean())
    assert gain.interval == pytest.approx((wide.mean() - half, wide.mean() + half))
    without = replace(evidence, parameters=evidence.parameters | {"k": None})
    assert not {"accuracy_at_k", "gain_at_k"} & measure(without).metrics.keys()


def test_spread_between_samples_stands_next_to_spread_between_seeds(tmp_path: Path) -> None:
    gains = gain_by_sample(sampled_arms(tmp_path, BEFORE, AFTER))
    by_hand = [np.mean([(k < now) - (k < was) for was, now in zip(BEFORE, AFTER, strict=True)]) for k in range(EACH)]
    assert gains == pytest.approx(by_hand)
    pairs = tuple(ArmPair("a", f"g{n}", Fraction(was, 4), Fraction(now, 4)) for n, (was, now) in enumerate(PAIRS))
    first = SeedComparison("s", 1, "d", pairs, 0.5, 0.01, True, 0.25, gains)
    others = [first._replace(seed=seed, by_sample=samples) for seed, samples in ((2, gains), (3, (0.1, 0.3)))]
    outcomes = [SeedOutcome(other.seed, "t", other, "") for other in others]
    result = combine_seeds(first, [*outcomes, SeedOutcome(4, "u", None, "rejected")])
    expected = (np.std(by_hand, ddof=1) + np.std([0.1, 0.3], ddof=1)) / 2
    assert result.decoding_spread == pytest.approx(expected) == result.as_json()["decoding_spread"]
    assert f"between seeds and {expected:.3f} between samples of one training" in result.describe()
    single = combine_seeds(first, [outcomes[0]._replace(comparison=others[0]._replace(by_sample=()))])
    assert single.decoding_spread is None and "samples" not in single.describe()


def test_a_gain_in_the_answers_of_few_items_is_not_shown(tmp_path: Path) -> None:
    # Sixteen answers more, all of four items: as single answers p would be 2**-15, of four items it is 1/8.
    evidence = sampled_arms(tmp_path, (0,) * N, (EACH,) * 4 + (0,) * 8)
    results = criteria_results(evidence.resolved, evidence.stage, measure(evidence))
    assert [str(result.criterion) for result in results if not result.met] == ["sign_flip_p < 0.05"]


Rows = list[dict[str, Any]]


def without_last(rows: Rows) -> Rows:
    return rows[:-1]


def first_as_last(rows: Rows) -> Rows:
    return [*rows[:-1], rows[0]]


def twice(rows: Rows) -> Rows:
    return [*rows, rows[5]]


def fifth_sample(rows: Rows) -> Rows:
    return [*rows, rows[5] | {"sample": 4}]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (without_last, "1 samples of items have no answer, for example 'h11', sample 3"),
        (first_as_last, "1 samples of items have no answer"),
        (twice, "1 samples of items have several answers, for example 'h1', sample 1"),
        (fifth_sample, "1 samples of items are not registered"),
    ],
)
def test_answers_that_are_missing_or_too_many_close_the_gate(tmp_path: Path, edit: Any, message: str) -> None:
    evidence = sampled_arms(tmp_path)
    changed = replace(evidence, baseline_rows=write_rows(tmp_path / "b.jsonl", edit(sampled_answers((0,) * N))))
    with pytest.raises(EvidenceMissing) as raised:
        measure(changed)
    assert message in str(raised.value)
    (tmp_path / "base").mkdir()
    own = evidence_of(tmp_path / "base", "base", edit(sampled_answers((0,) * N)), spec=sampled_spec())
    complete = next(check for check in run_checks(own, None) if check.id == "health.complete")
    assert complete.status == "FAIL" and "48 answers were ordered" in complete.detail


def test_lines_behind_the_comparison_are_all_answers_to_the_items_that_changed(tmp_path: Path) -> None:
    evidence = sampled_arms(tmp_path, (0, 2) + (0,) * 10, (1, 1) + (0,) * 10)
    gained, _, lost, _ = parts_of(evidence, "accuracy_gain")
    assert (gained.lines, lost.lines) == ((1, 2, 3, 4), (5, 6, 7, 8))


def test_the_design_says_that_its_power_is_a_bound(tmp_path: Path) -> None:
    analysis = sampled_arms(tmp_path).resolved.spec.analysis.model_copy(update={"n": 300})
    outcome = design_power(analysis)
    single = design_power(analysis.model_copy(update={"test": "exact_mcnemar"}))
    assert outcome.figure == single.figure and "several answers find it with no less" in outcome.detail
    assert "several answers" not in single.detail


GREEDY = "parameters: {max_new_tokens: 32, seed: 7}\n    gate"


@pytest.mark.parametrize(
    ("drawn", "message"),
    [
        (
            "samples_per_item: 4",
            "4 greedy answers are all the same: state a temperature above 0, or samples_per_item: 1",
        ),
        ("samples_per_item: 4, temperature: 0", "temperature must be above 0, got 0"),
        ("top_p: 0.9", "top_p is 0.9 and nothing is drawn"),
        ("temperature: 0.7, samples_per_item: 4, k: 5", "k: 5 needs as many answers, samples_per_item: 5 or more"),
        ("temperature: 0.7, samples_per_item: 65", "must be at most 64, got 65"),
    ],
)
def test_senseless_sampling_is_refused_where_it_is_written(tmp_path: Path, drawn: str, message: str) -> None:
    (problem,) = problems_of(write_spec(tmp_path, (GREEDY, GREEDY.replace("seed", f"{drawn}, seed"))))
    assert message in problem.message + (problem.hint or "") and (problem.line, problem.column > 1) == (30, True)


def test_the_registered_test_fits_the_number_of_answers(tmp_path: Path) -> None:
    spec = sampled_spec()
    assert load_spec(write_spec(tmp_path, *spec)).spec.analysis.p_metric == "sign_flip_p"
    (problem,) = problems_of(write_spec(tmp_path, *spec[1:]))
    assert (problem.message, problem.hint) == (
        "test is exact_mcnemar, and the arms answer each item 4 times",
        "write test: sign_flip",
    )
    (problem,) = problems_of(write_spec(tmp_path, spec[0]))
    assert problem.hint == "write test: exact_mcnemar"


def test_a_criterion_asks_for_what_is_measured(tmp_path: Path) -> None:
    tuned = ("  - name: ship", "    gate: {criteria: [{metric: METRIC, above: 0.1}]}\n  - name: ship")
    for metric, message in (
        ("accuracy_at_k", "'accuracy_at_k' is measured only with k"),
        ("mcnemar_p", "'mcnemar_p' is measured only with analysis.test: exact_mcnemar"),
    ):
        path = write_spec(tmp_path, *sampled_spec())
        text = path.read_text(encoding="utf-8").replace(tuned[0], tuned[1].replace("METRIC", metric))
        path.write_text(text, encoding="utf-8")
        assert f"stage 'tuned': {message}" in [problem.message for problem in problems_of(path)]


PAIRED = "evaluation:\n  paired:\n    - {before: base, after: tuned, outcome: TYPE, test: TEST, minimum_effect: 0.2}\n"


@pytest.mark.parametrize(
    ("spec", "outcome", "test", "able"),
    [(sampled_spec(), "binary", "exact_mcnemar", "continuous"), ((), "continuous", "wilcoxon", "binary")],
)
def test_a_paired_test_has_the_outcome_of_its_answers(
    tmp_path: Path, spec: Any, outcome: str, test: str, able: str
) -> None:
    plan = PAIRED.replace("TYPE", outcome).replace("TEST", test)
    (problem,) = problems_of(write_spec(tmp_path, *spec, ("stages:\n", f"{plan}stages:\n")))
    assert problem.message == f"rows of 'tuned' have no {outcome} outcome" and problem.hint == f"they have: {able}"
