"""The keeper and the sweep with real processes, without SSH: who starts, who ends, and what is left alone."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sessions.pods.protocol import Order, Rules
from sessions.pods.remote import process_state
from sessions.pods.remote.pod_entry import Server
from sessions.pods.remote.pod_layout import Layout
from sessions.pods.remote.process_sweep import sweep
from sessions.run.claim import lives
from testing.fixtures.command_sessions import CANARY, wait_for
from testing.fixtures.quick_session import open_quick

pytestmark = pytest.mark.integration

HOME = Path(__file__).parents[3]
ORCHESTRATOR = """#!/bin/sh
# In the place of an orchestrator: goes on until it is asked to pause, and says which keys it was given.
if [ "$3" != sessions.commands.cli ]; then exec {python} "$@"; fi
echo "$@ HOME=$HOME KEY=${{#OPENAI_API_KEY}}"
trap 'exit 130' TERM
{does}
while :; do sleep 0.05; done
"""


@pytest.fixture
def layout(tmp_path: Path) -> Iterator[Layout]:
    result = Layout(tmp_path / "root", "small")
    before = os.umask(0)
    os.umask(before)
    result.make()
    os.umask(before)
    yield result
    for process in psutil.process_iter(["cmdline"]):
        if str(tmp_path) in " ".join(process.info["cmdline"] or []):
            process.kill()


def start(layout: Layout, rules: Rules | None = None, does: str = "") -> dict[str, Any]:
    """Start as `pod start` has it done there; returns the answer."""
    python = layout.root / "python"
    python.write_text(ORCHESTRATOR.format(python=sys.executable, does=does), encoding="utf-8")
    python.chmod(0o755)
    order = Order(python=str(python), spec="spec.yaml", secrets={"OPENAI_API_KEY": CANARY}, rules=rules or Rules())
    done = subprocess.run(
        [sys.executable, "-P", "-m", "sessions.pods.remote.pod_entry", "start", str(layout.root), "small"],
        input=order.canonical(),
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def state(layout: Layout) -> dict[str, Any]:
    return process_state.orchestrator(layout)


def test_the_orchestrator_is_detached_and_its_keys_are_in_no_file(layout: Layout) -> None:
    report = start(layout)
    process = psutil.Process(report["pid"])
    assert os.getsid(process.pid) == process.pid, "it has a session of its own"
    assert state(layout) == {"orchestrator": "running", "pid": process.pid}
    wait_for(lambda: b"KEY=" in layout.log.read_bytes(), 300)
    line = layout.log.read_text()
    assert f"--runs {layout.runs}" in line and f"HOME={layout.home}" in line and f"KEY={len(CANARY)}" in line
    assert process.environ()["OPENAI_API_KEY"] == CANARY and "PYTEST_CURRENT_TEST" not in process.environ()
    paths = [path for path in layout.root.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]
    assert not paths
    keeper = psutil.Process(json.loads((layout.own / process_state.KEEPER).read_bytes())["pid"])
    assert CANARY not in " ".join([*keeper.cmdline(), *keeper.environ().values()])
    again = start(layout)
    assert "runs already" in again["refused"]
    # Killed, the keeper takes no orchestrator with it; the orchestrator's end then leaves no exit code.
    keeper.kill()
    assert process.is_running() and state(layout)["orchestrator"] == "running"
    # Another start puts a keeper there, and no second orchestrator.
    adopted = start(layout)
    assert adopted["pid"] == process.pid and lives(layout.own / process_state.KEEPER)
    process.kill()
    wait_for(lambda: state(layout)["orchestrator"] == "gone", 300)
    new = start(layout)
    assert new["pid"] != process.pid and state(layout)["orchestrator"] == "running"


def test_how_it_ended_is_kept(layout: Layout) -> None:
    start(layout, does="exit 6")
    wait_for(lambda: state(layout)["orchestrator"] == "ended", 300)
    assert state(layout)["code"] == 6
    report = start(layout, does="kill -9 $$")
    wait_for(lambda: state(layout).get("code") == 137, 300)
    assert report["number"] == 2


def test_an_end_the_keeper_has_not_seen_yet_is_not_taken_for_a_lost_one(layout: Layout) -> None:
    report = start(layout, does="sleep 1; exit 4")
    keeper = psutil.Process(json.loads((layout.own / process_state.KEEPER).read_bytes())["pid"])
    keeper.suspend()
    orchestrator = psutil.Process(report["pid"])
    wait_for(lambda: orchestrator.status() == psutil.STATUS_ZOMBIE, 300)
    assert state(layout)["orchestrator"] == "running"
    keeper.resume()
    wait_for(lambda: state(layout)["orchestrator"] == "ended", 300)
    assert state(layout)["code"] == 4


@pytest.mark.parametrize(
    ("rules", "does", "output"),
    [
        (Rules(usd_per_hour=3600.0, max_cost_usd=1.5, grace_minutes=0.01), "", "price: "),
        (Rules(idle_minutes=0.01, grace_minutes=0.01), "exit 0", "idle: "),
        (Rules(dead_man_minutes=0.02, grace_minutes=0.01), "", "dead man: "),
    ],
)
def test_each_rule_pauses_the_session_and_runs_the_shutdown_command(
    layout: Layout, rules: Rules, does: str, output: str
) -> None:
    order = f"echo down >> {layout.root}/shut"
    start(layout, rules.model_copy(update={"shutdown": order}), does)
    wait_for(lambda: (layout.own / process_state.ENDED).exists(), 120)
    ended = json.loads((layout.own / process_state.ENDED).read_bytes())
    assert ended["reason"].startswith(output) and ended["code"] == 0
    assert (layout.root / "shut").read_text() == "down\n"
    assert state(layout)["orchestrator"] == "ended" and state(layout)["code"] == (0 if does else 130)


def test_whoever_is_attached_keeps_the_pod_and_a_pull_ends_the_grace(layout: Layout) -> None:
    run = open_quick(layout.root)
    assert run == layout.run
    start(layout, Rules(dead_man_minutes=0.03, grace_minutes=5.0, shutdown=f"touch {layout.root}/shut"))
    server = Server(layout, io.BytesIO())
    until = time.monotonic() + 4
    while time.monotonic() < until:
        server.answer({"op": "status", "log": 0})
        time.sleep(0.2)
    assert state(layout)["orchestrator"] == "running", "it was attended for longer than the limit"
    wait_for(lambda: (layout.own / process_state.ENDING).exists() and state(layout)["orchestrator"] == "ended", 120)
    time.sleep(1)
    assert not (layout.root / "shut").exists(), "it waits for a pull"
    server.answer({"op": "pulled", "entries": 1})
    time.sleep(1)
    assert not (layout.root / "shut").exists(), "that was not all"
    server.answer({"op": "pulled", "entries": 2})
    wait_for(lambda: (layout.root / "shut").exists(), 300)


def test_a_clock_that_is_set_back_makes_no_machine_cheaper(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 10_000.0)
    process_state.write(layout.own / process_state.SINCE, {"first": 10_000.0 - 7200, "counted": 3600.0})
    assert process_state.Clock(layout).hours() == pytest.approx(2.0)
    monkeypatch.setattr(time, "time", lambda: 10_000.0 - 7200)
    assert process_state.Clock(layout).hours() == pytest.approx(1.0, abs=0.01)


def planted(layout: Layout, cwd: Path, *words: str, home: Path | None = None) -> subprocess.Popen[bytes]:
    cwd.mkdir(parents=True, exist_ok=True)
    own = {"HOME": str(home or layout.home), "PATH": os.environ["PATH"]}
    process = subprocess.Popen(list(words) or ["sleep", "300"], cwd=cwd, env=own, start_new_session=True)
    # In the moment after it was started a program has no environment to be read yet.
    while not psutil.Process(process.pid).environ():
        time.sleep(0.01)
    return process


def test_orphans_are_ended_and_nothing_else(layout: Layout) -> None:
    over, open_run = layout.runs / "over" / "jobs" / "j", open_quick(layout.root)
    job = open_run / "jobs" / "small.base.1"
    wrapper = ["sh", "-c", "sleep 300 & wait", "sessions.jobs.wrapper"]
    processes = {
        "of a session that is not there any more": planted(layout, over),
        "of a job whose wrapper is gone": planted(layout, job),
        "a wrapper of an open session, with its job": planted(layout, job, *wrapper),
        "someone else's": planted(layout, over, home=layout.root / "elsewhere"),
        "of the root, of no one": planted(layout, layout.root),
    }
    try:
        lines = sweep(layout)
        assert len(lines) == 3, lines
        alive = [what for what, process in processes.items() if process.poll() is None]
        assert alive == ["a wrapper of an open session, with its job", "someone else's"]
        selected = psutil.Process(processes[alive[0]].pid).children()
        assert len(selected) == 1 and selected[0].name() == "sleep"
        # When the pod is going to end, the jobs of the session go too.
        sweep(layout, everything=True)
        processes[alive[0]].wait(10)
        assert not selected[0].is_running() and processes["someone else's"].poll() is None
    finally:
        for process in processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_a_pod_does_not_learn_of_a_database(tmp_path: Path) -> None:
    """The trail of a pod is the file that is pulled."""
    report = Layout(tmp_path, "small").environment({"PEERGATE_DATABASE": CANARY, "PGPASSWORD": CANARY, "PATH": "/bin"})
    assert report["PATH"] == "/bin" and CANARY not in report.values()
