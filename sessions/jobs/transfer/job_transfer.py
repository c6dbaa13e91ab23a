"""This machine's side of jobs on machines without its disk; the other side is ``remote_entry.py``.

This side sends order and inputs. The other one sends heartbeat, progress and log, then its files, then its exit record,
all untrusted: paths and sizes are checked, and only files of the job are written.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path

from reviews.trail.chain.store import write_durably
from sessions.jobs.job_state import key_of, parse_exit, read_order, shared_key
from sessions.jobs.transfer.shared_place import TABLE_BYTES, FileTable, SharedPlace, read_table
from sessions.run.heartbeat import BEAT
from specs.system.digests import canonical_bytes
from specs.system.errors import AuditDamage, EvidenceMissing
from specs.system.regular_files import read_regular

RECORD = "place.json"
"""In the run folder: names the place over which the session's jobs move."""
FETCH_EVERY_S = 2.0
SENT, LEFT, CLAIM, CANCEL, PRESENT = "sent.json", "left.json", "claim.json", "cancel", "present"
"""Files of a job in the place, in addition to :data:`STATUS_FILES`."""
STATUS_FILES = {"heartbeat.json": 4096, "progress.jsonl": 16 << 20, "log.txt": 32 << 20}
"""Files that a running job reports, and their largest sizes."""
OUTPUTS = "out"
RESULT_FILES = ("manifest.json", "progress.jsonl", "log.txt")
"""Files that a job leaves next to its outputs."""
_OURS = ("cancel", "wrapper.log", "exit.json", "heartbeat.json", *RESULT_FILES)


def job_at(key: str, name: str) -> str:
    """Return the path of a job's file in a place."""
    return f"jobs/{key}/{name}"


class Transfer:
    """Moves a job's folder between here and a machine with another disk, over a place that both reach."""

    def __init__(self, place: SharedPlace) -> None:
        self.place = place
        self._fetched: dict[Path, float] = {}
        self._last_contents: dict[tuple[Path, str], bytes] = {}

    def argv(self, folder: Path) -> list[str]:
        """Return the arguments of ``sessions.jobs.transfer.remote_entry`` for the job."""
        resources = read_order(folder).grant.resources
        # An argument, because it counts before the order is transferred.
        within = (
            []
            if resources is None or resources.max_hours is None
            else ["--within", f"{resources.max_hours * 3600:.0f}"]
        )
        return [*within, "--place", self.place.url, key_of(folder)]

    def send(self, folder: Path) -> None:
        """Send the order, the files next to it and the inputs, then the table that lists them.

        Raises:
            EvidenceMissing: an input does not match its digest.
            EngineUnavailable: the place cannot be reached; another call resumes.
        """
        order = read_order(folder)
        key, run = shared_key(order), folder.parent.parent
        if not (run / RECORD).exists():
            write_durably(run / RECORD, canonical_bytes({"place": self.place.url}))
        files = {
            path.name: self.place.send_tree(path).files[""]
            for path in sorted(folder.iterdir())
            if path.is_file() and not path.is_symlink() and not path.name.startswith(".") and path.name not in _OURS
        }
        tables = {"job": FileTable(files=files).model_dump()}
        for role, artifact in order.inputs.items():
            try:
                table = self.place.send_tree(run / artifact.path)
            except (OSError, ValueError) as error:
                raise EvidenceMissing(f"input '{role}' cannot be read: {error}", where=order.key) from error
            if (text := table.digest()) != artifact.digest:
                raise EvidenceMissing(f"input '{role}' has the digest {text}, not {artifact.digest}", where=order.key)
            tables[f"input/{role}"] = table.model_dump()
        self.place.write(job_at(key, SENT), canonical_bytes(tables))

    def fetch(self, folder: Path) -> None:
        """Fetch what the job reports; once it has ended, its files, and its exit record last.

        Raises:
            AuditDamage: a file does not belong to the job, or does not match its digest.
            EngineUnavailable: the place cannot be reached; another call resumes.
        """
        now = time.monotonic()
        if now - self._fetched.get(folder, float("-inf")) < FETCH_EVERY_S:
            return
        self._fetched[folder] = now
        key = key_of(folder)
        self._show_presence(folder, key)
        claim = self.place.read(job_at(key, CLAIM), 65_536)
        if claim is None:
            return
        if not (folder / "claim").exists():
            write_durably(folder / "claim" / "claim.json", claim)
        ended = self.place.read(job_at(key, "exit.json"), 65_536)
        if ended is None:
            for name, most in STATUS_FILES.items():
                self._mirror(folder, key, name, most)
            return
        self._take_over(folder, key, ended)

    def cancel(self, folder: Path, reason: str) -> None:
        """Send the job a request to end."""
        self.place.write(job_at(key_of(folder), CANCEL), reason.encode())

    def withdraw(self, folder: Path, why: str) -> bool:
        """Take the claim in the place, so that the job never starts; False if it has been claimed."""
        key = key_of(folder)
        return self.place.create(job_at(key, CLAIM), canonical_bytes({"key": folder.name, "withdrawn": why}))

    def _take_over(self, folder: Path, key: str, ended: bytes) -> None:
        try:
            record = parse_exit(ended)
        except ValueError as error:
            raise AuditDamage(f"the exit record is malformed: {error}", where=key) from error
        if record.key != folder.name:
            raise AuditDamage(f"the exit record belongs to {record.key!r}, not to {folder.name!r}", where=key)
        raw = self.place.read(job_at(key, LEFT), TABLE_BYTES)
        table = read_table(raw or b"{}", key).get("job", FileTable(files={}))
        for path, piece in table.files.items():
            if path not in RESULT_FILES and not path.startswith(f"{OUTPUTS}/"):
                raise AuditDamage(f"{path[:100]!r} is not a file that a job leaves", where=key)
            if path in RESULT_FILES and (folder / path).exists():
                # It was mirrored while it grew.
                (folder / path).unlink()
            self.place.take_tree(FileTable(files={path: piece}), folder)
        # Last, as the wrapper does: with the exit record all other files are there.
        write_durably(folder / "exit.json", ended)

    def _mirror(self, folder: Path, key: str, name: str, most: int) -> None:
        data = self.place.read(job_at(key, name), most)
        if data is None or self._last_contents.get((folder, name)) == data:
            return
        self._last_contents[folder, name] = data
        partial = folder / f".{name}.partial"
        partial.write_bytes(data)
        partial.replace(folder / name)

    def _show_presence(self, folder: Path, key: str) -> None:
        """Report that the orchestrator lives; without that the job ends itself, if its order says so."""
        with suppress(FileNotFoundError):
            beat = str((folder.parent.parent / BEAT).stat().st_mtime_ns).encode()
            if self._last_contents.get((folder, PRESENT)) != beat:
                self.place.write(job_at(key, PRESENT), beat)
                self._last_contents[folder, PRESENT] = beat


def place_of(run: Path) -> Transfer | None:
    """Return how a run's jobs move, None without a named or recorded place; raise UserError if it is malformed."""
    named = os.environ.get("PEERGATE_PLACE")
    if not named:
        with suppress(OSError, ValueError, KeyError, TypeError):
            named = str(json.loads(read_regular(run / RECORD, 1 << 16))["place"])
    return Transfer(SharedPlace(named)) if named else None
