"""A stage that has to run on a GPU, on a machine without one: refused before anything is opened or launched."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from sessions.commands.cli import app
from sessions.jobs import machine_capacity
from sessions.jobs.local_launcher import LocalLauncher
from sessions.run.money import estimate
from sessions.runtime.wiring import require_machine
from specs.loading.loading import find_spec, load_spec
from specs.system.errors import BlockedError
from testing.factories.sessions_on_disk import open_session
from testing.factories.spec_files import loads, write_spec

PARAMETERS = "    parameters: {learning_rate: 1e-5, epochs: 2, seed: 7}\n"
ON_A_GPU = (PARAMETERS, PARAMETERS.replace("seed: 7", "seed: 7, device: cuda"))
PROFILES = "profile: cpu\nprofiles:\n  cpu: {}\n  gpu: {stages: {train: {parameters: {device: cuda}}}}\n"


@pytest.fixture
def machine_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that stands for /proc and /dev: no GPU in it. Its disk has room for everything."""
    (tmp_path / "dev").mkdir()
    monkeypatch.setattr(machine_capacity, "_NVIDIA", tmp_path / "gpus")
    monkeypatch.setattr(machine_capacity, "_DEVICES", tmp_path / "dev")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def roomy(_: Path) -> SimpleNamespace:
        return SimpleNamespace(free=10**15)

    monkeypatch.setattr(estimate.shutil, "disk_usage", roomy)
    return tmp_path


def with_profiles(folder: Path) -> Path:
    path = write_spec(folder)
    path.write_text(path.read_text(encoding="utf-8") + PROFILES, encoding="utf-8")
    return path


def test_gpus_are_counted_where_the_driver_or_a_container_shows_them(
    machine_of: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert machine_capacity.gpus() == 0
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (machine_of / "dev" / name).touch()
    assert machine_capacity.gpus() == 2
    (machine_of / "gpus" / "0000:01:00.0").mkdir(parents=True)
    assert machine_capacity.gpus() == 1
    for visible, seen in (("0", 1), ("", 0), ("-1", 0), ("-1,0", 0), ("0,-1", 1), ("GPU-abc", 1), ("0,1", 1)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert machine_capacity.gpus() == seen, visible


def test_start_refuses_before_anything_is_opened(machine_of: Path) -> None:
    path, runs = with_profiles(machine_of), machine_of / "runs"
    result = CliRunner().invoke(app, ["start", str(path), "--profile", "gpu", "--runs", str(runs)])
    assert isinstance(result.exception, BlockedError) and result.exception.exit_code == 4
    assert str(result.exception).splitlines() == [
        "train: this machine has no NVIDIA GPU, the stage has device: cuda",
        "  take another `--profile` or `launcher:`, or resume on a machine with a GPU",
    ]
    assert not runs.exists()


def test_where_there_is_one_it_is_not_refused(machine_of: Path) -> None:
    spec = load_spec(with_profiles(machine_of), "gpu").spec
    with pytest.raises(BlockedError, match="train: this machine has no NVIDIA GPU"):
        require_machine(spec)
    (machine_of / "dev" / "nvidia0").touch()
    require_machine(spec)


def test_another_machine_may_have_one(machine_of: Path) -> None:
    for launcher in ("ray", "skypilot"):
        text = f"launcher: {launcher}\nresources: {{gpus: 1, gpu: H200, max_usd_per_hour: 1}}\nbudget:\n"
        require_machine(loads(write_spec(machine_of, ON_A_GPU, ("budget:\n", text))).spec)


def test_a_stage_that_takes_what_there_is_runs_anywhere(machine_of: Path) -> None:
    for device in ("auto", "cpu"):
        changed = (PARAMETERS, PARAMETERS.replace("seed: 7", f"seed: 7, device: {device}"))
        require_machine(loads(write_spec(machine_of, changed)).spec)


def test_a_session_that_was_brought_here_launches_no_job(machine_of: Path) -> None:
    session = open_session(machine_of / "run", ON_A_GPU)
    session.decide(None, 1, "approve")
    order = session.order(session.mint())
    order = order.model_copy(update={"parameters": order.parameters | {"device": "cuda"}})
    folder = session.run / "jobs" / order.key
    folder.mkdir(parents=True)
    (folder / "order.json").write_bytes(order.canonical())
    with pytest.raises(BlockedError, match="this machine has no NVIDIA GPU, the stage has device: cuda"):
        LocalLauncher().start(folder)
    assert not (folder / "wrapper.log").exists()
    session.trail.close()


@pytest.mark.more
def test_spec_check_says_of_every_profile_what_is_missing_here(machine_of: Path) -> None:
    result = CliRunner().invoke(app, ["spec", "check", "self_instruct_sft"])
    missing = "  not on this machine: base_model_check: this machine has 0 of 1 requested GPUs"
    assert result.exit_code == 0 and result.stdout.splitlines().count(missing) == 2
    (machine_of / "dev" / "nvidia0").touch()
    assert missing not in CliRunner().invoke(app, ["spec", "check", "self_instruct_sft"]).stdout


@pytest.mark.more
def test_spec_check_says_so_in_json(machine_of: Path) -> None:
    data = json.loads(CliRunner().invoke(app, ["spec", "check", "cai_preferences", "--json"]).stdout)
    assert [profile for profile, lacks in data["lacking_here"].items() if lacks] == ["gpu", "gpu80"]


def test_spec_check_of_a_profile_that_cannot_start_here_ends_as_start_does(machine_of: Path) -> None:
    path = find_spec("self_instruct_sft")
    result = CliRunner().invoke(app, ["spec", "check", str(path), "--profile", "gpu80", "--json"])
    assert isinstance(result.exception, BlockedError) and "registration" in result.stdout
    assert CliRunner().invoke(app, ["spec", "check", str(path), "--profile", "cpu"]).exit_code == 0


def test_asking_takes_no_torch() -> None:
    code = (
        "import sys; from sessions.jobs import machine_capacity; from sessions.runtime import wiring;"
        "machine_capacity.gpus();"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
