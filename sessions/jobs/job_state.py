"""The state in a job folder, for any launcher: its order, claim, progress and exit record."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from reviews.trail.chain.store import sync_folder, write_durably
from sessions.jobs.untrusted_files import read_end
from specs.jobs.job_records import ExitRecord, JobOrder, JobProgress
from specs.system.digests import digest_bytes
from specs.system.errors import BlockedError, EvidenceMissing
from specs.system.regular_files import open_regular, read_regular
from specs.system.strict_json import read_json
from specs.system.text import plain

POLL_S = 0.5
LINE_BYTES = 65_536
"""A longer progress line does not count."""
EXIT_BYTES = 65_536
HEARTBEAT_BYTES = 4096
WHY = 400
"""Characters of a reason that are shown."""


class EngineUnavailable(BlockedError):
    """An engine or a place did not answer in time, or refused. The session pauses; running jobs continue."""


def read_order(folder: Path) -> JobOrder:
    """Return the order of a job, or raise EvidenceMissing if it is missing or unreadable."""
    try:
        return JobOrder.model_validate_json(read_regular(folder / "order.json"))
    except (OSError, ValidationError) as error:
        raise EvidenceMissing(f"no readable order.json: {str(error).splitlines()[0]}", where=str(folder)) from error


def shared_key(order: JobOrder) -> str:
    """Return the name of a job where other sessions are too: two sessions may have the same name."""
    return f"{order.key}.{digest_bytes(order.canonical()).removeprefix('sha256:')[:12]}"


def key_of(folder: Path) -> str:
    """Return :func:`shared_key` of a folder's job, or raise EvidenceMissing if it has no order."""
    return shared_key(read_order(folder))


def read_exit(folder: Path) -> ExitRecord | None:
    """Return how a job ended; None if it has left no valid exit record."""
    with suppress(OSError, ValueError):
        return parse_exit(_exit_bytes(folder))
    return None


def exit_fault(folder: Path) -> str:
    """Return why the exit record of a job is not valid; empty if it is valid or missing."""
    try:
        with suppress(OSError):
            parse_exit(_exit_bytes(folder))
    except ValueError as error:
        return f"its exit record does not count: {plain(str(error), WHY)}"
    return ""


def gpu_idle_s(folder: Path) -> float | None:
    """Return for how long the job's GPUs have been idle, by its newest heartbeat; None if that is not known."""
    with suppress(OSError, ValueError, RecursionError):
        statement = json.loads(read_end(folder / "heartbeat.json", HEARTBEAT_BYTES)[0])
        idle = statement.get("gpu_idle_s") if isinstance(statement, dict) else None
        return float(idle) if isinstance(idle, int | float) else None
    return None


def parse_exit(data: bytes) -> ExitRecord:
    """Return an exit record from its canonical bytes, whose digest the audit compares, or raise ValueError."""
    read_json(data, EXIT_BYTES)
    try:
        record = ExitRecord.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    if record.canonical() != data:
        raise ValueError("it is not written as canonical JSON, as a wrapper does it")
    return record


def _exit_bytes(folder: Path) -> bytes:
    with open_regular(folder / "exit.json") as handle:
        return handle.read(EXIT_BYTES + 1)


def read_owner(folder: Path) -> dict[str, Any] | None:
    """Return the content of a job's claim, None without a claim; raise ValueError if it is unreadable."""
    owner = None
    try:
        owner = json.loads(read_regular(folder / "claim" / "claim.json", EXIT_BYTES))
    except OSError:
        if not (folder / "claim").exists():
            return None
    if not isinstance(owner, dict):
        raise ValueError("the claim does not name its owner")
    return owner


def take_claim(folder: Path, statements: dict[str, Any]) -> bool:
    """Take the claim of a job for good: of any number of takers one gets True.

    A folder that already names the taker is renamed to ``claim``, which is atomic and fails if there is one. A taker
    that is killed meanwhile has claimed nothing, or has claimed and named itself. OSError is raised if the claim cannot
    be written and no one has it.
    """
    ready = folder / f".claim.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        write_durably(ready / "claim.json", json.dumps(statements).encode())
        ready.rename(folder / "claim")
    except OSError:
        if not (folder / "claim").is_dir():
            raise
        return False
    finally:
        shutil.rmtree(ready, ignore_errors=True)
    sync_folder(folder)
    return True


def withdraw(folder: Path, key: str, why: str) -> bool:
    """Take the claim of an unclaimed job, so that no wrapper ever will; False if it has been claimed."""
    return take_claim(folder, {"key": key, "withdrawn": why})


def withdrawn_because(folder: Path) -> str | None:
    """Return why a watcher withdrew a job before it began; None if no one did."""
    with suppress(ValueError):
        owner = read_owner(folder)
        return plain(str(owner["withdrawn"]), WHY) if owner is not None and "withdrawn" in owner else None
    return None


def newest_progress(folder: Path) -> JobProgress | None:
    """Return the newest whole line of a job's progress file; None if it is missing or unreadable."""
    try:
        lines = read_end(folder / "progress.jsonl", LINE_BYTES)[0].rpartition(b"\n")[0].splitlines()
        return JobProgress.model_validate(read_json(lines[-1])) if lines else None
    except (OSError, ValueError):
        return None


def patiently(step: Callable[[], object], fault: type[Exception], patience_s: float, pause_s: float) -> None:
    """Repeat a step until it does not raise a fault, and report each one on stderr; raise it after the patience."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            step()
            return
        except fault as error:
            if time.monotonic() > deadline:
                raise
            # stderr is mostly on the same disk.
            with suppress(OSError):
                print(f"trying again: {error}", file=sys.stderr)
            time.sleep(pause_s)
