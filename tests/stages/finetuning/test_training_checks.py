"""Checks of the optimisation in detail: schedules as trainers log them, weight files, losses that are not numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.evidence.evidence import Evidence
from reviews.stages.finetuning.weights import parameters_of
from specs.system.errors import EvidenceMissing
from testing.factories.evidence_on_disk import evidence_of, examples, steps, weights, with_manifest, write_rows
from testing.factories.flaws import with_thresholds
from testing.factories.judged_evidence import results_of

PEAK = 1e-5


def scheduled(folder: Path, rates: list[float], *, ratio: float = 0.1, scheduler: str = "linear") -> Evidence:
    """Return a run of ten steps whose rates are the given multiples of the granted one."""
    rows = [row | {"learning_rate": PEAK * rate} for row, rate in zip(steps(), rates, strict=True)]
    evidence = evidence_of(folder, "train", rows)
    return replace(evidence, parameters=evidence.parameters | {"warmup_ratio": ratio, "scheduler": scheduler})


def linear(step: int, warmup: int, total: int = 10) -> float:
    return step / warmup if step < warmup else (total - step) / (total - warmup)


def cosine(step: int, warmup: int, total: int = 10) -> float:
    return step / warmup if step < warmup else 0.5 * (1 + math.cos(math.pi * (step - warmup) / (total - warmup)))


def constant(step: int, warmup: int) -> float:
    return 1.0


@pytest.mark.parametrize("first", [0, 1], ids=["the rate of the step", "the rate of the next step"])
@pytest.mark.parametrize(("ratio", "warmup"), [(0.0, 0), (0.1, 1), (0.25, 3), (0.9, 9), (1.0, 10)])
@pytest.mark.parametrize("scheduler", ["linear", "cosine", "constant"])
def test_the_granted_schedule_passes_as_either_kind_of_trainer_logs_it(
    tmp_path: Path, first: int, ratio: float, warmup: int, scheduler: str
) -> None:
    curve = {"linear": linear, "cosine": cosine, "constant": constant}[scheduler]
    rates = [curve(step, warmup) if step < 10 or warmup < 10 else 1.0 for step in range(first, 10 + first)]
    result = results_of(scheduled(tmp_path, rates, ratio=ratio, scheduler=scheduler))["training.schedule"]
    assert result.status == "PASS", result.detail


@pytest.mark.parametrize(
    ("rates", "ratio", "scheduler"),
    [
        ([linear(step, 1) for step in range(10)], 0.1, "cosine"),
        ([cosine(step, 1) for step in range(10)], 0.1, "linear"),
        ([linear(step, 1) for step in range(10)], 0.1, "constant"),
        ([1.0] * 10, 0.1, "linear"),
        ([linear(step, 3) for step in range(10)], 0.1, "linear"),
        ([max(0.0, linear(step, 1)) for step in range(2, 12)], 0.1, "linear"),
        ([0.5 * linear(step, 1) for step in range(10)], 0.1, "linear"),
        ([0.0] * 10, 0.1, "linear"),
    ],
    ids=[
        "linear",
        "cosine",
        "decays",
        "constant",
        "longer warm-up",
        "two steps ahead",
        "half of the peak",
        "never rose",
    ],
)
def test_another_schedule_than_the_granted_one_fails(
    tmp_path: Path, rates: list[float], ratio: float, scheduler: str
) -> None:
    assert (
        results_of(scheduled(tmp_path, rates, ratio=ratio, scheduler=scheduler))["training.schedule"].status == "FAIL"
    )


def test_no_rate_may_lie_above_the_granted_one_however_little(tmp_path: Path) -> None:
    rates = [linear(step, 1) for step in range(10)]
    statuses: list[str] = []
    for above in (1 + 1e-7, 1.001):
        evidence = scheduled(tmp_path, [above * rate for rate in rates])
        statuses.append(results_of(evidence)["training.schedule"].status)
    assert statuses == ["PASS", "FAIL"]


@pytest.mark.parametrize(("first", "granted", "output"), [(0, 4 / 9, "4.44e-06"), (1, 3 / 9, "3.33e-06")])
def test_the_steps_that_left_the_schedule_are_shown(tmp_path: Path, first: int, granted: float, output: str) -> None:
    rates = [linear(step, 1) for step in range(first, 10 + first)]
    rates[6:] = [0.0] * 4
    result = results_of(scheduled(tmp_path, rates))["training.schedule"]
    assert [row["step"] for row in result.rows] == [7, 8, 9, 10][: 4 - first]
    assert result.rows[0] == {"step": 7, "learning_rate": 0.0, "granted": pytest.approx(PEAK * granted, rel=1e-5)}
    assert f"peaked at 1e-05 and ended at 0; at step 7 it was 0, expected {output}" in result.detail
    assert result.figure == pytest.approx(granted)


def test_a_control_with_a_rate_of_zero_is_a_warning_and_must_stay_at_zero(tmp_path: Path) -> None:
    control = scheduled(tmp_path, [0.0] * 10)
    control = replace(control, parameters=control.parameters | {"learning_rate": 0.0})
    results = results_of(control)
    statuses = {id: results[id].status for id in ("training.schedule", "training.loss", "training.starvation")}
    assert statuses == {
        "training.schedule": "WARN",
        "training.loss": "NOT_APPLICABLE",
        "training.starvation": "NOT_APPLICABLE",
    }
    moved = scheduled(tmp_path, [0.0] * 9 + [1e-6])
    moved = replace(moved, parameters=moved.parameters | {"learning_rate": 0.0})
    assert results_of(moved)["training.schedule"].status == "FAIL"


@pytest.mark.parametrize("name", ["grad_norm", "loss"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_or_gradient_that_is_no_number_is_no_evidence(tmp_path: Path, name: str, value: float) -> None:
    rows = [row | {name: value if row["step"] == 4 else row[name]} for row in steps()]
    results = results_of(evidence_of(tmp_path, "train", rows))
    assert {results[id].status for id in ("training.gradient", "training.steps", "training.loss")} == {"BLOCKED"}


@pytest.mark.parametrize(
    ("norms", "status", "views"),
    [
        # As healthy trainings of small models leave them: the first is 200 times the median of all.
        ([6.5, 2.9, 3.6, 3.1, 2.0, 0.05, 0.03, 0.03, 0.03, 0.03], "PASS", []),
        ([90.0, *[1.0] * 9], "WARN", [1]),
        ([*[1.0] * 7, 30.0, 900.0, 1.0], "WARN", [8, 9]),
        ([*[1.0] * 9, 19.0], "PASS", []),
        ([*[1.0] * 9, 21.0], "WARN", [10]),
    ],
)
def test_a_spike_stands_out_from_the_steps_before_it(
    tmp_path: Path, norms: list[float], status: str, views: list[int]
) -> None:
    rows = [row | {"grad_norm": norm} for row, norm in zip(steps(), norms, strict=True)]
    check = results_of(evidence_of(tmp_path, "train", rows))["training.gradient"]
    assert (check.status, [row["step"] for row in check.rows]) == (status, views), check


# Of SmolLM2-135M on 48 short answers: the batches at the end hold harder examples.
UNEVEN = [
    *(2.586, 3.164, 1.696, 1.351, 1.349, 0.855, 1.308, 0.933, 0.886, 0.759, 0.818, 0.820),
    *(0.549, 1.133, 0.931, 0.527, 0.787, 0.428, 0.841, 0.335, 0.360, 1.325, 1.525, 0.905),
]


@pytest.mark.parametrize(
    ("losses", "status", "output"),
    [
        (UNEVEN, "PASS", ", the last 1.029: batches differ by more"),
        ([3 - index / 10 for index in range(24)], "PASS", "the last 0.85"),
        ([*UNEVEN[:21], 2.0, 2.6, 3.2], "WARN", "not the best of the run"),
    ],
)
def test_batches_that_differ_are_no_rise(tmp_path: Path, losses: list[float], status: str, output: str) -> None:
    rows = [steps()[0] | {"step": step, "loss": loss} for step, loss in enumerate(losses, 1)]
    check = results_of(evidence_of(tmp_path, "train", rows))["training.rise"]
    assert check.status == status and output in check.detail, check
    assert (check.figure is None) == (losses == UNEVEN), "a figure is shown next to the limit that it was compared with"


def test_one_step_shows_no_course_of_the_loss(tmp_path: Path) -> None:
    rising = [row | {"loss": row["step"]} for row in steps()]
    checks = [results_of(evidence_of(tmp_path, "train", rising[:count]))["training.loss"] for count in (1, 2)]
    assert [check.status for check in checks] == ["NOT_APPLICABLE", "WARN"]
    assert checks[1].detail.endswith(": it rose") and checks[1].figure == -1.0


@pytest.mark.parametrize(("planned", "logged"), [(10, 7), (None, 10)])
def test_the_schedule_is_that_of_the_planned_steps(tmp_path: Path, planned: int | None, logged: int) -> None:
    evidence = with_manifest(evidence_of(tmp_path, "train", steps()[:logged]), effective={"planned_steps": planned})
    results = results_of(evidence)
    assert (results["training.schedule"].status, results["training.steps"].status) == ("PASS", "FAIL")


@pytest.mark.parametrize(
    ("granted", "planned", "status"),
    [
        ({"batch_size": 1, "gradient_accumulation": 1, "epochs": 2}, 10, "PASS"),
        ({"batch_size": 2, "gradient_accumulation": 1, "epochs": 2}, 6, "PASS"),
        ({"batch_size": 2, "gradient_accumulation": 2, "epochs": 2}, 4, "PASS"),
        ({"batch_size": 2, "gradient_accumulation": 1, "epochs": 2}, 5, "FAIL"),
        ({"batch_size": 8, "gradient_accumulation": 1, "epochs": 3}, 3, "PASS"),
        ({"batch_size": 8, "gradient_accumulation": 1, "epochs": 3}, 4, "FAIL"),
    ],
)
def test_the_number_of_steps_is_the_one_that_data_and_batches_imply(
    tmp_path: Path, granted: dict[str, int], planned: int, status: str
) -> None:
    evidence = evidence_of(tmp_path, "train", steps()[:planned])
    evidence = replace(evidence, parameters=evidence.parameters | granted)
    seen = {"sequences": 5 * granted["epochs"], "epochs_done": float(granted["epochs"])}
    evidence = with_manifest(evidence, effective={"steps": planned, "planned_steps": planned}, facts=seen)
    assert results_of(evidence)["training.steps"].status == status


def test_starvation_states_figures_and_what_is_too_much(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "train")
    output = "2 passes over about 250 distinct tokens, 0.4 trained parameters a token"
    assert results_of(evidence)["training.starvation"].detail == output
    strict = with_thresholds(evidence, passes=1, parameters_per_token=0.3)
    assert results_of(strict)["training.starvation"].detail == (
        f"{output}: more than 1 passes, more than 0.3 parameters a token"
    )
    bare = evidence_of(tmp_path, "train", [row | {"tokens": 0} for row in steps()])
    assert results_of(bare)["training.starvation"].status == "WARN"


def test_repeated_examples_are_fewer_distinct_tokens(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "train")
    whole = results_of(evidence)["training.starvation"].figure
    write_rows(evidence.inputs["examples"], [*examples()[:1] * 3, *examples()[1:3]])
    # Three of five are distinct: 150 instead of 250 tokens carry the same 100 parameters.
    assert (whole, results_of(evidence)["training.starvation"].figure) == (0.4, pytest.approx(100 / 150))


def test_parameters_are_counted_over_all_weight_files(tmp_path: Path) -> None:
    (tmp_path / "model-1.safetensors").write_bytes(weights("a", 30))
    (tmp_path / "model-2.safetensors").write_bytes(weights("b", 12))
    assert parameters_of(tmp_path) == 42


def test_the_count_is_that_of_the_library(tmp_path: Path) -> None:
    numpy: Any = pytest.importorskip("safetensors.numpy")
    import numpy as np

    numpy.save_file({"w": np.zeros((3, 5)), "b": np.zeros(7), "s": np.array(1.0)}, tmp_path / "model.safetensors")
    assert parameters_of(tmp_path) == 3 * 5 + 7 + 1


@pytest.mark.parametrize("content", [b"", b"weights", b"\xff" * 40, (9).to_bytes(8, "little") + b"[1, 2, 3]"])
def test_a_file_that_is_no_weight_file_is_missing_evidence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(EvidenceMissing, match="no header of a weight file") as caught:
        parameters_of(tmp_path)
    # What a check says goes into the packet: it must not tell where this run lies.
    assert str(tmp_path) not in str(caught.value)


def test_no_weight_files_are_missing_evidence(tmp_path: Path) -> None:
    for folder in (None, tmp_path):
        with pytest.raises(EvidenceMissing, match="no checkpoint"):
            parameters_of(folder)


@pytest.mark.parametrize(
    ("warmup", "output"),
    [
        (5, "5 of 10 steps are warm-up, and the rate decays to 0"),
        (6, "the warm-up takes 6 of 10 steps"),
        (10, "the warm-up takes 10 steps of 10: the rate reached 9e-06 of 1e-05"),
    ],
)
def test_a_warm_up_is_reported_with_the_rate_that_it_leads_to(tmp_path: Path, warmup: int, output: str) -> None:
    evidence = evidence_of(tmp_path, "train")
    longer = replace(evidence, parameters=evidence.parameters | {"warmup_steps": warmup})
    assert results_of(longer)["training.decay"].detail == output


@pytest.mark.parametrize(("seconds", "status"), [(0.9, "PASS"), (1.1, "WARN")])
def test_the_first_step_does_not_count_as_slow(tmp_path: Path, seconds: float, status: str) -> None:
    """A step of so small a model is expected to take 0.05 s, and may have a twentieth of the speed."""
    times = [500.0, *[seconds] * 9]
    evidence = with_manifest(
        evidence_of(tmp_path, "train"), effective={"trained_parameters": 100}, facts={"step_seconds": times}
    )
    assert results_of(evidence)["training.speed"].status == status


@pytest.mark.parametrize("report", [None, "fast", [1.0] * 11, [float("nan")] * 10, ["1"] * 10])
def test_times_that_were_not_recorded_are_no_finding(tmp_path: Path, report: object) -> None:
    evidence = with_manifest(
        evidence_of(tmp_path, "train"), effective={"trained_parameters": 100}, facts={"step_seconds": report}
    )
    assert results_of(evidence)["training.speed"].status == "NOT_APPLICABLE"
