from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from reviews.checks.measuring_code import measuring_code
from reviews.evidence.measured_value import MeasuredValue
from reviews.gate.measurer import measure
from reviews.stages.row_metrics import lines_of_rows, measure_rows
from reviews.statistics.mcnemar import exact_mcnemar, wilson
from specs.stages.base.metric import Population, RowMetric, count, every, judged_value, metric, rate, where
from specs.stages.finetuning.metrics import VALIDATION_METRICS
from specs.stages.metric_catalog import METRICS, metrics_of
from specs.stages.registry import STAGE_KINDS
from specs.system.errors import EvidenceMissing
from testing.factories.evidence_on_disk import N, answers, evidence_of, probes, samples, steps, write_rows
from testing.factories.flaws import ALL, NONE, two_kinds
from testing.factories.preference_evidence import dpo_evidence


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
    expected = {id for scope in scopes for id in metrics_of(scope)}  # pyright: ignore[reportArgumentType]
    # No example is kept out of this training, and each item is answered once.
    assert set(measured.metrics) == expected - {row_metric.id for row_metric in VALIDATION_METRICS} - {"accuracy_at_k"}
    for item in measured.metrics.values():
        definition = METRICS[item.id]
        assert (item.unit, item.population) == (definition.unit, definition.population)


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
    ("rows", "output"),
    [
        (answers([True] * N)[:-1], "1 items have no answer"),
        ([*answers([True] * N), answers([True] * N)[0]], "1 items have several answers"),
        ([*answers([True] * N), answers([True] * N)[0] | {"item": "zzz"}], "1 items are not registered"),
        ([], "are empty"),
    ],
)
def test_rows_that_are_not_one_per_registered_item_are_missing_evidence(
    tmp_path: Path, rows: list[dict[str, object]], output: str
) -> None:
    with pytest.raises(EvidenceMissing, match=output):
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


def test_a_sample_of_a_prompt_no_one_registered_is_refused(tmp_path: Path) -> None:
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


NOTHING, NOBODY = where("rows of no one", lambda _: False, may_be_empty=True), where("rows of none", lambda _: False)


def measured_here(folder: Path, *metrics: RowMetric) -> dict[str, MeasuredValue]:
    kind = replace(STAGE_KINDS["package"], metrics=metrics)
    return measure_rows(kind, evidence_of(folder, "ship"))


def test_a_metric_of_no_rows_is_0_where_it_may_be_and_else_missing_evidence(tmp_path: Path) -> None:
    none = rate("none", "are right", lambda _: True, over=NOTHING), metric("no", "rows", count, over=NOTHING)
    values = measured_here(tmp_path, *none)
    assert values == {"none": MeasuredValue(Fraction(0), 0), "no": MeasuredValue(0, 0)}
    assert [type(value.value) for value in values.values()] == [Fraction, int]
    with pytest.raises(EvidenceMissing, match="'no' needs rows of none, and none were written"):
        measured_here(tmp_path, metric("no", "rows", count, over=NOBODY))


def test_a_metric_that_the_judge_computes_is_not_computed_from_rows(tmp_path: Path) -> None:
    assert measured_here(tmp_path, metric("theirs", "rows", judged_value("of the judge"), over=every)) == {}


def test_a_file_without_rows_is_read_and_its_metrics_are_missing(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "ship")
    evidence.outputs["rows"].write_text("", encoding="utf-8")
    kind = replace(STAGE_KINDS["package"], metrics=(metric("nothing", "rows", count, over=NOTHING),))
    assert measure_rows(kind, evidence) == {"nothing": MeasuredValue(0, 0)}


def test_the_population_is_among_the_lines_only_where_it_is_not_all_of_them(tmp_path: Path) -> None:
    evidence, kind = evidence_of(tmp_path, "ship"), STAGE_KINDS["package"]

    def parts(row_metric: RowMetric) -> list[tuple[str, int]]:
        return [(part.what, len(part.lines)) for part in lines_of_rows(kind, evidence, row_metric)]

    all_of_them = len(evidence.outputs["rows"].read_text(encoding="utf-8").splitlines())
    assert parts(rate("a", "right", lambda _: True, over=every)) == [("right", all_of_them)]
    assert parts(metric("b", "rows", count, over=every)) == [("all rows", all_of_them)]
    assert parts(rate("c", "right", lambda _: False, over=NOBODY)) == [("right", 0), ("rows of none", 0)]


def test_what_an_attempt_does_not_have_has_no_metrics_and_no_lines(tmp_path: Path) -> None:
    kept_out = metric("kept_out", "pairs", count, over=Population("pairs that are kept out", output="scored_pairs"))
    kind = replace(STAGE_KINDS["dpo"], metrics=(kept_out,))
    evidence = dpo_evidence(tmp_path)
    evidence.outputs["pairs"].write_text("", encoding="utf-8")
    assert (measure_rows(kind, evidence), lines_of_rows(kind, evidence, kept_out)) == ({}, ())
