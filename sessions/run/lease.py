"""Who owns a session: one orchestrator, known by a lease with a number that only rises.

The lock ``lease.lock`` ends with its process, so a killed owner is replaced at once. A record, in the run folder or in
the session's database, shows a sign of life every few seconds; after ``LEASE_S`` without one another process takes
over, without asking a person. The new owner writes its number into the trail, which refuses appends under an older one
(:attr:`reviews.trail.trail.Trail.fence`), so a previous owner that wakes up can do nothing that counts.
"""

from __future__ import annotations

import fcntl
import getpass
import os
import platform
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import psutil
from filelock import FileLock, Timeout

from reviews.reviewers.process.confinement import is_confined
from reviews.trail.tables.pointer import pointer_of
from reviews.trail.trail import Trail
from sessions.run import lease_record
from sessions.run.claim import is_alive
from sessions.run.heartbeat import repeating
from sessions.run.lease_record import LOCK, FileRecords, LeaseRecord
from sessions.run.run_layout import TRAIL
from specs.system.errors import LeaseHeld, LeaseLost, PeergateError
from specs.system.regular_files import open_regular
from specs.system.text import plain
from specs.trail.session_bodies import Lease, PreviousOwner, ResumeEntry
from training.running_code import code_state

if TYPE_CHECKING:
    # Only a session in a database imports it.
    from sessions.run.lease_rows import PostgresRecords

BEAT_EVERY_S = 5.0


@dataclass
class OwnedLease:
    """A lease this process holds."""

    record: LeaseRecord
    over: PreviousOwner | None = None
    """The owner it was taken over from; None if it was free."""
    is_mine: Callable[[], bool] = lambda: True
    """Says whether the newest record is still this one."""
    on_loss: Callable[[], object] = lambda: None
    """Called from another thread after a take-over by another process."""

    def at(self, epoch: int) -> Lease:
        """Return the lease as a trail entry records it."""
        return Lease(epoch=epoch, host=self.record.host, pid=self.record.pid, over=self.over)


Records: TypeAlias = "FileRecords | PostgresRecords"
"""Where the record of one session's lease is kept."""


def records_of(run: Path) -> Records:
    """Return where the lease of a session is recorded: with its trail."""
    pointer = pointer_of(run / TRAIL)
    if pointer is None:
        return FileRecords(run)
    from sessions.run.lease_rows import PostgresRecords

    return PostgresRecords(run / TRAIL, pointer)


@contextmanager
def lease(run: Path, wait_s: float = 1.0) -> Generator[OwnedLease]:
    """Own the session alone, after a short wait for commands that only look, or raise LeaseHeld."""
    records = records_of(run)
    try:
        current, lock = _acquire(run, records, wait_s)

        def sign() -> bool:
            # A full disk or a brief loss of the database is not the loss of the session.
            with suppress(OSError, PeergateError):
                if not records.beat(current.record):
                    current.on_loss()
                    return False
            return True

        with lock:
            try:
                with repeating(sign, BEAT_EVERY_S, "lease"):
                    yield current
            finally:
                with suppress(OSError, PeergateError):
                    records.replace(current.record, current.record.model_copy(update={"released": True}))
    finally:
        records.close()


def is_running(run: Path) -> bool:
    """Return whether a process owns the session; a hanging one does until it is taken over."""
    records = records_of(run)
    try:
        record = records.read()
        with _lock_for_reading(run / (record.lock if record else LOCK)) as free:
            return not free or (
                record is not None and not _is_over(record) and records.silent_s() <= lease_record.LEASE_S
            )
    finally:
        records.close()


@contextmanager
def _lock_for_reading(path: Path) -> Generator[bool]:
    """Yield whether no process owns the lock, and keep owners off meanwhile; readers do not exclude one another."""
    try:
        handle = open_regular(path)
    except FileNotFoundError:
        yield True
        return
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            free = True
        except BlockingIOError:
            free = False
        yield free


def take_up(trail: Trail, current: OwnedLease) -> None:
    """Record that this process has resumed the session, and append under its number; raise LeaseLost if it lost it."""
    state = code_state()
    with trail.alone():
        _require(trail, current)
        epoch = max(current.record.number, trail.epoch() + 1)
        number = sum(1 for _ in trail.iterate(ResumeEntry)) + 1
        by, lease = getpass.getuser(), current.at(epoch)
        body = ResumeEntry(by=by, reviewer_confined=is_confined(), lease=lease, code_state=state)
        trail.append(body, ResumeEntry.key_of(number))
    trail.fence = epoch


def stand_by(trail: Trail, current: OwnedLease) -> None:
    """Append as owner without resuming, to amend, retract or end the session; raise LeaseLost if it was taken over."""
    if current.over is not None:
        # The previous owner has to be fenced out.
        take_up(trail, current)
        return
    with trail.alone():
        _require(trail, current)
        trail.fence = trail.epoch()


def _require(trail: Trail, current: OwnedLease) -> None:
    if not current.is_mine():
        raise LeaseLost(
            "another process has taken over the session; nothing was recorded",
            where=trail.session,
            hint="`peergate status` shows the session",
        )


def _acquire(run: Path, records: Records, wait_s: float) -> tuple[OwnedLease, FileLock]:
    deadline = time.monotonic() + wait_s
    while True:
        record = records.read()
        name = record.lock if record else LOCK
        lock = FileLock(run / name)
        over: PreviousOwner | None = None
        try:
            lock.acquire(timeout=max(0.0, deadline - time.monotonic()), poll_interval=0.02)
        except Timeout as error:
            if record is None or record.released or not _is_silent(records):
                raise _refusal(run, record, records) from error
            name = f"lease.{record.number + 1}.lock"
            lock, over = FileLock(run / name), _over(record, records)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                raise _refusal(run, record, records) from error
        else:
            if record is not None and records.read() == record and not _is_over(record):
                # Its lock is free, but it may live on another machine, or the folder may lack locks.
                if not _is_silent(records):
                    lock.release()
                    raise _refusal(run, record, records)
                over = _over(record, records)
        new = LeaseRecord(
            number=record.number + 1 if record else 1,
            by=getpass.getuser(),
            host=platform.node(),
            pid=os.getpid(),
            started=psutil.Process().create_time(),
            since=round(time.time(), 3),
            lock=name,
        )
        try:
            replaced = records.replace(record, new)
        except BaseException:
            lock.release()
            raise
        if replaced:
            if over is not None and record is not None:
                records.end_connections(record)
            return OwnedLease(new, over, lambda own=new: records.read() == own), lock
        lock.release()
        if time.monotonic() > deadline:
            raise _refusal(run, records.read(), records)


def _is_over(record: LeaseRecord) -> bool:
    """Return whether an owner whose lock is free released it, ended here, or is this process, which could not tell."""
    if record.released or record.host != platform.node():
        return record.released
    return record.pid == os.getpid() or not is_alive({"pid": record.pid, "started": record.started})


def _is_silent(records: Records) -> bool:
    """Return whether the owner is silent by a clock, which may have been set, and while it is watched for two beats."""
    if records.silent_s() <= lease_record.LEASE_S:
        return False
    mark = records.mark()
    until = time.monotonic() + 2 * BEAT_EVERY_S
    while time.monotonic() < until:
        time.sleep(BEAT_EVERY_S / 5)
        if records.mark() != mark:
            return False
    return True


def _over(record: LeaseRecord, records: Records) -> PreviousOwner:
    silent = round(records.silent_s(), 1)
    return PreviousOwner(epoch=record.number, by=record.by, host=record.host, pid=record.pid, silent_s=silent)


def _refusal(run: Path, record: LeaseRecord | None, records: Records) -> LeaseHeld:
    message, hint = (
        "another process is running this session",
        "wait for it, stop it with Ctrl-C there, or `peergate pause`",
    )
    if record is not None and not record.released:
        since = datetime.fromtimestamp(record.since, UTC).isoformat(timespec="seconds")
        who = f"{plain(record.by, 60)}, process {record.pid} on {plain(record.host, 60)}, since {since}"
        message += f": {who}, last sign of life {max(0.0, records.silent_s()):.0f} s ago"
        hint += f"; after {lease_record.LEASE_S:.0f} s without a sign of life `peergate resume` takes over"
    return LeaseHeld(message, where=str(run), hint=hint)
