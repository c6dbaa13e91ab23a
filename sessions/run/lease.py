"""Who owns a session: one orchestrator, known by a lease with a number that only rises.

Three things together. A lock of the operating system (``lease.lock``) that ends with its process: a killed owner is
followed at once. A record of who holds it, with a sign of life every few seconds, in the run folder or, for a session
in Postgres, in its database: an owner that hangs, sleeps or is on a machine that is gone shows none, and after
``LEASE_S`` without one another process takes over. And the fence: whoever takes a session up writes the number into the
trail, and the trail refuses appends under an older one (:attr:`reviews.trail.trail.Trail.fence`). So an owner that
wakes up after it was taken over can do nothing more that counts, however long it slept and whatever its clock says.

A session is taken over without being asked: waiting for a person would make every lost pod wait for one.
"""

from __future__ import annotations

import getpass
import os
import platform
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import psutil
from filelock import FileLock, Timeout

from reviews.reviewers.process.confinement import is_confined
from reviews.trail.tables.pointer import pointer_of
from reviews.trail.trail import Trail
from sessions.run import lease_record
from sessions.run.lease_record import LOCK, LeaseRecord
from sessions.run.run_layout import TRAIL
from specs.errors import LeaseHeld, LeaseLost, PeergateError
from specs.text import plain
from training.running_code import code_state

BEAT_EVERY_S = 5.0


@dataclass
class Held:
    """A lease this process holds."""

    record: LeaseRecord
    over: dict[str, Any] | None = None
    """From whom it was taken over; None when nobody held it any more."""
    is_mine: Callable[[], bool] = lambda: True
    """Asks whether the newest record is still this one."""
    on_loss: Callable[[], None] = lambda: None
    """Called when another process has taken it over, from a thread of its own."""
    lost: threading.Event = field(default_factory=threading.Event)

    def body(self, epoch: int) -> dict[str, Any]:
        """Return what an entry says of it."""
        return {"epoch": epoch, "host": self.record.host, "pid": self.record.pid, "over": self.over}


class Records(Protocol):
    """Where the record of one session's lease is kept."""

    def read(self) -> LeaseRecord | None:
        """Return the newest record."""
        ...

    def replace(self, old: LeaseRecord | None, new: LeaseRecord) -> bool:
        """Put a record in the place of another; False when that is not the newest any more."""
        ...

    def beat(self, own: LeaseRecord) -> bool:
        """Show a sign of life; False when the newest record is another's."""
        ...

    def silent_s(self) -> float:
        """Return for how long there was no sign of life, in seconds."""
        ...

    def mark(self) -> object:
        """Return something that changes with every sign of life."""
        ...

    def end_connections(self, of: LeaseRecord) -> None:
        """End what a process that was taken over may still hold open in the trail's database."""
        ...

    def close(self) -> None:
        """Let go of where it is kept."""
        ...


def records_of(run: Path) -> Records:
    """Return where the lease of a session is recorded: with its trail."""
    pointer = pointer_of(run / TRAIL)
    if pointer is None:
        from sessions.run.lease_file import FileRecords

        return FileRecords(run)
    from sessions.run.lease_rows import PostgresRecords

    return PostgresRecords(run / TRAIL, pointer)


@contextmanager
def lease(run: Path, wait_s: float = 1.0) -> Generator[Held]:
    """Own the session: two orchestrators on one session would fork its history.

    A short wait, because a command that only asks who owns it holds the lock for a moment too.

    Raises:
        LeaseHeld: another process has it.
    """
    records = records_of(run)
    try:
        held, lock = _acquire(run, records, wait_s)
        with lock, _alive(records, held):
            yield held
    finally:
        records.close()


def is_running(run: Path) -> bool:
    """Say whether some process owns the session; one that hangs does until it is taken over."""
    records = records_of(run)
    try:
        record = records.read()
        lock = FileLock(run / (record.lock if record else LOCK))
        try:
            with lock.acquire(timeout=0):
                return record is not None and not _is_over(record) and records.silent_s() <= lease_record.LEASE_S
        except Timeout:
            return True
    finally:
        records.close()


def take_up(trail: Trail, held: Held) -> None:
    """Record that this process has taken the session up, and append under its number from here on.

    Raises:
        LeaseLost: another process has taken it over in the meantime.
    """
    state = code_state().model_dump(mode="json")
    with trail.alone():
        _require(trail, held)
        epoch = max(held.record.number, trail.epoch() + 1)
        number = sum(1 for _ in trail.iterate("resume")) + 1
        body = {"by": getpass.getuser(), "reviewer_confined": is_confined(), "lease": held.body(epoch)}
        body["code_state"] = state
        trail.append("resume", f"resume/{number}", body)
    trail.fence = epoch


def stand_by(trail: Trail, held: Held) -> None:
    """Append as the owner of a session that is not taken up: to amend it, take something back or end it.

    Raises:
        LeaseLost: another process has taken it over in the meantime.
    """
    if held.over is not None:
        # The one it was taken from has to be kept out.
        take_up(trail, held)
        return
    with trail.alone():
        _require(trail, held)
        trail.fence = trail.epoch()


def _require(trail: Trail, held: Held) -> None:
    if not held.is_mine():
        raise LeaseLost(
            "another process has taken the session over; nothing was recorded",
            where=trail.session,
            hint="`peergate status` says how the session stands",
        )


def _acquire(run: Path, records: Records, wait_s: float) -> tuple[Held, FileLock]:
    deadline = time.monotonic() + wait_s
    while True:
        record = records.read()
        lock = FileLock(run / (record.lock if record else LOCK))
        over: dict[str, Any] | None = None
        name = record.lock if record else LOCK
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
                # Its lock is free and still it may live: on another machine, or where a folder has no locks.
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
            return Held(new, over, partial(_is_newest, records, new)), lock
        lock.release()
        if time.monotonic() > deadline:
            raise _refusal(run, records.read(), records)


def _is_newest(records: Records, record: LeaseRecord) -> bool:
    return records.read() == record


def _is_over(record: LeaseRecord) -> bool:
    """Say whether the owner, whose lock is free, has let go of it or was a process of this machine that is gone.

    This process itself has let go of it too: only the database that it wanted to tell was gone.
    """
    if record.released:
        return True
    if record.host != platform.node():
        return False
    if record.pid == os.getpid():
        return True
    try:
        return abs(psutil.Process(record.pid).create_time() - record.started) > 1.0
    except psutil.Error:
        return True


def _is_silent(records: Records) -> bool:
    """Say whether the owner shows no sign of life: by the clock, and while it is watched for two beats.

    A clock alone may have been set, and a machine that wakes up has an old time on everything.
    """
    if records.silent_s() <= lease_record.LEASE_S:
        return False
    mark = records.mark()
    until = time.monotonic() + 2 * BEAT_EVERY_S
    while time.monotonic() < until:
        time.sleep(BEAT_EVERY_S / 5)
        if records.mark() != mark:
            return False
    return True


def _over(record: LeaseRecord, records: Records) -> dict[str, Any]:
    silent = round(records.silent_s(), 1)
    return {"epoch": record.number, "by": record.by, "host": record.host, "pid": record.pid, "silent_s": silent}


def _refusal(run: Path, record: LeaseRecord | None, records: Records) -> LeaseHeld:
    hint = "wait for it, stop it with Ctrl-C there, or `peergate pause`"
    if record is None or record.released:
        return LeaseHeld("another process is running this session", where=str(run), hint=hint)
    since = datetime.fromtimestamp(record.since, UTC).isoformat(timespec="seconds")
    who = f"{plain(record.by, 60)}, process {record.pid} on {plain(record.host, 60)}, since {since}"
    silent = max(0.0, records.silent_s())
    return LeaseHeld(
        f"another process is running this session: {who}, last sign of life {silent:.0f} s ago",
        where=str(run),
        hint=f"{hint}; after {lease_record.LEASE_S:.0f} s without a sign of life `peergate resume` takes over",
    )


@contextmanager
def _alive(records: Records, held: Held) -> Generator[None]:
    """Show signs of life from a thread of its own, and let go of the lease at the end."""
    ended = threading.Event()

    def go_on() -> None:
        while not ended.wait(BEAT_EVERY_S):
            # A disk that is full or a database that is gone for a moment is not the loss of the session.
            with suppress(OSError, PeergateError):
                if not records.beat(held.record):
                    held.lost.set()
                    held.on_loss()
                    return

    thread = threading.Thread(target=go_on, name="lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        with suppress(OSError, PeergateError):
            records.replace(held.record, held.record.model_copy(update={"released": True}))
