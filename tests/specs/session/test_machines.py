"""Where jobs run and what they ask for: registered, bound in the grant, reserved for, refused where it is missing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sessions.jobs import machine_capacity
from sessions.jobs.engine_launcher import EngineLauncher
from sessions.jobs.job_environment import job_environment
from sessions.jobs.launcher import PerStage, submit
from sessions.jobs.local_launcher import LocalLauncher
from sessions.jobs.skypilot.skypilot_engine import SkyEngine
from sessions.run.money.ledger import reserve_job, settle_job
from sessions.runtime import runtime, wiring
from specs.session.operations import attempt_usd, fill_resources, held_hours
from specs.system.errors import BlockedError, BudgetExceeded
from specs.system.resources import Resources
from testing.factories.sessions_on_disk import OnDisk, open_session
from testing.factories.spec_files import loads, problems_of, write_spec

BASE = "  - name: base\n"


def with_session(text: str) -> tuple[str, str]:
    return ("budget:\n", f"{text}budget:\n")


def with_stage(text: str) -> tuple[str, str]:
    return (BASE, f"{BASE}{text}")


def list_problems(folder: Path, *changes: tuple[str, str]) -> list[str]:
    return [str(problem).replace(f"{folder}/", "") for problem in problems_of(write_spec(folder, *changes))]


# ---- what is registered ---------------------------------------------------------------------------------------


def test_a_spec_that_asks_for_nothing_runs_its_jobs_here(tmp_path: Path) -> None:
    assert loads(write_spec(tmp_path)).spec.launcher_of("base") == "local"


def test_a_stages_own_values_stand_before_the_sessions(tmp_path: Path) -> None:
    session = with_session("launcher: ray\nresources: {cpus: 2, memory_gb: 8, max_usd_per_hour: 0.5}\n")
    stage = with_stage("    launcher: local\n    resources: {cpus: 1}\n")
    spec = loads(write_spec(tmp_path, session, stage)).spec
    assert (spec.launcher_of("base"), spec.launcher_of("train")) == ("local", "ray")
    assert spec.stage("base").resources == Resources(cpus=1, memory_gb=8, max_usd_per_hour=0.5)
    assert spec.stage("train").resources == Resources(cpus=2, memory_gb=8, max_usd_per_hour=0.5)


@pytest.mark.parametrize(
    ("own", "other", "both"),
    [
        (None, None, None),
        (Resources(gpus=0), None, Resources(gpus=0)),
        (None, Resources(gpus=2), Resources(gpus=2)),
        (Resources(gpus=0), Resources(gpus=2, cpus=4), Resources(gpus=0, cpus=4)),
        (Resources(spot=False), Resources(spot=True), Resources(spot=False)),
    ],
)
def test_what_is_stated_is_not_filled(own: Any, other: Any, both: Any) -> None:
    assert fill_resources(own, other) == both


# ---- rules ----------------------------------------------------------------------------------------------------


def test_every_rule_on_machines_is_reported_with_its_place(tmp_path: Path) -> None:
    resources = with_session("launcher: skypilot\nresources: {gpu: H200, spot: true, max_hours: 0.05}\n")
    stage = with_stage("    launcher: local\n")
    results = list_problems(tmp_path, resources, stage)
    assert [word for word in results if "spec.yaml:9:" in word or "session.yaml:9:" in word or ":9:" in word]
    text = "\n".join(results)
    assert "a rented machine costs money, and no price cap is given" in text
    assert "'local' rents no machines, so none can be a spot machine" in text
    assert "'local' cannot choose the kind of GPU 'H200'" in text
    assert "no number of GPUs is given" in text
    assert "the machine is held for 0.05 h at most, the job may take" in text


def test_skypilot_has_to_be_reported_the_kind_of_gpu(tmp_path: Path) -> None:
    rented = "launcher: skypilot\nresources: {gpus: 1, max_usd_per_hour: 3"
    results = {text.partition(": ")[2] for text in list_problems(tmp_path, with_session(f"{rented}}}\n"))}
    assert len(results) == 1 and "1 GPUs without a kind" in results.pop()
    assert loads(write_spec(tmp_path, with_session(f"{rented}, gpu: H200}}\n")))
    # Ray and this machine count them.
    assert loads(write_spec(tmp_path, with_session("launcher: ray\nresources: {gpus: 1}\n")))
    with pytest.raises(BlockedError, match="by the kind of their GPU"):
        SkyEngine("none", {}).task("k", ["true"], Resources(gpus=1, max_usd_per_hour=3.0))


def test_a_gpu_on_ray_has_to_be_asked_for(tmp_path: Path) -> None:
    cuda = ("epochs: 2, seed: 7}", "epochs: 2, seed: 7, device: cuda}")
    on_ray, pair = with_session("launcher: ray\n"), with_session("launcher: ray\nresources: {gpus: 1}\n")
    (result,) = list_problems(tmp_path, on_ray, cuda)
    assert "Ray reserves a GPU only for jobs that request one" in result and "device" in result
    assert loads(write_spec(tmp_path, pair, cuda)) and loads(write_spec(tmp_path, cuda))
    only_cores = with_session("launcher: ray\nresources: {cpus: 2}\n")
    assert len(list_problems(tmp_path, only_cores, cuda)) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("resources: {gpus: -1}\n", "resources.gpus"),
        ("resources: {cpus: 0}\n", "resources.cpus"),
        ("resources: {memory_gb: 0}\n", "resources.memory_gb"),
        ("resources: {max_usd_per_hour: -1}\n", "resources.max_usd_per_hour"),
        ("resources: {gpu_count: 1}\n", "unknown key"),
        ("launcher: slurm\n", "launcher: unknown launcher 'slurm' (known: local, ray, skypilot)"),
    ],
)
def test_values_no_machine_has_are_refused_at_their_line(tmp_path: Path, text: str, message: str) -> None:
    (result,) = list_problems(tmp_path, with_session(text))
    assert message in result
    line = (tmp_path / result.split(":")[0]).read_text().splitlines()[int(result.split(":")[1]) - 1]
    assert text.strip() in line


def test_a_price_cap_is_what_the_budget_has_to_cover(tmp_path: Path) -> None:
    cap = with_stage("    resources: {max_usd_per_hour: 500}\n")
    (result,) = list_problems(tmp_path, cap)
    assert "do not cover one attempt of each stage: up to 'base'" in result
    hours = with_stage("    resources: {max_hours: 9}\n")
    assert any("one attempt of each stage may take" in text for text in list_problems(tmp_path, hours))


# ---- money ----------------------------------------------------------------------------------------------------


def test_an_attempt_costs_at_most_its_cap_times_the_hours_it_may_hold_the_machine() -> None:
    budget: Any = SimpleNamespace(machine_usd_per_hour=2.0)
    stage: Any = SimpleNamespace(max_minutes=30, resources=None)
    assert (held_hours(stage), attempt_usd(budget, stage)) == (0.5, 1.0)
    stage.resources = Resources(max_usd_per_hour=3.5)
    assert attempt_usd(budget, stage) == 1.75
    stage.resources = Resources(max_usd_per_hour=3.5, max_hours=2)
    assert (held_hours(stage), attempt_usd(budget, stage)) == (2, 7.0)
    stage.resources = Resources(cpus=2)
    assert attempt_usd(budget, stage) == 1.0


def asking(folder: Path, text: str) -> OnDisk:
    session = open_session(folder, with_stage(text))
    session.decide(None, 1, "approve")
    return session


def test_what_is_asked_for_is_bound_in_the_grant_and_settles_the_job(tmp_path: Path) -> None:
    session = asking(tmp_path / "run", "    resources: {cpus: 1, max_usd_per_hour: 6, max_hours: 0.2}\n")
    spec = session.resolved.spec
    stage = spec.stage("base")
    assert attempt_usd(spec.budget, stage) == 1.2
    grant = session.mint()
    assert grant.resources == Resources(cpus=1, max_usd_per_hour=6, max_hours=0.2)
    reserve_job(session.trail, spec.budget, stage, grant.key())
    settle_job(session.trail, spec.budget, grant.key(), 360)
    reserved, settled = session.trail.find(f"reserve/{grant.key()}"), session.trail.find(f"settle/{grant.key()}")
    assert reserved is not None and settled is not None
    assert (reserved.raw["usd"], settled.raw["usd"]) == (1.2, 0.6)
    session.trail.close()


def test_an_order_that_asks_for_something_else_is_refused(tmp_path: Path) -> None:
    session = asking(tmp_path / "run", "    resources: {cpus: 1}\n")
    grant = session.mint()
    other = grant.model_copy(update={"resources": Resources(cpus=64)})
    with pytest.raises(BlockedError, match="no such grant"):
        submit(LocalLauncher(), session.trail, session.run, session.order(other), session.registration)
    session.trail.close()


def test_hours_are_reserved_with_the_machines_start(tmp_path: Path) -> None:
    session = asking(tmp_path / "run", "    resources: {max_hours: 1}\n")
    spec = session.resolved.spec
    small = spec.budget.model_copy(update={"max_hours": 0.9})
    with pytest.raises(BudgetExceeded, match=r"the attempt may take 1\.00 h"):
        reserve_job(session.trail, small, spec.stage("base"), "small.base.1")
    session.trail.close()


# ---- this machine ---------------------------------------------------------------------------------------------


def test_this_machine_refuses_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = asking(tmp_path / "run", "    resources: {gpus: 2, cpus: 9, memory_gb: 70}\n")
    monkeypatch.setattr(machine_capacity, "cpus", lambda: 8)
    monkeypatch.setattr(machine_capacity, "gpus", lambda: 1)
    monkeypatch.setattr(machine_capacity.psutil, "virtual_memory", lambda: SimpleNamespace(total=64 * 10**9))
    launcher = LocalLauncher()
    with pytest.raises(BlockedError) as caught:
        submit(launcher, session.trail, session.run, session.order(session.mint()), session.registration)
    message = "this machine has 1 of 2 requested GPUs, 8 of 9 requested cores, 64.0 of 70 requested GB of memory"
    assert message in str(caught.value)
    assert not (session.run / "jobs" / "small.base.1" / "wrapper.log").exists()
    session.trail.close()


def test_a_session_this_machine_cannot_carry_out_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_capacity, "gpus", lambda: 0)
    path = write_spec(tmp_path, with_session("resources: {gpus: 1}\n"))
    with pytest.raises(BlockedError, match="base: this machine has 0 of 1 requested GPUs"):
        runtime.start(path, tmp_path / "runs", None, cast(Any, None))
    assert not (tmp_path / "runs").exists()
    # Elsewhere it may be there.
    wiring.require_machine(loads(write_spec(tmp_path, with_session("launcher: ray\nresources: {gpus: 1}\n"))).spec)


def test_it_has_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine_capacity.lacking(Resources(cpus=machine_capacity.cpus(), memory_gb=0.1)) == []
    assert machine_capacity.lacking(Resources(gpus=0)) == []
    assert machine_capacity.lacking(Resources(cpus=machine_capacity.cpus() + 1)) != []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert machine_capacity.gpus() == 0


def test_a_job_uses_as_many_threads_as_it_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert job_environment()["OMP_NUM_THREADS"] == "7"
    assert job_environment(Resources(cpus=3))["OMP_NUM_THREADS"] == "3"


# ---- which launcher -------------------------------------------------------------------------------------------


def test_stages_go_to_their_launchers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PEERGATE_PLACE", raising=False)
    spec = loads(write_spec(tmp_path)).spec
    assert isinstance(wiring.make_launcher(spec, tmp_path), LocalLauncher)
    mixed = loads(write_spec(tmp_path, with_stage("    launcher: ray\n"))).spec
    launcher = wiring.make_launcher(mixed, tmp_path)
    assert isinstance(launcher, PerStage) and launcher.name == "local/ray"
    own = launcher.of("a.name.with.dots.base.1")
    assert isinstance(own, EngineLauncher) and own.name == "ray"
    assert isinstance(launcher.of("small.train.12"), LocalLauncher)
    with pytest.raises(KeyError):
        launcher.of("small.unknown.1")


def test_the_launcher_of_a_stage_stands_in_the_trail(tmp_path: Path) -> None:
    session = asking(tmp_path / "run", "")
    started: list[Path] = []

    class Notes(LocalLauncher):
        name = "noted"

        def start(self, folder: Path) -> None:
            started.append(folder)

    launcher = PerStage({"base": Notes(), "train": LocalLauncher()})
    submit(launcher, session.trail, session.run, session.order(session.mint()), session.registration)
    launch = session.trail.find("launch/small.base.1")
    assert launch is not None and launch.raw["launcher"] == "noted" and len(started) == 1
    session.trail.close()
