"""What a lease says, and its record in the run folder: ``lease.json``. The file's time is the newest sign of life."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from reviews.trail.chain.store import write_durably
from sessions.run.heartbeat import mark_of
from specs.system.digests import Contract
from specs.system.regular_files import read_regular

LEASE_S = 60.0
"""Without a sign of life for this long, the owner counts as gone. Network folders delay signs by less."""

LOCK = "lease.lock"
NAME = "lease.json"


class LeaseRecord(Contract):
    """Who holds a session, or held it last."""

    number: int
    """Rises with every owner: the epoch that entries are fenced with."""
    by: str
    host: str
    pid: int
    started: float
    """When the process was started, because its id may be reused."""
    since: float
    lock: Annotated[str, Field(pattern=r"^lease(\.[0-9]+)?\.lock$")] = LOCK
    """The file whose lock the owner holds: a new one after each take-over, as the old one may still be held."""
    released: bool = False


class FileRecords:
    """The record of a lease in a file, replaced under the lock that the record names."""

    def __init__(self, run: Path) -> None:
        self._path = run / NAME

    def read(self) -> LeaseRecord | None:
        """Return the record; None if it is missing or unreadable, and then the trail gives the number."""
        try:
            return LeaseRecord.model_validate_json(read_regular(self._path, 1 << 16))
        except (FileNotFoundError, ValidationError):
            return None

    def replace(self, old: LeaseRecord | None, new: LeaseRecord) -> bool:
        """Replace a record; False if it is not the newest any more."""
        if self.read() != old:
            return False
        write_durably(self._path, new.canonical())
        return True

    def beat(self, own: LeaseRecord) -> bool:
        """Change the time of the file, a sign of life; False if the record is another's."""
        if self.read() != own:
            return False
        os.utime(self._path)
        return True

    def silent_s(self) -> float:
        """Return the age of the file."""
        with suppress(OSError):
            return time.time() - self._path.stat().st_mtime
        return 0.0

    def mark(self) -> object:
        """Return the time of the file, which changes with every sign of life."""
        return mark_of(self._path)

    def end_connections(self, of: LeaseRecord) -> None:
        """Do nothing: a process that hangs inside a transaction keeps others from writing until it ends."""

    def close(self) -> None:
        """Do nothing."""
