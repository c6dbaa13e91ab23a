from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from reviews.checks.measuring_code import measuring_code
from reviews.gate.measurer import measure
from reviews.statistics.mcnemar import exact_mcnemar, wilson
from specs.errors import EvidenceMissing
from specs.stages.metric_catalog import METRICS, metrics_of
from tests.factories.evidence_on_disk import N, answers, evidence_of, probes, samples, steps, write_rows
from tests.factories.flaws import ALL, NONE, two_kinds


@pytest.mark.parametrize(
    ("stage", "scopes"),
    [
        ("base", ("evaluate",)),
        ("sample", ("generate",)),
        ("train", ("sft",)),
        ("tuned", ("evaluate", "comparison")),
        ("ship", ("package",)),
    ],
)
def test_a_stage_measures_exactly_the_metrics_of_its_kind(tmp_path: Path, stage: str, scopes: tuple[str, ...]) -> None:
    measured = measure(evidence_of(tmp_path, stage))
    assert set(measured.metrics) == {id for scope in scopes for id in metrics_of(scope)}  # pyright: ignore[reportArgumentType]
    for metric in measured.metrics.values():
        definition = METRICS[metric.id]
        assert (metric.unit, metric.population) == (definition.unit, definition.population)


def test_accuracy_is_judged_again_from_the_rows(tmp_path: Path) -> None:
    metrics = measure(evidence_of(tmp_path, "base", answers([True] * 9 + [False] * 3))).metrics
    assert metrics["accuracy"].value == 9 / N
    assert metrics["accuracy"].interval == wilson(9, N)


def test_the_comparison_is_paired(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "tuned", answers([True] * 8 + [False] * 4))
    assert evidence.baseline_rows is not None
    write_rows(evidence.baseline_rows, answers([False] * 6 + [True] * 3 + [False] * 3))
    metrics = measure(evidence).metrics
    assert {name: metrics[name].value for name in ("gained", "lost")} == {"gained": 6, "lost": 1}
    assert metrics["mcnemar_p"].value == exact_mcnemar(6, 1)
    assert metrics["accuracy_gain"].value == pytest.approx(5 / N)


@pytest.mark.parametrize(
    ("before", "after", "gained", "lost"),
    [
        # Six of six have p = 2 / 64; over two kinds that is 0.0625 when the other shows nothing, and alpha is 0.05.
        (NONE + NONE, ALL + ALL, 2, 0),
        (NONE + NONE, ALL + NONE, 0, 0),
        (NONE + ALL, ALL + NONE, 1, 1),
        (ALL + ALL, NONE + NONE, 0, 2),
        (NONE + NONE, "011111" + "011111", 0, 0),
    ],
)
def test_kinds_are_counted_after_the_adjustment_for_their_number(
    tmp_path: Path, before: str, after: str, gained: int, lost: int
) -> None:
    metrics = measure(two_kinds(evidence_of(tmp_path, "tuned"), before, after)).metrics
    assert (metrics["kinds_gained"].value, metrics["kinds_lost"].value) == (gained, lost)
    assert metrics["kinds_gained"].n == metrics["kinds_lost"].n == 2


def test_the_comparison_does_not_depend_on_the_order_of_rows(tmp_path: Path) -> None:
    rows = answers([True] * 5 + [False] * 7)
    forward = measure(evidence_of(tmp_path / "a", "tuned", rows)).metrics if (tmp_path / "a").mkdir() is None else {}
    (tmp_path / "b").mkdir()
    assert measure(evidence_of(tmp_path / "b", "tuned", rows[::-1])).metrics == forward


def test_a_job_cannot_state_its_own_accuracy(tmp_path: Path) -> None:
    with pytest.raises(EvidenceMissing, match="is not a EvaluationRow"):
        measure(evidence_of(tmp_path, "base", answers([False] * N, passed=True)))


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (answers([True] * N)[:-1], "1 items have no answer"),
        ([*answers([True] * N), answers([True] * N)[0]], "1 items have several answers"),
        ([*answers([True] * N), answers([True] * N)[0] | {"item": "zzz"}], "1 items are not registered"),
        ([], "are empty"),
    ],
)
def test_rows_that_are_not_one_per_registered_item_are_missing_evidence(
    tmp_path: Path, rows: list[dict[str, object]], told: str
) -> None:
    with pytest.raises(EvidenceMissing, match=told):
        measure(evidence_of(tmp_path, "base", rows))


def test_no_rows_at_all_are_missing_evidence(tmp_path: Path) -> None:
    with pytest.raises(EvidenceMissing, match="are missing"):
        measure(replace(evidence_of(tmp_path, "base"), outputs={}))


def test_truncated_and_repeated_samples_do_not_count_as_accepted(tmp_path: Path) -> None:
    rows = samples()
    rows[0]["truncated"] = True
    rows[3] = rows[2] | {"sample": 1}
    metrics = measure(evidence_of(tmp_path, "sample", rows)).metrics
    # Five prompts: one cut off, one accepted twice with the same text, three accepted once.
    assert metrics["accepted"].value == 4
    assert metrics["acceptance_rate"].value == 5 / 10
    assert metrics["duplicate_rate"].value == pytest.approx(1 / 5)
    assert metrics["generate_truncation_rate"].value == 1 / 10


def test_a_sample_of_a_prompt_nobody_registered_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EvidenceMissing, match="does not belong to a registered prompt"):
        measure(evidence_of(tmp_path, "sample", [row | {"prompt": "Another prompt."} for row in samples()]))


def test_training_metrics_come_from_the_steps(tmp_path: Path) -> None:
    metrics = measure(evidence_of(tmp_path, "train")).metrics
    assert metrics["first_loss"].value == pytest.approx((1.9 + 1.8) / 2)
    assert metrics["last_loss"].value == pytest.approx((1.1 + 1.0) / 2)
    assert metrics["loss_drop"].value == pytest.approx(0.8)
    assert metrics["train_tokens"].value == 500


def test_a_missing_step_is_missing_evidence(tmp_path: Path) -> None:
    with pytest.raises(EvidenceMissing, match="without a gap"):
        measure(evidence_of(tmp_path, "train", [row for row in steps() if row["step"] != 4]))


def test_one_changed_token_lowers_identical_outputs(tmp_path: Path) -> None:
    rows = probes()
    rows[0]["reloaded"] = [1, 2, 4]
    assert measure(evidence_of(tmp_path, "ship", rows)).metrics["identical_outputs"].value == 0.5


def test_the_metric_set_names_its_rows_and_its_code(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "tuned")
    measured = measure(evidence)
    assert measured.rows["tuned"] == evidence.output_digests["rows"]
    assert set(measured.rows) == {"tuned", "baseline"}
    assert measured.code == measuring_code()
