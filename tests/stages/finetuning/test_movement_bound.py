"""How far logged steps can carry the weights: the bound against torch's own optimizers, and what passes beyond it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from reviews.evidence.evidence import Evidence
from reviews.stages.finetuning.weights import adam_bound, course_of, far_steps, movement_bound
from specs.stages.finetuning.distributed import DistributedTraining
from testing.factories.evidence_on_disk import evidence_of, steps, with_manifest, write_rows
from testing.factories.judged_evidence import results_of
from tests.stages.finetuning.test_movement import moved_by, tensors
from training.jobs.finetuning.replicas.outer_weights import outer_of
from training.rules import weight_files

DRAWS: dict[str, Callable[[random.Random, int], float]] = {
    "noise": lambda draw, _: draw.gauss(0, 1),
    "agreeing": lambda draw, _: draw.gauss(1, 0.1),
    "constant": lambda _, __: 1.0,
    "growing": lambda _, step: 1.12**step,
    "fading": lambda _, step: 0.8**step,
    "rare": lambda draw, _: draw.gauss(0, 1) * (draw.random() < 0.05),
    "a spike": lambda _, step: 1e4 if step == 30 else 1e-3,
    "pulses": lambda _, step: float(step % 17 == 0),
}


def walk(name: str, rates: list[float], dtype: torch.dtype, decay: float = 0.0, size: float = 0.3) -> list[list[float]]:
    """Return eight weights after each step of torch's fused AdamW."""
    draws = [random.Random(f"{name} {number}") for number in range(8)]
    weights = torch.nn.Parameter(torch.tensor([size * draw.gauss(0, 1) for draw in draws]).to(dtype))
    optimizer = torch.optim.AdamW([weights], lr=1.0, weight_decay=decay, fused=True)
    rows = [weights.tolist()]
    for step, rate in enumerate(rates, 1):
        optimizer.param_groups[0]["lr"] = rate
        weights.grad = torch.tensor([DRAWS[name](draw, step) for draw in draws]).to(dtype)
        optimizer.step()
        rows.append(weights.tolist())
    return rows


def logged(folder: Path, values: list[list[float]], rates: list[float], dtype: str, **parameters: Any) -> Evidence:
    """Return a training whose rows state these weights, and whose files hold their start and end."""
    folder.mkdir(exist_ok=True)
    lines = [
        row | {"learning_rate": rate, "sketch": [1.0, *(float(f"{value:.9g}") for value in weights)]}
        for row, rate, weights in zip(steps(len(rates)), rates, values[1:], strict=True)
    ]
    evidence = with_manifest(evidence_of(folder, "train", lines), dtype=dtype)
    tensors(evidence.inputs["model"], all=values[0])
    tensors(evidence.outputs["checkpoint"], all=values[-1])
    return replace(evidence, parameters=evidence.parameters | parameters)


def schedule(kind: str, count: int, peak: float) -> list[float]:
    return {
        "constant": [peak] * count,
        "linear": [peak * (count - step) / count for step in range(count)],
        "warm-up": [peak * min(1.0, step / (count // 2)) for step in range(count)],
    }[kind]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize(
    ("kind", "peak", "decay"), [("linear", 1e-3, 0.0), ("warm-up", 1e-4, 0.1), ("constant", 1e-2, 1.0)]
)
def test_no_gradients_carry_torchs_adam_beyond_the_bound(
    tmp_path: Path, name: str, dtype: str, kind: str, peak: float, decay: float
) -> None:
    rates = schedule(kind, 300, peak)
    values = walk(name, rates, getattr(torch, dtype), decay)
    evidence = logged(tmp_path, values, rates, dtype, weight_decay=decay)
    far, share = far_steps(evidence)
    assert far == [] and share <= 1
    course = course_of(evidence)
    assert course is not None and course.farthest <= course.most


def test_the_bound_is_reached_by_the_worst_gradients() -> None:
    """Gradients that Cauchy and Schwarz make equal: each is a fixed factor of the one before."""
    for last in (1, 2, 7, 40):
        weights = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
        optimizer = torch.optim.AdamW([weights], lr=1.0, weight_decay=0.0, eps=0.0)
        before = 0.0
        for step in range(1, last + 1):
            before = weights.item()
            weights.grad = torch.tensor([(0.9 / 0.999) ** (last - step)], dtype=torch.float64)
            optimizer.step()
        assert abs(weights.item() - before) == pytest.approx(adam_bound(last), rel=1e-9)
    assert adam_bound(1) == pytest.approx(1) and 7.2 < adam_bound(100_000) < 7.28
    assert all(adam_bound(step) < adam_bound(step + 1) for step in range(1, 2000, 7))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("name", ["constant", "noise", "growing"])
def test_outer_steps_of_replicas_are_part_of_the_bound(tmp_path: Path, name: str, momentum: float) -> None:
    """DiLoCo by hand: two replicas, five steps each, then torch's outer SGD over the mean of what they changed."""
    distributed = {"replicas": 2, "sync_every": 5, "outer": {"lr": 0.7, "momentum": momentum}}
    rates, values = [1e-3] * 43, [[0.2, -0.4]]
    arguments = DistributedTraining.model_validate(distributed)
    shared = torch.nn.Parameter(torch.tensor(values[0]))
    outer = outer_of([shared], arguments)
    replicas = [torch.nn.Parameter(shared.detach().clone()) for _ in range(2)]
    inner = [torch.optim.AdamW([replica], lr=1e-3, weight_decay=0.0) for replica in replicas]
    draw = random.Random(name)
    for step in range(1, 44):
        for replica, optimizer in zip(replicas, inner, strict=True):
            replica.grad = torch.tensor([DRAWS[name](draw, step) for _ in range(2)])
            optimizer.step()
        if step % 5 == 0 or step == 43:
            shared.grad = torch.stack([shared.detach() - replica.detach() for replica in replicas]).mean(0)
            outer.step()
            for replica in replicas:
                replica.data.copy_(shared.detach())
        values.append(torch.stack([replica.detach() for replica in replicas]).mean(0).tolist())
    evidence = logged(tmp_path / "rows", values, rates, "float32", distributed=distributed)
    far, share = far_steps(evidence)
    assert far == [] and share <= 1
    course = course_of(evidence)
    assert course is not None and course.farthest <= course.most
    if name == "constant" and momentum:
        alone = replace(evidence, parameters=evidence.parameters | {"distributed": None})
        assert far_steps(alone)[0], "outer steps with momentum go beyond the steps of one process"


@pytest.mark.parametrize("hidden", [1, 3, 60])
def test_hidden_steps_between_two_rows_are_found(tmp_path: Path, hidden: int) -> None:
    """Three steps where a row tells of one: steps that agree are as long as the rate."""
    rates = schedule("linear", 40, 1e-3)
    whole = [rate for place, rate in enumerate(rates) for _ in range(1 + hidden * (place == 20))]
    values = walk("agreeing", whole, torch.float32)
    rows = [*values[:21], *values[21 + hidden :]]
    evidence = logged(tmp_path, rows, rates, "float32")
    far, share = far_steps(evidence)
    assert [step.step for step in far] == [21] and share > 1
    result = results_of(evidence)["training.path"]
    assert result.status == "FAIL" and "in 1 steps a weight moved farther" in result.detail
    assert result.rows[0]["step"] == 21 and result.rows[0]["moved"] > result.rows[0]["at_most"]


def test_weights_beyond_the_sum_of_all_steps_fail_however_the_rows_are_spread(tmp_path: Path) -> None:
    rates = schedule("linear", 40, 1e-3)
    values = walk("agreeing", [rate for rate in rates for _ in range(4)], torch.float32)
    evidence = logged(tmp_path, [values[0], *values[4::4]], rates, "float32")
    result = results_of(evidence)["training.moved"]
    assert result.status == "FAIL" and "the rows do not hold what changed the weights" in result.detail
    honest = logged(tmp_path / "honest", walk("agreeing", rates, torch.float32), rates, "float32")
    assert results_of(honest)["training.moved"].status == "PASS"


def test_a_single_weight_that_was_set_by_hand_is_found(tmp_path: Path) -> None:
    """The root mean square of its tensor hardly moves."""
    evidence = moved_by(tmp_path, 1e-5)
    assert results_of(evidence)["training.moved"].status == "PASS"
    before = [0.01] * 50_000
    tensors(evidence.inputs["model"], far=before)
    tensors(evidence.outputs["checkpoint"], far=[0.015, *(value + 1e-5 for value in before[1:])])
    assert results_of(evidence)["training.moved"].status == "FAIL"


def test_weights_that_moved_at_a_rate_of_0_fail(tmp_path: Path) -> None:
    control = moved_by(tmp_path, 1e-3, learning_rate=0)
    write_rows(control.outputs["rows"], [row | {"learning_rate": 0.0} for row in steps()])
    assert results_of(control)["training.moved"].status == "FAIL"
    (tmp_path / "still").mkdir()
    still = moved_by(tmp_path / "still", 0.0, learning_rate=0)
    write_rows(still.outputs["rows"], [row | {"learning_rate": 0.0, "sketch": [1.0, 0.1]} for row in steps()])
    result = results_of(still)
    assert result["training.moved"].status == "NOT_APPLICABLE" and result["training.path"].status == "PASS"


def test_an_optimizer_of_8_bits_is_only_warned_of(tmp_path: Path) -> None:
    evidence = moved_by(tmp_path, 1e-2, optimizer_kind="paged_adamw_8bit")
    rows = [row | {"sketch": [1.0, 0.1 * row["step"]]} for row in steps()]
    write_rows(evidence.outputs["rows"], rows)
    result = results_of(evidence)
    assert (result["training.moved"].status, result["training.path"].status) == ("WARN", "WARN")


def test_rounding_to_16_bits_at_the_end_is_no_movement(tmp_path: Path) -> None:
    """Trained in 32 bits at a small rate, left in 16: each weight is off by up to a half of its last bit."""
    evidence = moved_by(tmp_path, 1e-5)
    bound = movement_bound(evidence).whole
    assert bound.of(1.0) < 2.0**-8
    base = [0.50195, 0.3, -0.50195]  # Halfway between two numbers of 16 bits lies 0.501953125.
    tensors(evidence.inputs["model"], far=base)
    rounded = torch.tensor([value + 9e-6 for value in base]).to(torch.bfloat16)
    save_file({"far": rounded}, evidence.outputs["checkpoint"] / "model.safetensors")
    change = weight_files.compare(evidence.inputs["model"], evidence.outputs["checkpoint"])
    assert max(shift.farthest for shift in change.shifts) > bound.of(1.0), "a weight rounds to the next number"
    assert results_of(evidence)["training.moved"].status == "PASS"


@pytest.mark.parametrize("sketch", [[], [1.0, 0.1], [1.0, 0.0, 0.1, 0.2, 0.3, 0.4]])
def test_a_row_without_weights_or_with_others_blocks(tmp_path: Path, sketch: list[float]) -> None:
    rows = steps()
    rows[4]["sketch"] = sketch
    result = results_of(evidence_of(tmp_path, "train", rows))["training.path"]
    assert result.status == "BLOCKED" and "the row of step 5 does not state" in result.detail
