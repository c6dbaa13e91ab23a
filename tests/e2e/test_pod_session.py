"""Real weights on a pod over a real OpenSSH server: a connection that is lost, a trail that verifies on both sides."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from reviews.audit.verify import verify_run
from reviews.trail.chain.store import Store
from sessions.pods.pod_record import PodPlace, place_of
from sessions.pods.pull import verify
from specs.jobs.job_records import Manifest
from testing.fixtures.command_sessions import CANARY, entries, environment, wait_for, write_small_spec
from testing.fixtures.sshd_pod import MISSING, pod
from testing.fixtures.sshd_quick import peergate, write_pod_file

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.model,
    # As long as a demo on a machine that does other work too.
    pytest.mark.timeout(2 * 3600),
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
]


@pytest.mark.parametrize("name", ["small", "demo"])
def test_a_session_on_a_pod_survives_the_loss_of_the_connection(tmp_path: Path, name: str) -> None:
    spec = "demo" if name == "demo" else write_small_spec(tmp_path / "spec")
    with pod(tmp_path / "pod") as machine:
        shut = f"{Path(machine.root).parent}/shut"
        file = write_pod_file(tmp_path, machine, sys.executable, "min_disk_gb: 3", f"shutdown: touch {shut}")
        own = ("--pods", tmp_path / "pods")
        done = peergate("pod", "up", spec, "--pod", file, *own)
        assert done.returncode == 0, done.stdout + done.stderr
        assert peergate("pod", "start", name, *own).returncode == 0
        path = tmp_path / "attach.log"
        with path.open("wb") as log:
            words = [sys.executable, "-u", "-m", "sessions.commands.cli", "pod", "attach", name, *map(str, own)]
            attached = subprocess.Popen(words, stdout=log, stderr=log, env=environment(), stdin=subprocess.DEVNULL)
        try:
            wait_for(lambda: "stage 1/" in path.read_text(), 3600)
            wait_for(lambda: machine.cut() >= 1, 60)
            wait_for(lambda: "trying again" in path.read_text(), 120)
            assert attached.wait(2 * 3600) == 0, path.read_text()[-3000:]
        finally:
            attached.kill()
            attached.wait()
        place = place_of(tmp_path / "pods", name)
        here = verify(place)
        there = verify_run(machine.seen / "runs" / name, "trail.sqlite", "store", anchors=place.anchors())
        assert here.exit_code == there.exit_code == 0 and here.root == there.root, here.damage + there.damage
        assert here.closed and here.decision in ("approve", "null") and len(place.anchors()) >= 5
        check_witnessed(place)
        done = peergate("pod", "down", name, *own)
        assert done.returncode == 0 and (machine.durable / "shut").exists(), done.stderr
        assert not machine.processes("sessions.commands.cli") and CANARY not in path.read_text()


def check_witnessed(place: PodPlace) -> None:
    """Check that witnesses read every stage with a model on the pod again, and that the report says how much."""
    read, store = entries(place.run, "witness"), Store(place.run / "store")
    kinds = {"evaluate", "generate", "sft", "package"}
    assert {Manifest.model_validate_json(store.get(entry.raw["manifest"])).kind for entry in read} == kinds
    assert all(entry.raw["rows"] and not entry.raw["why"] for entry in read)
    report = (place.run / "report" / "report.md").read_text(encoding="utf-8")
    assert re.search(r"[1-9]\d* of \d+ answers of '\w+' recomputed", report), report
