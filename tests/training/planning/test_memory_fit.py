"""Planned memory next to what a machine has: what exceeds it is refused, with changes that really fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sessions.jobs import machine_capacity
from specs.loading.loading import load_spec
from specs.session.session_spec import SessionSpec
from testing.factories.spec_files import write_spec
from training.planning import memory_fit
from training.planning.memory_fit import Capacity, misfits
from training.planning.stage_plans import plan_of
from training.planning.training_memory import GB

TRAINING = "epochs: 2, seed: 7"


def spec_with(folder: Path, parameters: str, shape: str = "") -> SessionSpec:
    changes = [(TRAINING, f"epochs: 2, seed: 7, packing: true, {parameters}")]
    if shape:
        changes.append(("kind: instruct", f"kind: instruct, shape: {shape}"))
    return load_spec(write_spec(folder, *changes)).spec


def test_batches_are_as_long_as_their_longest_row(tmp_path: Path) -> None:
    """A generous max_length costs nothing where rows are short; packed sequences are filled."""
    path = write_spec(tmp_path, (TRAINING, "epochs: 2, seed: 7, max_length: 8192"))
    spec = load_spec(path).spec
    (stage,) = [stage for stage in spec.stages if stage.kind == "sft"]
    padded = plan_of(spec, stage, tmp_path, gpu=False).device_bytes
    packed = stage.model_copy(update={"parameters": stage.parameters.model_copy(update={"packing": True})})
    filled = plan_of(spec, packed, tmp_path, gpu=False).device_bytes
    assert padded is not None and filled is not None and 5 * padded < filled


def planned(spec: SessionSpec, *, gpu: bool) -> float:
    (stage,) = [stage for stage in spec.stages if stage.kind == "sft"]
    needed = plan_of(spec, stage, Path(), gpu=gpu).device_bytes
    assert needed is not None
    return needed


@pytest.mark.parametrize("gpu", [False, True])
def test_what_exceeds_is_refused_and_what_nearly_fills_is_a_warning(tmp_path: Path, gpu: bool) -> None:
    spec = spec_with(tmp_path, "batch_size: 64, max_length: 2048")
    (stage,) = [stage.name for stage in spec.stages if stage.kind == "sft"]
    needed = planned(spec, gpu=gpu)
    for share, expected in ((0.99, [True]), (1.05, [False]), (1.2, [])):
        capacity = Capacity("this machine", needed * share, gpu)
        assert [misfit.exceeds for misfit in misfits(spec, tmp_path, {stage: capacity})] == expected
    assert list(misfits(spec, tmp_path, {})) == []


@pytest.mark.parametrize(
    ("parameters", "shape", "capacity"),
    [
        ("batch_size: 64, max_length: 2048", "", Capacity("this machine", 24 * GB, gpu=False)),
        ("batch_size: 4, max_length: 4096", "Qwen2.5-7B", Capacity("a card of kind H100", 80 * GB, gpu=True)),
        ("batch_size: 1, max_length: 512", "Qwen2.5-7B", Capacity("a card of kind L4", 24 * GB, gpu=True)),
    ],
)
def test_every_offered_change_fits(tmp_path: Path, parameters: str, shape: str, capacity: Capacity) -> None:
    spec = spec_with(tmp_path, parameters, shape)
    (stage,) = [stage for stage in spec.stages if stage.kind == "sft"]
    (misfit,) = misfits(spec, tmp_path, {stage.name: capacity})
    assert misfit.exceeds and misfit.changes
    for number, change in enumerate(misfit.changes):
        folder = tmp_path / str(number)
        folder.mkdir()
        names = {part.partition(":")[0].strip() for part in change.split(",")}
        selected = [part.strip() for part in parameters.split(",") if part.partition(":")[0].strip() not in names]
        changed = spec_with(folder, ", ".join([*selected, change]), shape)
        assert planned(changed, gpu=capacity.gpu) <= memory_fit.NEAR * capacity.bytes, change


def test_a_model_that_is_too_large_has_no_way_out(tmp_path: Path) -> None:
    spec = spec_with(tmp_path, "batch_size: 1", "Qwen2.5-32B")
    (stage,) = [stage.name for stage in spec.stages if stage.kind == "sft"]
    (misfit,) = misfits(spec, tmp_path, {stage: Capacity("this machine", 24 * GB, gpu=False)})
    assert misfit.changes == ()


@pytest.mark.parametrize(
    ("resources", "launcher", "card_bytes", "expected"),
    [
        (
            "{gpus: 1, gpu: H100, max_usd_per_hour: 3}",
            "skypilot",
            None,
            Capacity("a card of kind H100", 80 * GB, gpu=True),
        ),
        ("{gpus: 1, gpu: Unheard, max_usd_per_hour: 3}", "skypilot", None, None),
        ("{cpus: 1}", "ray", None, None),
        ("{cpus: 1}", "local", None, Capacity("this machine", 7 * GB, gpu=False)),
        ("{cpus: 1}", "local", 48 * GB, Capacity("the GPU of this machine", 48 * GB, gpu=True)),
    ],
)
def test_what_will_run_a_stage(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    resources: str,
    launcher: str,
    card_bytes: int | None,
    expected: Any,
) -> None:
    monkeypatch.setattr(machine_capacity, "memory_bytes", lambda: 7 * GB)
    monkeypatch.setattr(machine_capacity, "card_bytes", lambda: card_bytes)
    monkeypatch.setattr(machine_capacity, "gpus", lambda: int(card_bytes is not None))
    change = ("analysis:\n", f"launcher: {launcher}\nresources: {resources}\nanalysis:\n")
    spec = load_spec(write_spec(tmp_path, change)).spec
    capacities = machine_capacity.capacities(spec)
    assert {capacities.get(stage.name) for stage in spec.stages if stage.kind == "sft"} == {expected}


def test_a_containers_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory.max").write_text("5000000\n")
    monkeypatch.setattr(machine_capacity, "_CGROUP_LIMITS", (tmp_path / "memory.max", tmp_path / "none"))
    assert machine_capacity.memory_bytes() == 5_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert machine_capacity.memory_bytes() > 5_000_000
