"""The job side of exactly-once: ``python -P -m sessions.jobs.wrapper JOB_FOLDER``.

It claims the folder atomically before any work, runs the stage as a child, writes log and heartbeat, ends the stage on
a limit or request, and leaves an exit record. It outlives the orchestrator. If it is killed, the stage and all that it
started die with it (Linux), and the job is *lost*: a decision must settle that.
"""

from __future__ import annotations

import os
import platform
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

from reviews.trail.chain.store import write_durably
from sessions.jobs import orphans, process_usage
from sessions.jobs.gpu_use import GpuUse
from sessions.jobs.job_log import JobLog
from sessions.jobs.job_state import patiently, read_order, take_claim
from sessions.run.claim import this_process
from sessions.run.heartbeat import BEAT, Absence
from sessions.run.private_files import keep_private
from specs.jobs.job_records import ExitRecord, JobOrder
from specs.system.digests import canonical_bytes
from specs.system.errors import EvidenceMissing

HEARTBEAT_S = 1.0
TERM_GRACE_S = 10.0
RECORD_PATIENCE_S = 12 * 3600.0
"""How long a disk may be full before an ended job counts as lost."""
END_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that end the stage first, so that an exit record is left and no process is orphaned."""
Reason = Literal["exited", "signal", "timeout", "cancelled", "refused", "dead_man"]


class StageProcess(Protocol):
    """The part of ``Popen`` that a wrapper needs of its stage, or of the guard above it."""

    pid: int

    def poll(self) -> int | None:
        """Return the exit code once the stage has ended."""
        ...

    def wait(self, timeout: float) -> int:
        """Return the exit code; raise TimeoutExpired if the stage takes longer."""
        ...


def stage_command(order: JobOrder, folder: Path) -> list[str]:
    """Return the command that runs the order in a job folder."""
    return [sys.executable, "-P", "-m", "training.jobs", str(folder)]


def start_stage(order: JobOrder, folder: Path, writing: int) -> StageProcess:
    """Start the stage below its guard, with its output into a pipe."""
    return subprocess.Popen(
        stage_command(order, folder),
        stdin=subprocess.DEVNULL,
        stdout=writing,
        stderr=subprocess.STDOUT,
        cwd=folder,
        env=os.environ | {orphans.VARIABLE: str(folder.resolve())},
        # The processes that the stage starts end with its group.
        process_group=0,
        preexec_fn=partial(orphans.stand_guard, os.getpid()),
    )


Start = Callable[[JobOrder, Path, int], StageProcess]


def main(start: Start = start_stage) -> int:
    """Run the job of the folder given as the only argument."""
    if len(sys.argv) != 2:
        print("usage: python -P -m sessions.jobs.wrapper JOB_FOLDER", file=sys.stderr)
        return 2
    # An engine has its own umask.
    keep_private()
    folder = Path(sys.argv[1]).resolve()
    try:
        order = read_order(folder)
    except EvidenceMissing as error:
        print(f"{folder}: {error.message}", file=sys.stderr)
        return 4
    stop: list[Reason] = []
    # Before the claim: a signal between the two would end this process, and the job would be lost.
    for number in END_SIGNALS:
        signal.signal(number, lambda _signal, _frame: stop.append("cancelled"))
    if not claim(folder, order.key):
        print(f"{order.key}: already claimed, nothing to do", file=sys.stderr)
        return 0
    run(folder, order, stop, start)
    return 0


def claim(folder: Path, key: str) -> bool:
    """Take the job: one of any number of wrappers gets True."""
    return not (folder / "claim").exists() and take_claim(folder, this_process(key))


def run(folder: Path, order: JobOrder, stop: list[Reason], start: Start = start_stage) -> None:
    """Run the stage to its end and write the exit record; a signal handler appends to ``stop`` to end it."""
    started, started_at = time.time(), time.monotonic()
    orphans.take_orphans()
    reading, writing = os.pipe()
    child = start(order, folder, writing)
    os.close(writing)
    log = JobLog(folder / "log.txt", reading)
    log.start()
    gpu_use = GpuUse(order.parameters)
    gpu_use.watch()
    absence = Absence(folder.parent.parent / BEAT)
    request: float | None = None
    current = 0
    while True:
        now = time.monotonic()
        # A disk that is briefly full must not cost a day of training.
        with suppress(OSError):
            write_heartbeat(folder, child.pid, time.time(), gpu_use.idle_s)
        current = max(current, process_usage.memory_below(child.pid if orphans.HAS_GUARD else os.getpid()))
        if request is None and not stop:
            if (folder / "cancel").exists():
                stop.append("cancelled")
            elif now - started_at > order.max_seconds:
                stop.append("timeout")
            elif order.dead_man_minutes is not None and absence.seconds() > order.dead_man_minutes * 60:
                stop.append("dead_man")
        # One that has ended meanwhile is not asked: on a busy machine the request may be seen before the end is.
        if stop and request is None and child.poll() is None:
            _signal_group(child.pid, signal.SIGTERM)
            request = now
        elif request is not None and now - request > TERM_GRACE_S:
            _signal_group(child.pid, signal.SIGKILL)
        try:
            code = child.wait(HEARTBEAT_S)
            break
        except subprocess.TimeoutExpired:
            continue
    # By a clock that no one sets, because the time between the two is paid for.
    ended = started + time.monotonic() - started_at
    _signal_group(child.pid, signal.SIGKILL)
    orphans.end_left_behind(folder)
    orphans.end_descendants()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    # A request that came after the stage had exited does not count.
    reason: Reason = stop[0] if request is not None else "signal" if code < 0 else "exited"

    def record() -> None:
        digest = log.finish()
        exit_record = ExitRecord(
            key=order.key,
            code=code,
            reason=reason,
            started=round(started, 3),
            ended=round(ended, 3),
            host=platform.node(),
            log=digest,
            log_left_out=log.left_out,
            cpu_s=round(used.ru_utime + used.ru_stime, 3),
            peak_rss_mb=round(max(current, used.ru_maxrss * 1024) / 2**20, 1),
        )
        write_durably(folder / "exit.json", exit_record.canonical())

    # The wrapper lives until the disk takes the record, so the job is not lost.
    patiently(record, OSError, RECORD_PATIENCE_S, HEARTBEAT_S)


def write_heartbeat(folder: Path, child: int, now: float, gpu_idle_s: float | None) -> None:
    """Show that the job lives. Not durable on purpose: an old heartbeat is worth nothing after a crash."""
    beat = folder / "heartbeat.json"
    partial = folder / ".heartbeat.json"
    statements = {"time": round(now, 3), "wrapper": os.getpid(), "child": child}
    idle = {} if gpu_idle_s is None else {"gpu_idle_s": gpu_idle_s}
    partial.write_bytes(canonical_bytes(statements | idle))
    partial.replace(beat)


def _signal_group(group: int, number: signal.Signals) -> None:
    """Send a signal to the stage and the processes it started."""
    with suppress(ProcessLookupError):
        os.killpg(group, number)


if __name__ == "__main__":
    raise SystemExit(main())
