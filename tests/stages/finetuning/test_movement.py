"""How far weights moved, held against the learning rates: on weight files made by hand and by a walk of many steps."""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reviews.audit import recompute
from reviews.evidence.evidence import Evidence
from reviews.gate.check_list import CHECKS
from reviews.stages.finetuning.weights import LEAST_SHARE, course_of
from specs.trail.verdict import CheckResult
from testing.factories.evidence_on_disk import evidence_of, steps, with_manifest, write_rows
from testing.factories.judged_evidence import results_of

DUE = math.hypot(*(row["learning_rate"] for row in steps()))


def tensors(folder: Path, **values: Sequence[float]) -> Path:
    """Write a weight file of tensors of 32 bits."""
    header: dict[str, Any] = {}
    data = b""
    for name, numbers in values.items():
        start = len(data)
        data += struct.pack(f"<{len(numbers)}f", *numbers)
        header[name] = {"dtype": "F32", "shape": [len(numbers)], "data_offsets": [start, len(data)]}
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    return folder


def moved_by(folder: Path, distance: float, scale: float = 0.02, **parameters: Any) -> Evidence:
    """Return a run in which every weight of one tensor moved so far, and half as far in another."""
    evidence = evidence_of(folder, "train")
    draw = random.Random(1)
    before = [draw.gauss(0, scale) for _ in range(400)]
    signs = [draw.choice((-1, 1)) for _ in before]
    tensors(evidence.inputs["model"], far=before, near=before, still=before)
    tensors(
        evidence.outputs["checkpoint"],
        far=[number + sign * distance for number, sign in zip(before, signs, strict=True)],
        near=[number + sign * distance / 2 for number, sign in zip(before, signs, strict=True)],
        still=before,
    )
    return replace(evidence, parameters=evidence.parameters | parameters)


@pytest.mark.parametrize(
    ("share", "status"), [(3.0, "PASS"), (0.3, "PASS"), (0.011, "PASS"), (0.009, "FAIL"), (1e-3, "FAIL")]
)
def test_weights_move_as_far_as_the_rates_make_them(tmp_path: Path, share: float, status: str) -> None:
    evidence = moved_by(tmp_path, share * DUE)
    course = course_of(evidence)
    assert course is not None and course.changed == 2
    assert course.expected == pytest.approx(DUE) and course.share == pytest.approx(share, rel=0.05)
    check = results_of(evidence)["training.moved"]
    assert check.status == status
    assert ("not at the granted rate" in check.detail) == (status == "FAIL")


def test_a_dead_optimiser_fails_after_a_single_pass_too(tmp_path: Path) -> None:
    one_pass = moved_by(tmp_path, 1e-3 * DUE, epochs=1)
    assert results_of(one_pass)["training.moved"].status == "FAIL"


@pytest.mark.parametrize(
    ("rate", "loss", "status"),
    [
        (1e-9, 2.0, "FAIL"),
        (1e-11, 2.0, "FAIL"),
        # However a single pass went: what rates of 1e-9 move is noise.
        (1e-9, None, "FAIL"),
        (1e-6, None, "PASS"),
    ],
)
def test_a_rate_at_which_nothing_can_be_learnt_fails(
    tmp_path: Path, rate: float, loss: float | None, status: str
) -> None:
    """Steps of 1e-11 are rounded away where weights are 5: that one of 40,000 moved says nothing then."""
    evidence = moved_by(tmp_path, rate, learning_rate=rate)
    if rate < 1e-9:
        tensors(evidence.inputs["model"], far=[0.0] + [5.0] * 39_999)
        tensors(evidence.outputs["checkpoint"], far=[rate] + [5.0] * 39_999)
    evidence = with_manifest(evidence, effective={"trained_parameters": 40_000})
    rates = [row | {"learning_rate": row["learning_rate"] * rate / 1e-5} for row in steps()]
    write_rows(evidence.outputs["rows"], rates if loss is None else [row | {"loss": loss} for row in rates])
    checks = results_of(evidence)
    assert {name: checks[name].status for name in ("training.schedule", "training.moved", "training.loss")} == {
        "training.schedule": "PASS",
        "training.moved": "PASS",
        "training.loss": status,
    }
    assert ("the learning rate is too small" in checks["training.loss"].detail) == (status == "FAIL")


@pytest.mark.parametrize(("first", "fails"), [(3, True), (7, False)])
def test_a_curve_that_is_level_to_the_last_digit_was_invented(tmp_path: Path, first: int, fails: bool) -> None:
    rows = [row | {"loss": 1.0} if row["step"] >= first else row for row in steps()]
    result = results_of(evidence_of(tmp_path, "train", rows))["training.loss"]
    assert (result.status == "FAIL", "one loss to the last digit" in result.detail) == (fails, fails), result.detail


def test_a_loss_that_stays_at_a_rate_that_could_lower_it_fails(tmp_path: Path) -> None:
    rows = [row | {"loss": 2.0} for row in steps()]
    assert results_of(evidence_of(tmp_path, "train", rows))["training.loss"].status == "FAIL"


@pytest.mark.parametrize(("moved", "status"), [(DUE, "PASS"), (1e-4 * DUE, "FAIL"), (None, "BLOCKED")])
def test_adapters_are_measured_themselves(tmp_path: Path, moved: float | None, status: str) -> None:
    """What they add to the merged weights is much smaller than the rates."""
    evidence = moved_by(tmp_path, 1e-4 * DUE, method="lora", lora_rank=1, target_modules=["q_proj"])
    if moved is not None:
        adapter = {"base.q_proj.lora_A.weight": [0.5] * 4, "base.q_proj.lora_B.weight": [moved, -moved]}
        tensors(evidence.outputs["checkpoint"] / "adapter", **adapter)
    assert evidence.manifest is not None
    effective = evidence.manifest.effective | {"trained_parameters": 0}
    evidence = replace(evidence, manifest=evidence.manifest.model_copy(update={"effective": effective}))
    check = results_of(evidence)["training.moved"]
    assert check.status == status, check.detail


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("signal", [0.0, 1.0])
def test_adam_moves_weights_farther_than_the_limit_after_many_steps(seed: int, signal: float) -> None:
    """Of gradients that are only noise, the least a live optimiser gets, and of such that agree; 20,000 steps."""
    draw, weight, first, second, rates = random.Random(seed), 0.0, 0.0, 0.0, list[float]()
    for step in range(1, 20_001):
        gradient = draw.gauss(signal, 1)
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        rates.append(1e-4 * (1 - step / 20_001))
        weight -= rates[-1] * (first / (1 - 0.9**step)) / (math.sqrt(second / (1 - 0.999**step)) + 1e-8)
    assert abs(weight) > 5 * LEAST_SHARE * math.hypot(*rates)
    assert abs(weight) < sum(rates)


def test_where_weights_are_gone_an_audit_takes_what_was_found_and_says_so() -> None:
    def result(id: str, detail: str) -> CheckResult:
        return CheckResult(id=id, title=id, status="PASS", blocking=True, detail=detail)

    packet: Any = SimpleNamespace(checks=(result("training.moved", "it moved by 1"), result("training.data", "then")))
    now = (result("training.moved", "a new one"), result("training.data", "now"))
    notes: list[str] = []
    taken = recompute._as_with_weights(CHECKS, now, packet, "train.1", notes)  # pyright: ignore[reportPrivateUsage]
    assert [check.detail for check in taken] == ["it moved by 1", "now"], "only what compares weights is taken"
    assert notes == ["train.1: training.moved compared weights that are not here: taken as recorded"]
    assert recompute._as_with_weights(CHECKS, packet.checks, packet, "train.1", []) == packet.checks  # pyright: ignore[reportPrivateUsage]
