"""A real evaluation that the host forks leaves what one in a fresh process leaves."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sessions.jobs.job_environment import job_environment
from sessions.jobs.job_host import JobHost
from sessions.jobs.job_state import read_exit
from testing.fixtures.command_sessions import wait_for

pytestmark = [
    pytest.mark.integration,
    pytest.mark.model,
    pytest.mark.skipif(sys.platform != "linux", reason="a host forks on Linux only"),
]
KEY = "small.before.1"
DIFFERS = ("wall_s", "machine", "code_state")
"""By the time that it took, and by what is edited meanwhile."""


def prepared(finished: Path, run: Path) -> Path:
    """Return the folder of a job that is to be carried out again, in a run folder of the same files."""
    (run / "jobs" / KEY).mkdir(parents=True)
    for path in finished.iterdir():
        if path.name != "jobs":
            (run / path.name).symlink_to(path)
    shutil.copyfile(finished / "jobs" / KEY / "order.json", run / "jobs" / KEY / "order.json")
    return run / "jobs" / KEY


def manifest(folder: Path) -> dict[str, Any]:
    body = json.loads((folder / "manifest.json").read_bytes())
    return {name: value for name, value in body.items() if name not in DIFFERS}


def test_a_forked_evaluation_leaves_the_rows_of_a_fresh_one(finished: Path, tmp_path: Path) -> None:
    fresh, forked = (prepared(finished, tmp_path / name) for name in ("fresh", "forked"))
    words, environment = [sys.executable, "-P", "-m", "sessions.jobs.wrapper"], job_environment()
    host = JobHost(sys.executable, environment)
    assert host.fork([*words, str(forked)])
    wait_for((forked / "claim").exists)
    wrapper = json.loads((forked / "claim" / "claim.json").read_bytes())["pid"]
    # A fresh wrapper imports no library of models.
    assert "libtorch" in Path(f"/proc/{wrapper}/maps").read_text(encoding="utf-8")
    subprocess.run([*words, str(fresh)], cwd=fresh, env=environment, check=True, start_new_session=True)
    wait_for((forked / "exit.json").exists)
    host.close()
    wait_for(host.has_ended)
    for folder in (fresh, forked):
        record = read_exit(folder)
        assert record is not None and (record.code, record.reason) == (0, "exited")
        assert (folder / "log.txt").read_text() == (fresh / "log.txt").read_text()
        assert manifest(folder) == manifest(finished / "jobs" / KEY)
        assert manifest(folder)["outputs"]["rows"] == manifest(fresh)["outputs"]["rows"]
