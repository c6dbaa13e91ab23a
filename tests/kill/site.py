"""The ground of the matrix: a zygote, templates of what stages leave, a spec, and sessions started as commands."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testing.factories.evidence_on_disk import resolved_spec
from testing.fixtures.quick_session import POWERED, ROOMY
from tests.kill.forked import ASK, GROUND, ask, fork
from tests.kill.house import House
from tests.kill.processes import children

HOME = Path(__file__).parents[2]
NAME = "small"
READY_S = 120.0


@dataclass(frozen=True)
class Command:
    """A `peergate` that runs, or did."""

    site: Site
    pid: int
    output: Path
    """What it printed."""

    def wait(self, seconds: float) -> bool:
        """Wait at most so long for the end; say whether it came."""
        try:
            process = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            return bool(select.select([process], [], [], seconds)[0])
        finally:
            os.close(process)

    def code(self) -> int:
        """Return the exit code of a command that has ended."""
        code = self.site.code(self.pid)
        assert code is not None
        return code


class Site:
    """Owns the zygote. Everything it forked ends with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.socket = str(folder / "z")
        self._zygote = subprocess.Popen(
            [sys.executable, "-m", "tests.kill.zygote", self.socket, str(folder / "templates")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=HOME,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HOME)},
        )
        assert self._zygote.stdout is not None
        assert self._zygote.stdout.readline() == b"ready\n", "the zygote did not come up"

    def close(self) -> None:
        """End the zygote and what it forked."""
        assert self._zygote.stdin is not None and self._zygote.stdout is not None
        self._zygote.stdin.close()
        self._zygote.wait(300)
        self._zygote.stdout.close()

    def code(self, pid: int) -> int | None:
        """Return the exit code of a forked process."""
        return ask(self.socket, {"op": "code", "pid": pid})

    def living(self, ground: Path, house: House) -> dict[str, list[int]]:
        """Return the processes of a session that live, by role; a job is what a wrapper started."""
        results: dict[str, list[int]] = {"peergate": [], "wrapper": [], "reviewer": [], "job": []}
        for item in ask(self.socket, {"op": "living"}):
            if item["ground"] == str(ground):
                results[item["role"]].append(item["pid"])
        results["wrapper"] += house.wrappers(ground)
        for pid in results["wrapper"]:
            results["job"] += children(pid)
        return results

    def ground(self, name: str, house: House) -> Path:
        """Make the place of one session: its spec, what stages copy, and the file of effects."""
        ground = self.folder / name
        ground.mkdir()
        (ground / "templates").symlink_to(self.folder / house.templates)
        house.furnish(ground)
        resolved_spec(ground, POWERED, ROOMY, *house.changes)
        return ground

    def peergate(self, ground: Path, house: House, *arguments: str, **environ: str) -> Command:
        """Start a command in the folder of a session."""
        path = ground / f"output.{time.monotonic_ns()}"
        env: dict[str, Any] = {"PATH": os.environ["PATH"], "HOME": str(ground), ASK: self.socket, "TERM": "dumb"}
        env |= {GROUND: str(ground)} | dict(house.environ) | environ
        with open(os.devnull, "rb") as nothing, path.open("wb") as output:  # noqa: PTH123
            files = [nothing.fileno(), output.fileno(), output.fileno()]
            pid = fork(self.socket, "peergate", arguments, env, str(ground), files, 0.0)
        return Command(self, pid, path)

    def forget(self, ground: Path) -> None:
        """Remove what a session left."""
        with suppress(OSError):
            shutil.rmtree(ground)
