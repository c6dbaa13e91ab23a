"""What stands for ``subprocess.Popen`` in a forked process: it asks the zygote for another one."""

from __future__ import annotations

import io
import json
import os
import random
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.kill.faults import WITHOUT

ASK = "KILL_ZYGOTE"
"""The variable that names the zygote's socket."""
GROUND = "KILL_GROUND"
"""The variable that names the place of the session a process belongs to."""
_STARTS = {"sessions.jobs.wrapper": "wrapper", "reviews.reviewers.process": "reviewer"}
STARTS_WITHIN = "KILL_STARTS_WITHIN"
"""A variable: a wrapper claims at most so many seconds after it was started; an interpreter takes a third of one."""
_STARTS_WITHIN_S = "0.15"


def ask(path: str, question: dict[str, Any], files: Sequence[int] = ()) -> Any:
    """Ask the zygote.

    Raises:
        OSError: it is gone.
    """
    with socket.socket(socket.AF_UNIX) as asking:
        # Of the class below: pytest-socket guards the other one, and knows hosts only.
        super(socket.socket, asking).connect(path)
        socket.send_fds(asking, [json.dumps(question).encode()], list(files))
        return json.loads(asking.makefile("rb").read())


def fork(
    path: str, role: str, arguments: Sequence[str], env: Mapping[str, str], cwd: str, files: Sequence[int], delay: float
) -> int:
    """Have the zygote fork a process and return its id."""
    question = {
        "op": "fork",
        "role": role,
        "arguments": list(arguments),
        "env": dict(env),
        "cwd": cwd,
        "delay": delay,
        "ground": os.environ.get(GROUND) or env.get(GROUND),
        "without": os.environ.get(WITHOUT) or env.get(WITHOUT),
    }
    return int(ask(path, question, files))


class ForkedProcess:
    """The part of ``Popen`` that starting a wrapper and a reviewer's process needs."""

    def __init__(
        self,
        args: Sequence[str],
        *,
        stdin: Any,
        stdout: Any,
        stderr: Any,
        cwd: Path | str,
        env: Mapping[str, str],
        start_new_session: bool,
        bufsize: int = -1,
    ) -> None:
        assert start_new_session
        module = next(name for name in args if name in _STARTS)
        role = _STARTS[module]
        self._path = os.environ[ASK]
        self._code: int | None = None
        self.stdin = self.stdout = self.stderr = None
        theirs: list[int] = []
        close: list[int] = []
        for name, item in (("stdin", stdin), ("stdout", stdout), ("stderr", stderr)):
            if item == subprocess.PIPE:
                reading, writing = os.pipe()
                mine, other = (writing, reading) if name == "stdin" else (reading, writing)
                setattr(self, name, io.FileIO(mine, "wb" if name == "stdin" else "rb"))
            elif item == subprocess.DEVNULL:
                other = os.open(os.devnull, os.O_RDWR)
            else:
                other = os.dup(item.fileno())
            theirs.append(other)
            close.append(other)
        # What an interpreter takes before it claims.
        delay = random.random() * float(os.environ.get(STARTS_WITHIN, _STARTS_WITHIN_S)) if role == "wrapper" else 0.0
        rest = list(args)[list(args).index(module) + 1 :]
        try:
            self.pid = fork(self._path, role, rest, env, str(cwd), theirs, delay)
        finally:
            for file in close:
                os.close(file)

    @staticmethod
    def asks_nobody() -> bool:
        """Return whether this process is the zygote itself, or outside of the matrix."""
        return ASK not in os.environ

    def poll(self) -> int | None:
        """Return the exit code, once there is one."""
        if self._code is None:
            with suppress(OSError, ValueError):
                self._code = ask(self._path, {"op": "code", "pid": self.pid})
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end.

        Raises:
            TimeoutExpired: it takes longer.
        """
        until = time.monotonic() + (60.0 if timeout is None else timeout)
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired("forked", timeout or 60.0)
            time.sleep(0.002)
        return code


def detached(words: list[str], log: Path, cwd: Path, env: dict[str, str]) -> ForkedProcess:
    """Start a wrapper as ``sessions.jobs.orphans.start_detached`` does, forked."""
    with log.open("ab") as out:
        return ForkedProcess(
            words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=cwd, env=env, start_new_session=True
        )


def as_subprocess() -> Any:
    """Return what stands for the module ``subprocess``."""
    return SimpleNamespace(**(vars(subprocess) | {"Popen": ForkedProcess}))
