"""One process that has imported everything and run a session once, and forks the processes of the kill matrix.

``python -m tests.kill.zygote SOCKET TEMPLATES``. What it forks are processes like any other: with their own id, session
and memory, children of this one, ended by SIGKILL without a chance to clean up. They only begin where a new interpreter
would be after a second of imports; a wrapper waits for a drawn part of that time before it claims, so that what happens
between a start and a claim happens here too.

What differs from the command line: the starting weights are a few bytes, the key of the reviewer is made in the process
that needs it, the reviewer's process has no wall around it, no plots are drawn, a stage is ``tests/kill/stage.py``, and
anyone who waits looks more often and gives up on an engine's job earlier.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import random
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.kill import faults
from tests.kill.forked import ForkedProcess, as_subprocess, detached

HOME = Path(__file__).parents[2]
STAGE = Path(__file__).with_name("stage.py")
POLL_S = 0.02
RESTART_S = 0.4
ASK_EVERY_S = 0.2
OPEN_FILES = 1024
LATE = ("httpx2", "sessions.jobs.ray.cluster_head")
"""Modules that only sessions of some houses import."""
POSTGRES = ("psycopg_pool", "reviews.trail.tables.postgres_table", "sessions.run.lease_rows")


def wire(weights: Path) -> None:
    """Put the parts in that differ; the same in every process that is forked."""
    import reviews.reviewers.process.client
    import reviews.reviewers.process.confinement
    import sessions.jobs.local_launcher
    import sessions.nodes.act
    import sessions.nodes.job_order
    import sessions.pages.report.plots
    import sessions.runtime.registration
    import sessions.runtime.wiring
    from reviews.trail.chain import keys
    from sessions.jobs import wrapper
    from sessions.jobs.engine_launcher import EngineLauncher
    from specs.system.digests import digest_path
    from testing.fixtures.houses import IMPATIENT
    from testing.fixtures.reviewer_here import key_here

    real = wrapper.stage_command

    def command(order: Any, folder: Path) -> list[str]:
        # A site for real training has a model that can be trained.
        if order.kind == "sft" and (weights / "config.json").exists():
            return real(order, folder)
        return [sys.executable, "-I", "-S", str(STAGE), str(folder)]

    def not_confined() -> bool:
        return False

    def prepared(*_: object) -> sessions.nodes.job_order.PreparedModel:
        return sessions.nodes.job_order.PreparedModel(weights, digest_path(weights))

    def without_host(*_: object) -> None:
        """Every wrapper is forked by this process."""

    def undrawn(*_: object) -> list[str]:
        return []

    sessions.jobs.local_launcher.host_for = without_host
    sessions.jobs.local_launcher.start_detached = detached  # type: ignore[assignment]
    reviews.reviewers.process.client.subprocess = as_subprocess()  # type: ignore[assignment]
    reviews.reviewers.process.confinement.is_confined = not_confined  # type: ignore[assignment]
    sessions.runtime.registration.is_confined = not_confined  # type: ignore[assignment]
    keys.key_apart = key_here
    sessions.pages.report.plots.draw = undrawn
    sessions.nodes.job_order.prepare_model = prepared
    sessions.nodes.act.POLL_S, sessions.nodes.act.RESTART_S = POLL_S, RESTART_S
    sessions.runtime.wiring.EngineLauncher = partial(EngineLauncher, patience=IMPATIENT, ask_every_s=ASK_EVERY_S)  # type: ignore[misc, assignment]
    wrapper.HEARTBEAT_S, wrapper.TERM_GRACE_S = 0.5, 0.5
    wrapper.stage_command = command


def warm(templates: Path) -> None:
    """Run a session in this process, so that everything is imported; what its jobs leave is what stages write."""
    from reviews.audit.verify import verify_run
    from testing.factories import compared_session
    from testing.factories.evidence_on_disk import weights
    from testing.fixtures.quick_session import (
        QuickLauncher,
        drive,
        open_quick,
        quick_session,
        template_of,
    )

    for name in ("reviews.reviewers.process.__main__", "sessions.commands.run", "sessions.jobs.wrapper", *LATE):
        importlib.import_module(name)
    if find_spec("psycopg"):
        for name in POSTGRES:
            importlib.import_module(name)
    (templates / "weights").mkdir(parents=True, exist_ok=True)
    if not (templates / "weights" / "config.json").exists():
        (templates / "weights" / "model.safetensors").write_bytes(weights("untouched"))
    wire(templates / "weights")
    every = (
        (templates, (), QuickLauncher()),
        (
            templates.with_name("compared"),
            compared_session.CHANGES,
            QuickLauncher(compared_session.compared_rows, moved=compared_session.APART),
        ),
    )
    for folder, changes, launcher in every:
        with tempfile.TemporaryDirectory() as name:
            compared_session.write_transfer_items(Path(name))
            run = open_quick(Path(name), *changes)
            drive(quick_session(run, launcher=launcher))
            assert verify_run(run, "trail.sqlite", "store").exit_code == 0
            for job in (run / "jobs").iterdir():
                target = folder / template_of(job.name)
                shutil.copytree(job / "out", target / "out")
                shutil.copyfile(job / "manifest.json", target / "manifest.json")


def peergate(arguments: list[str]) -> int:
    """Be the command line."""
    from sessions.commands import cli

    faults.arm(os.environ)
    sys.argv = ["peergate", *arguments]
    cli.main()
    return 0


def wrapper(arguments: list[str]) -> int:
    """Be a wrapper."""
    from sessions.jobs import wrapper

    # For a stage that is a real one, in an interpreter of its own.
    os.environ["PYTHONPATH"] = str(HOME)
    sys.argv = ["wrapper", *arguments]
    return wrapper.main()


def reviewer(_: list[str]) -> int:
    """Be the reviewer's process."""
    from reviews.reviewers.process import __main__

    # Of the interpreter this one was forked from; those the pipes stand behind are new.
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    return __main__.main()


ROLES: dict[str, Callable[[list[str]], int]] = {"peergate": peergate, "wrapper": wrapper, "reviewer": reviewer}


class Zygote:
    """Forks on request and keeps count of what it forked."""

    def __init__(self, path: str) -> None:
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(path)
        self.listening.listen(64)
        self.codes: dict[int, int] = {}
        self.living: dict[int, dict[str, Any]] = {}

    def serve(self) -> None:
        """Answer until standard input is closed, then end whatever still runs."""
        with selectors.DefaultSelector() as ready:
            ready.register(self.listening, selectors.EVENT_READ)
            ready.register(0, selectors.EVENT_READ)
            while True:
                events = ready.select(0.05)
                self._reap()
                for key, _ in events:
                    if key.fd == 0:
                        return self._end()
                    asking, _ = self.listening.accept()
                    with asking, suppress(OSError, ValueError):
                        # Anyone who asks may be killed in the middle of it, which closes this, or stopped; on a loaded
                        # machine seconds may lie between its connection and its question.
                        asking.settimeout(30)
                        data, files, _, _ = socket.recv_fds(asking, 1 << 20, 3)
                        try:
                            answer = self._answer(json.loads(data), files)
                        finally:
                            for file in files:
                                os.close(file)
                        asking.sendall(json.dumps(answer).encode())

    def _answer(self, question: dict[str, Any], files: list[int]) -> Any:
        if question["op"] == "code":
            self._reap()
            return self.codes.get(question["pid"])
        if question["op"] == "living":
            self._reap()
            return list(self.living.values())
        pid = os.fork()
        if pid == 0:
            self._be(question, files)
        self.living[pid] = {"pid": pid, "role": question["role"], "ground": question["ground"]}
        return pid

    def _be(self, question: dict[str, Any], files: list[int]) -> None:
        """Become the process that was asked for. Never returns."""
        code = 1
        try:
            os.setsid()
            for target, file in enumerate(files):
                os.dup2(file, target)
            # Nothing else of this process is handed on, least of all the connection that waits for an answer.
            os.closerange(3, OPEN_FILES)
            random.seed()
            if question["without"] == "claim":
                faults.without_claim()
            os.chdir(question["cwd"])
            os.environ.clear()
            os.environ.update(question["env"])
            time.sleep(question["delay"])
            code = ROLES[question["role"]](question["arguments"])
        except SystemExit as exit_request:
            code = exit_request.code if isinstance(exit_request.code, int) else 1
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            for stream in (sys.stdout, sys.stderr):
                with suppress(Exception):
                    stream.flush()
            os._exit(code)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                self.codes[pid] = os.waitstatus_to_exitcode(status)
                self.living.pop(pid, None)

    def _end(self) -> None:
        for pid in self.living:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def main() -> int:
    """Warm up, say so, and serve."""
    path, templates = sys.argv[1:]
    warm(Path(templates))
    assert threading.active_count() == 1, "a fork takes one thread with it"
    assert ForkedProcess.asks_nobody()
    # What is here is shared by all that are forked: the collector is not to touch, and so copy, all of it in each.
    gc.collect()
    gc.freeze()
    zygote = Zygote(path)
    print("ready", flush=True)
    zygote.serve()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
