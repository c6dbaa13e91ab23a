"""What a job folder says by itself, whoever started the job: its order, claim, progress and exit record."""

from __future__ import annotations

import json
import os
import secrets
import shutil
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from reviews.trail.store import sync_folder, write_durably
from sessions.jobs.untrusted_files import read_end
from specs.errors import EvidenceMissing
from specs.job_records import ExitRecord, JobOrder, Progress
from specs.strict_json import read_json
from specs.text import plain

POLL_S = 0.5
LINE_BYTES = 65_536
"""A longer progress line is none."""
EXIT_BYTES = 65_536
WHY = 400
"""Characters of a reason that are told."""


def read_order(folder: Path) -> JobOrder:
    """Return the order of a job.

    Raises:
        EvidenceMissing: there is none, or it is unreadable.
    """
    try:
        return JobOrder.model_validate_json((folder / "order.json").read_bytes())
    except (OSError, ValidationError) as error:
        raise EvidenceMissing(f"no readable order.json: {str(error).splitlines()[0]}", where=str(folder)) from error


def read_exit(folder: Path) -> ExitRecord | None:
    """Return how a job ended; None as long as it left no record of it that counts."""
    try:
        return parse_exit(_exit_bytes(folder))
    except (OSError, ValueError):
        return None


def exit_fault(folder: Path) -> str:
    """Say why the exit record that a job left does not count; nothing where it left none, or one that does."""
    try:
        parse_exit(_exit_bytes(folder))
    except OSError:
        return ""
    except ValueError as error:
        return f"its exit record does not count: {plain(str(error), WHY)}"
    return ""


def parse_exit(data: bytes) -> ExitRecord:
    """Return an exit record from its bytes, which are the ones a wrapper writes: the audit compares their digest.

    Raises:
        ValueError: they are no exit record, or not its canonical form.
    """
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
    with (folder / "exit.json").open("rb") as handle:
        return handle.read(EXIT_BYTES + 1)


def read_owner(folder: Path) -> dict[str, Any] | None:
    """Return what the claim of a job says of who made it; None where nobody has, or where it does not say.

    Raises:
        ValueError: a claim is there and cannot be read.
    """
    try:
        owner = json.loads((folder / "claim" / "claim.json").read_bytes())
    except OSError as error:
        if not (folder / "claim").exists():
            return None
        raise ValueError("the claim does not say whose it is") from error
    if not isinstance(owner, dict):
        raise ValueError("the claim does not say whose it is")
    return owner


def take_claim(folder: Path, said: dict[str, Any]) -> bool:
    """Take the claim of a job for good: of any number of takers one gets True.

    A folder that already says who claims is given the name ``claim``, which is atomic and fails where there is one. Who
    is killed meanwhile has claimed nothing, or has claimed and said who it was.

    Raises:
        OSError: it cannot be written, for another reason than that there is one.
    """
    ready = folder / f".claim.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        write_durably(ready / "claim.json", json.dumps(said).encode())
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
    """Take the claim of a job that nobody has claimed, so that no wrapper ever will; say whether that went well."""
    return take_claim(folder, {"key": key, "withdrawn": why})


def withdrawn_because(folder: Path) -> str | None:
    """Return why whoever watched a job took its claim, so that it never began; None where nobody did."""
    try:
        owner = read_owner(folder)
    except ValueError:
        return None
    return plain(str(owner["withdrawn"]), WHY) if owner is not None and "withdrawn" in owner else None


def newest_progress(folder: Path) -> Progress | None:
    """Return the newest whole line of a job's progress file; None when there is none or it is unreadable."""
    try:
        lines = read_end(folder / "progress.jsonl", LINE_BYTES)[0].rpartition(b"\n")[0].splitlines()
        return Progress.model_validate(read_json(lines[-1])) if lines else None
    except (OSError, ValueError):
        return None
