"""How long a job's GPU has been idle: a real program stands for nvidia-smi, real wrappers ask it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from sessions.jobs import gpu_use
from sessions.jobs.gpu_use import GpuUse
from sessions.jobs.job_state import gpu_idle_s
from testing.factories.sessions_on_disk import first_order
from testing.fixtures import wrapper_driver

IDLE, BUSY, TWO = "printf '0\\n'", "printf '97\\n'", "printf '0\\n61\\n'"
HIDDEN: list[dict[str, str]] = [{"CUDA_VISIBLE_DEVICES": "-1"}, {"CUDA_VISIBLE_DEVICES": ""}]


def nvidia_smi(folder: Path, script: str) -> dict[str, str]:
    """Put a program of this name on a path, and return an environment with it."""
    folder.mkdir(exist_ok=True)
    program = folder / "nvidia-smi"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> "{folder}/asked"\n{script}\n', encoding="utf-8")
    program.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def sampled(use: GpuUse, monkeypatch: pytest.MonkeyPatch, *at: float) -> float | None:
    for now in at:
        monkeypatch.setattr(gpu_use.time, "monotonic", lambda now=now: now)
        use.sample()
    return use.idle_s


@pytest.mark.parametrize(
    ("script", "idle_s"),
    [
        (IDLE, 30.0),
        ("printf '4\\n0\\n'", 30.0),
        (BUSY, 0.0),
        (TWO, 0.0),
        ("printf '5\\n'", 0.0),
        ("printf '[N/A]\\n'", None),
        ("", None),
        ("printf '0\\n'; exit 9", None),
        ("exec sleep 9", None),
    ],
)
def test_a_gpu_is_idle_while_nvidia_smi_says_so(
    script: str, idle_s: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_use, "ANSWER_S", 0.5 if "sleep" in script else 20.0)
    use = GpuUse({"device": "cuda"}, nvidia_smi(tmp_path / "bin", script))
    assert use.idle_s is None
    real = time.monotonic
    assert sampled(use, monkeypatch, 100.0, 115.0, 130.0) == idle_s
    monkeypatch.setattr(gpu_use.time, "monotonic", real)


def test_one_busy_sample_ends_idleness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = nvidia_smi(tmp_path / "bin", IDLE)
    use = GpuUse({}, environ)
    assert sampled(use, monkeypatch, 100.0, 160.0) == 60.0
    nvidia_smi(tmp_path / "bin", BUSY)
    assert sampled(use, monkeypatch, 170.0) == 0.0
    nvidia_smi(tmp_path / "bin", IDLE)
    assert sampled(use, monkeypatch, 180.0, 195.0) == 25.0


def test_only_the_gpus_that_the_job_sees_are_asked(tmp_path: Path) -> None:
    environ = nvidia_smi(tmp_path / "bin", IDLE)
    GpuUse({}, environ | {"CUDA_VISIBLE_DEVICES": "1,3"}).sample()
    assert (tmp_path / "bin" / "asked").read_text().split()[-2:] == ["--id", "1,3"]


@pytest.mark.parametrize(
    ("device", "hidden"), [("cpu", {}), *(("auto", row) for row in HIDDEN), ("cuda", {"PATH": ""})]
)
def test_without_a_gpu_nothing_is_sampled(device: str, hidden: dict[str, str], tmp_path: Path) -> None:
    environ = nvidia_smi(tmp_path / "bin", IDLE) | hidden
    before = set(threading.enumerate())
    GpuUse({"device": device}, environ).watch()
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("script", [IDLE, BUSY])
def test_a_real_wrapper_says_it_with_every_heartbeat(script: str, tmp_path: Path) -> None:
    folder = tmp_path / "run" / "jobs" / "s.train.1"
    folder.mkdir(parents=True)
    (folder / "order.json").write_bytes(first_order(tmp_path / "other").canonical())
    program = "import sys, time, pathlib\nwhile not (pathlib.Path(sys.argv[1]) / 'enough').exists(): time.sleep(0.05)"
    environ = os.environ | nvidia_smi(tmp_path / "bin", script)
    # A library that this worker has imported may have hidden the GPUs from all that it starts.
    environ.pop("CUDA_VISIBLE_DEVICES", None)
    with subprocess.Popen([sys.executable, wrapper_driver.__file__, program, str(folder)], env=environ) as started:
        try:
            until = time.monotonic() + 60
            while time.monotonic() < until and not _is_reported(folder, script):
                time.sleep(0.05)
            result = gpu_idle_s(folder)
        finally:
            (folder / "enough").touch()
            assert started.wait(60) == 0
    assert json.loads((folder / "exit.json").read_bytes())["code"] == 0
    assert result is not None and (result >= 0.4 if script == IDLE else result == 0.0)


def _is_reported(folder: Path, script: str) -> bool:
    path = folder.parents[2] / "bin" / "asked"
    enough = path.exists() and len(path.read_text().splitlines()) > 3
    return enough and (script != IDLE or (gpu_idle_s(folder) or 0) >= 0.4)


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b'{"gpu_idle_s": "9"}', b"x" * 9999])
def test_a_heartbeat_that_is_none_says_nothing(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "heartbeat.json").write_bytes(data)
    assert gpu_idle_s(tmp_path) is None
    (tmp_path / "heartbeat.json").unlink()
    assert gpu_idle_s(tmp_path) is None
    (tmp_path / "heartbeat.json").symlink_to("/etc/passwd")
    assert gpu_idle_s(tmp_path) is None
