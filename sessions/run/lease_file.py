"""The record of a session's lease in its run folder: ``lease.json``. Its time is the newest sign of life."""

from __future__ import annotations

import os
import time
from pathlib import Path

from pydantic import ValidationError

from reviews.trail.store import write_durably
from sessions.run.lease_record import LeaseRecord

NAME = "lease.json"


class FileRecords:
    """A :class:`sessions.run.lease.Records` in a file. Who replaces it holds the lock that the record names."""

    def __init__(self, run: Path) -> None:
        self._path = run / NAME

    def read(self) -> LeaseRecord | None:
        """Return the record; one that cannot be read was none, its number is then taken from the trail."""
        try:
            return LeaseRecord.model_validate_json(self._path.read_bytes())
        except (FileNotFoundError, ValidationError):
            return None

    def replace(self, old: LeaseRecord | None, new: LeaseRecord) -> bool:
        """Put a record in the place of another."""
        if self.read() != old:
            return False
        write_durably(self._path, new.canonical())
        return True

    def beat(self, own: LeaseRecord) -> bool:
        """Change the time of the file, if it is this process's own."""
        if self.read() != own:
            return False
        os.utime(self._path)
        return True

    def silent_s(self) -> float:
        """Return the age of the file."""
        try:
            return time.time() - self._path.stat().st_mtime
        except OSError:
            return 0.0

    def mark(self) -> object:
        """Return the time of the file."""
        try:
            return self._path.stat().st_mtime_ns
        except OSError:
            return None

    def end_connections(self, of: LeaseRecord) -> None:
        """A file has none. A process that hangs inside a transaction keeps the others from writing until it ends."""

    def close(self) -> None:
        """Nothing is open."""
