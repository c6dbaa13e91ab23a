"""The process that forks jobs: started with the first job that loads a model, it ends with its owner.

Importing torch and transformers takes seconds of processor time. The host does so once, in exactly the environment of a
job, and forks the wrapper of each further job. It is only an optimisation: without it a job begins in a fresh process.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from sessions.jobs import machine_capacity
from sessions.jobs.orphans import VARIABLE, start_detached
from specs.jobs.job_records import JobOrder
from specs.stages.registry import STAGE_KINDS

MODULE = "sessions.jobs.host_process"
END_S = 1.0
ROOM = 8192
"""Bytes for the words and the variables of a job, which are written over the host's own."""


class JobHost:
    """A host and the interpreter and environment of its jobs; a job of another environment needs another host."""

    def __init__(self, python: str, environment: dict[str, str]) -> None:
        self.python, self.environment = python, environment
        words = [python, "-P", "-m", MODULE, str(time.time_ns()), "-" * ROOM]
        room = {VARIABLE: "-" * ROOM}
        self.process = start_detached(words, Path(os.devnull), Path("/"), environment | room, stdin=subprocess.PIPE)

    def fork(self, words: list[str]) -> bool:
        """Have a wrapper forked, at once or when the libraries are imported; return whether the host took it."""
        assert self.process.stdin is not None
        try:
            return os.write(self.process.stdin.fileno(), json.dumps(words).encode() + b"\n") > 0
        except (OSError, ValueError):
            return False

    def has_ended(self) -> bool:
        """Return whether the process has ended; what it has not forked by then never begins."""
        return self.process.poll() is not None

    def close(self) -> None:
        """Have the process end once it has forked what it took."""
        assert self.process.stdin is not None
        self.process.stdin.close()


running_hosts: list[JobHost] = []
"""At most one: the newest environment's."""


@atexit.register
def close_hosts() -> None:
    """End the hosts of this process; it would end them too, without being collected."""
    while running_hosts:
        host = running_hosts.pop()
        host.close()
        with suppress(subprocess.TimeoutExpired):
            host.process.wait(END_S)


def host_for(order: JobOrder, python: str, environment: dict[str, str]) -> JobHost | None:
    """Return the host of this process for a job; None if the job begins in a fresh process.

    On a machine with GPUs no job is forked: CUDA cannot be used in a fork of a process that has looked for a GPU.
    """
    if sys.platform != "linux" or not STAGE_KINDS[order.kind].loads_model or machine_capacity.gpus():
        return None
    if not running_hosts or (running_hosts[0].python, running_hosts[0].environment) != (python, environment):
        for host in running_hosts:
            host.close()
        running_hosts[:] = [JobHost(python, environment)]
    return None if running_hosts[0].has_ended() else running_hosts[0]
