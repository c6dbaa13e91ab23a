"""The process of a stage with replicas: it starts the lighthouse and the replicas, and is never one of them.

A replica that dies is started again from the newest synchronisation that any replica has saved, so it never begins
from the start while others are further. Replicas whose weights differ after a synchronisation end the stage.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

from specs.stages.finetuning.distributed import DistributedTraining
from specs.system.errors import ExitCode
from specs.system.extras import install_hint
from training.jobs.finetuning.replicas.replica_files import (
    AGAIN,
    RoundRecord,
    folder_of,
    list_numbered_files,
    make_arrival_path,
    own_newest,
    rounds_in,
)
from training.jobs.finetuning.replicas.waits import Waits, waiting
from training.jobs.job import Job, refuse
from training.jobs.saved_steps import step_of

HERE = "127.0.0.1"
STARTS = 6
"""Processes that one replica may have."""
LOOK_S = 0.2
LEFT_BEHIND_S = 60.0
"""How long replicas may run after another has ended: without it they cannot synchronise any more."""
HEARTBEAT_MS, JOIN_MS, TICK_MS = 5000, 60_000, 50
"""How long a replica may be silent before it counts as dead, and how long others wait for a live replica."""


class Coordinator:
    """The replicas of one job, from their start to their end."""

    def __init__(self, job: Job[Any], steps: int) -> None:
        self.job, self.steps = job, steps
        self.distributed: DistributedTraining = job.parameters.distributed
        self.rounds: dict[int, list[RoundRecord]] = {number: [] for number in range(self.distributed.replicas)}
        self.starts: list[dict[str, Any]] = []
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._count = dict.fromkeys(self.rounds, 0)
        self._ended: dict[int, float] = {}
        self._waits = Waits()

    def run(self) -> None:
        """Return when all replicas have ended, or cannot continue without the others; exits if they fail."""
        lighthouse = lighthouse_of(self.distributed)
        address = address_of(lighthouse)
        try:
            for number in self.rounds:
                self._start(number, address, "")
            while self._running:
                time.sleep(LOOK_S)
                for number, process in list(self._running.items()):
                    if (code := process.poll()) is not None:
                        del self._running[number]
                        self._after(number, code, address)
                self._look()
                if self._ended and time.monotonic() - min(self._ended.values()) > LEFT_BEHIND_S:
                    self._end(f"left behind for {LEFT_BEHIND_S:.0f} s")
            self._look()
        finally:
            self._end("the stage ends")
            with suppress(Exception):
                lighthouse.shutdown()
        if not self._ended:
            raise SystemExit("no replica finished")

    def _start(self, number: int, address: str, why: str) -> None:
        self._count[number] += 1
        if self._count[number] > STARTS:
            raise SystemExit(f"replica {number} was started {STARTS} times and {why} again")
        # Copied now: the process takes seconds to begin, and others may have dropped it by then.
        state = own_newest(self.job.folder, number, self.distributed.replicas)
        words = [str(self.job.folder), str(number), str(self._count[number]), address]
        command = [sys.executable, "-P", "-m", "training.jobs.finetuning.replicas", *words]
        self._running[number] = subprocess.Popen(
            [*command, *([str(state)] if state else [])],
            stdin=subprocess.DEVNULL,
            cwd=self.job.folder,
            env=os.environ | environment(self.distributed.replicas),
        )
        step = step_of(state) if state else 0
        self.starts.append({"replica": number, "process": self._count[number], "step": step, "why": why})
        if why:
            print(f"replica {number} {why}; it is started again from step {step}", flush=True)

    def _after(self, number: int, code: int, address: str) -> None:
        if code == 0 and (folder_of(self.job.folder, number) / "end.json").is_file():
            self._ended[number] = time.monotonic()
        elif code < 0:
            self._start(number, address, f"was ended by {signal.Signals(-code).name}")
        elif code == AGAIN:
            self._start(number, address, "repeats a round")
        else:
            # What a replica refuses or finds wrong, it would again.
            raise SystemExit(code if code == ExitCode.BLOCKED else f"replica {number} ended with code {code}")

    def _look(self) -> None:
        """Read what the replicas have written since, and exit if they are not one model."""
        for number, known in self.rounds.items():
            known += rounds_in(folder_of(self.job.folder, number), known[-1].row.sync if known else 0)
        if why := apart(self.job.folder, self.rounds):
            raise SystemExit(f"the replicas have diverged: {why}")
        waits = self._waiting()
        done = max((known[-1].row for known in self.rounds.values() if known), key=lambda row: row.sync, default=None)
        if done is not None:
            together = [
                str(number) for number, known in self.rounds.items() if known and known[-1].row.sync == done.sync
            ]
            self.job.progress(
                done.last_step if done.counts else self.distributed.last_step(done.sync, self.steps),
                self.steps,
                "steps",
                synchronised=float(done.sync),
                replicas=",".join(together),
                seconds=done.seconds,
                bytes=float(done.bytes),
                **({"waits": waits} if waits else {}),
            )

    def _waiting(self) -> str:
        """Return which replicas wait for which others, and log it where that lasts."""
        last = {number: known[-1].row.sync if known else 0 for number, known in self.rounds.items()}
        here = [
            number
            for number in self._running
            if make_arrival_path(folder_of(self.job.folder, number), self._count[number], last[number] + 1).is_file()
        ]
        waits_for = waiting(
            here, [number for number in self.rounds if number not in here and number not in self._ended]
        )
        if self._waits.lasts(waits_for):
            sync, quorum = max(last.values()) + 1, self.distributed.quorum
            print(f"{waits_for} at synchronisation {sync}, where {quorum} must take part", flush=True)
        return waits_for

    def _end(self, why: str) -> None:
        for number, process in list(self._running.items()):
            print(f"replica {number} is ended: {why}", flush=True)
            process.kill()
            process.wait()
        self._running.clear()


def require_torchft() -> None:
    """Exit with code 4 where torchft is not installed."""
    if find_spec("torchft") is None:
        refuse(f"distributed needs the package torchft, which is not installed: {install_hint('train')}")


def lighthouse_of(arguments: DistributedTraining, bind: str = f"{HERE}:0") -> Any:
    """Start torchft's lighthouse on this machine."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    from torchft.coordination import LighthouseServer

    return LighthouseServer(
        bind=bind,
        min_replicas=arguments.quorum,
        join_timeout_ms=JOIN_MS,
        quorum_tick_ms=TICK_MS,
        heartbeat_timeout_ms=HEARTBEAT_MS,
    )


def address_of(lighthouse: Any, host: str = HERE) -> str:
    """Return where replicas reach a lighthouse; it names a host that may be another address."""
    return f"http://{host}:{lighthouse.address().rpartition(':')[2]}"


QUIET = {"RUST_LOG": "error", "OTEL_SDK_DISABLED": "true"}
"""torchft logs each request otherwise, and sends telemetry where that is set up."""


def environment(replicas: int) -> dict[str, str]:
    """Return the variables of a replica: they share the cores of the job, and gloo listens to this machine only."""
    cores = int(os.environ.get("OMP_NUM_THREADS", "0")) or len(os.sched_getaffinity(0))
    return QUIET | {"OMP_NUM_THREADS": str(max(1, cores // replicas)), "GLOO_SOCKET_IFNAME": "lo"}


def apart(job_folder: Path, rounds: dict[int, list[RoundRecord]]) -> str:
    """Return where weights differ that must be the same; empty if none do."""
    known: dict[int, tuple[int, str]] = {}
    for number in rounds:
        for path in list_numbered_files(folder_of(job_folder, number) / "began"):
            record = json.loads(path.read_text(encoding="utf-8"))
            rounds_known = {
                value.row.sync: value.row.after for round_records in rounds.values() for value in round_records
            }
            sha256 = rounds_known.get(record["sync"], record["weights"])
            if record["weights"] != sha256:
                return f"replica {number} began after synchronisation {record['sync']} with other weights than those"
            if record["sync"] == 0:
                other, weights = known.setdefault(0, (number, record["weights"]))
                if weights != record["weights"]:
                    return f"replicas {other} and {number} began with different weights"
    for number, round_records in rounds.items():
        for value in round_records:
            other, weights = known.setdefault(value.row.sync, (number, value.row.after))
            if weights != value.row.after:
                return f"replicas {other} and {number} have different weights after synchronisation {value.row.sync}"
        for last, then in pairwise(round_records):
            if then.row.sync == last.row.sync + 1 and then.row.start != last.row.after and then.row.counts:
                return f"replica {number} began a round with other weights than it had synchronised"
    return ""
