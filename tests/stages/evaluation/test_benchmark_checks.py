"""What is found in the evidence of a task of inspect_ai, and what is measured of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from reviews.checks.definition import join_names
from reviews.gate.check_list import CHECKS, run_checks
from reviews.gate.measurer import measure
from reviews.stages.evaluation import benchmark
from specs.system.digests import digest_bytes, digest_path
from specs.system.errors import EvidenceMissing
from specs.trail.verdict import CheckResult
from testing.factories.benchmark_evidence import (
    FLAWS,
    RIGHT,
    Raw,
    benchmark_evidence,
    header,
    items,
    lm_eval_evidence,
    rows,
    sampled_rows,
    samples,
)
from training.rules.evaluation.inspect_log import NAME, write_log


def results_of(evidence: object) -> dict[str, CheckResult]:
    try:
        metrics = measure(evidence)  # pyright: ignore[reportArgumentType]
    except EvidenceMissing:
        metrics = None
    return {check.id: check for check in run_checks(evidence, metrics)}  # pyright: ignore[reportArgumentType]


def test_healthy_evidence_has_no_finding(tmp_path: Path) -> None:
    results = results_of(benchmark_evidence(tmp_path))
    assert {
        id: result.detail for id, result in results.items() if result.status not in ("PASS", "NOT_APPLICABLE")
    } == {}
    assert results["benchmark.scores"].detail == "all 12 scores follow from answer and target"


def test_what_is_measured(tmp_path: Path) -> None:
    metrics = measure(benchmark_evidence(tmp_path)).metrics
    assert metrics["benchmark_accuracy"].value == RIGHT / 12 and metrics["benchmark_accuracy"].interval
    report = {id: metrics[id].value for id in ("benchmark_items", "benchmark_truncation_rate", "model_calls")}
    assert report == {"benchmark_items": 12, "benchmark_truncation_rate": 0, "model_calls": 24}


@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flaw_is_found_by_its_check(tmp_path: Path, flaw: str) -> None:
    broken, check, status = FLAWS[flaw]
    result = results_of(broken(tmp_path))[check]
    assert result.status == status, result.detail


EPOCHS = {"samples_per_item": 3, "temperature": 0.7}


def test_epochs_are_answers_to_an_item_of_which_the_share_that_is_right_counts(tmp_path: Path) -> None:
    answers = sampled_rows(3)
    answers[0] |= {"scores": {"match": "I", "long": 0.5}, "correct": False, "output": "It is warm"}
    answers[0]["calls"][0] |= {"output": "It is warm"}
    evidence = benchmark_evidence(tmp_path, answers, samples(answers), changes=EPOCHS)
    results = results_of(evidence)
    assert {
        id: result.detail for id, result in results.items() if result.status not in ("PASS", "NOT_APPLICABLE")
    } == {}
    assert results["benchmark.scores"].detail == "all 36 scores follow from answer and target"
    accuracy = measure(evidence).metrics["benchmark_accuracy"]
    assert accuracy.value == (3 * RIGHT - 1) / 36
    assert benchmark.outcomes(evidence, evidence.outputs["rows"], "continuous")[:2] == [2 / 3, 1.0]


DROPPED: list[tuple[Callable[[list[Raw]], object], str, str]] = [
    # The best of more draws than are granted: what was left out leaves a gap in the numbers.
    (lambda answers: answers[1]["calls"][0].update(draw=4), "benchmark.task", "answers that are in no row"),
    (lambda answers: answers[1]["calls"][0].update(draw=0), "benchmark.task", "answers that are in no row"),
    (lambda answers: answers[1].update(sample=4), "benchmark.log", "rows"),
    (lambda answers: answers.pop(), "benchmark.log", "rows"),
]


@pytest.mark.parametrize(("changed", "check", "why"), DROPPED)
def test_draws_that_were_left_out_or_counted_twice_are_found(
    tmp_path: Path, changed: Callable[[list[Raw]], object], check: str, why: str
) -> None:
    answers = sampled_rows(3)
    for at, row in enumerate(answers):
        row["calls"][0]["prompt_digest"] = digest_bytes(row["item"].encode())
        assert at % 3 == row["sample"]
    changed(answers)
    result = results_of(benchmark_evidence(tmp_path, answers, samples(answers), changes=EPOCHS))[check]
    assert result.status in ("FAIL", "BLOCKED") and why in result.detail, result.detail


def test_a_task_of_lm_eval_is_measured_and_its_scores_carried_out_again(tmp_path: Path) -> None:
    evidence = lm_eval_evidence(tmp_path)
    metrics = measure(evidence).metrics
    assert (metrics["lm_eval_accuracy"].value, metrics["lm_eval_items"].value) == (RIGHT / 12, 12)
    results = results_of(evidence)
    assert {
        id: result.detail for id, result in results.items() if result.status not in ("PASS", "NOT_APPLICABLE")
    } == {}
    assert results["benchmark.scores"].detail == "all 12 scores follow from answer and target"
    assert benchmark.outcomes(evidence, evidence.outputs["rows"], "binary")[RIGHT - 1 : RIGHT + 1] == [1.0, 0.0]


def test_a_score_of_lm_eval_that_was_edited_in_log_and_rows_is_found(tmp_path: Path) -> None:
    results = results_of(lm_eval_evidence(tmp_path, right=tuple(range(RIGHT + 1))))
    assert results["benchmark.scores"].status == "FAIL" and results["benchmark.log"].status == "PASS"


def test_every_check_of_the_kind_has_a_flaw() -> None:
    own = {check.id for check in CHECKS if check.id.startswith("benchmark.")}
    assert own == {check for _, check, _ in FLAWS.values()}, join_names(own)


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x05\x06" + bytes(18)])
def test_a_log_that_is_none_closes_the_gate(tmp_path: Path, content: bytes) -> None:
    evidence = benchmark_evidence(tmp_path)
    log = evidence.outputs["log"]
    (log / NAME).write_bytes(content)
    evidence = replace(evidence, output_digests=evidence.output_digests | {"log": digest_path(log)})
    results = results_of(evidence)
    assert {results[name].status for name in ("benchmark.log", "benchmark.task")} <= {"BLOCKED", "FAIL"}


def test_a_log_that_was_changed_after_the_job_closes_the_gate(tmp_path: Path) -> None:
    evidence = benchmark_evidence(tmp_path)
    path = evidence.outputs["log"] / NAME
    path.unlink()
    write_log(path, header(tags=["edited"]), samples(rows()))
    results = results_of(evidence)
    assert {results[name].status for name in ("benchmark.log", "benchmark.task", "benchmark.scores")} == {"BLOCKED"}
    (evidence.outputs["log"] / "other").write_text("x", encoding="utf-8")
    assert results_of(evidence)["benchmark.log"].status == "BLOCKED"


def test_without_a_log_the_gate_stays_closed(tmp_path: Path) -> None:
    evidence = benchmark_evidence(tmp_path)
    results = results_of(replace(evidence, outputs={"rows": evidence.outputs["rows"]}))
    assert results["benchmark.log"].status == "BLOCKED"


def test_outcomes_are_those_of_the_items_in_order(tmp_path: Path) -> None:
    evidence = benchmark_evidence(tmp_path)
    results = benchmark.outcomes(evidence, evidence.outputs["rows"], "binary")
    assert results == [float(place < RIGHT) for place in range(len(items()))]
    assert benchmark.summarise_rows(evidence)[0]["calls"] == 2
