"""Jobs on machines without this machine's disk: this machine's side. The other one is ``remote_job.py``.

This side sends the order, the files beside it and the inputs. The other one sends heartbeat, progress and log while the
job runs, then what it left, then its exit record. All of that is untrusted: paths and sizes are checked, and nothing
but the files of a job is written.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from reviews.trail.store import write_durably
from sessions.jobs.engine_launcher import key_of
from sessions.jobs.heartbeat import BEAT
from sessions.jobs.job_state import parse_exit, read_order
from sessions.jobs.transfer.shared_place import TABLE_BYTES, Place, Table, read_table
from specs.digests import canonical_bytes
from specs.errors import AuditDamage, EvidenceMissing

RECORD = "place.json"
"""In the run folder: over which place the session's jobs move."""
FETCH_EVERY_S = 2.0
SENT, LEFT, CLAIM, CANCEL, PRESENT = "sent.json", "left.json", "claim.json", "cancel", "present"
"""Files of a job in the place, beside those it tells while it runs."""
TOLD = {"heartbeat.json": 4096, "progress.jsonl": 16 << 20, "log.txt": 32 << 20}
"""What a job tells while it runs, and how large each may be."""
OUTPUTS = "out"
KEPT = ("manifest.json", "progress.jsonl", "log.txt")
"""What a job leaves beside its outputs."""
_OURS = ("cancel", "wrapper.log", "exit.json", "heartbeat.json", *KEPT)


def job_at(key: str, name: str) -> str:
    """Return where a file of a job lies in a place."""
    return f"jobs/{key}/{name}"


class Moving:
    """A :class:`sessions.jobs.engine_launcher.Carrier` over a place."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._fetched: dict[Path, float] = {}
        self._seen: dict[tuple[Path, str], bytes] = {}

    def argv(self, folder: Path) -> list[str]:
        """Return the arguments of ``sessions.jobs.transfer.remote_entry`` for the job."""
        asked = read_order(folder).grant.resources
        # It has to know before anything is transferred, and the order is one of the things that are.
        within = [] if asked is None or asked.max_hours is None else ["--within", f"{asked.max_hours * 3600:.0f}"]
        return [*within, "--place", self.place.url, key_of(folder)]

    def send(self, folder: Path) -> None:
        """Send the order, the files beside it and the inputs, then the table that says that they are all there.

        Raises:
            EvidenceMissing: an input is not what its digest says.
            EngineUnavailable: the place cannot be reached; repeating it resumes.
        """
        order, key = read_order(folder), key_of(folder)
        run = folder.parent.parent
        if not (run / RECORD).exists():
            write_durably(run / RECORD, canonical_bytes({"place": self.place.url}))
        files = {
            one.name: self.place.send_tree(one).files[""]
            for one in sorted(folder.iterdir())
            if one.is_file() and not one.is_symlink() and not one.name.startswith(".") and one.name not in _OURS
        }
        tables = {"job": Table(files=files).model_dump()}
        for role, artifact in order.inputs.items():
            try:
                table = self.place.send_tree(run / artifact.path)
            except (OSError, ValueError) as error:
                raise EvidenceMissing(f"input '{role}' cannot be read: {error}", where=order.key) from error
            if table.digest() != artifact.digest:
                raise EvidenceMissing(
                    f"input '{role}' has the digest {table.digest()}, not {artifact.digest}", where=order.key
                )
            tables[f"input/{role}"] = table.model_dump()
        self.place.write(job_at(key, SENT), canonical_bytes(tables))

    def fetch(self, folder: Path) -> None:
        """Fetch what the job reports; once it has ended, what it left, and its exit record last.

        Raises:
            AuditDamage: what came does not belong to a job, or has other bytes than stated.
            EngineUnavailable: the place cannot be reached; repeating it resumes.
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
            for name, most in TOLD.items():
                self._mirror(folder, key, name, most)
            return
        self._take_over(folder, key, ended)

    def cancel(self, folder: Path, reason: str) -> None:
        """Send the job a request to end."""
        self.place.write(job_at(key_of(folder), CANCEL), reason.encode())

    def withdraw(self, folder: Path, why: str) -> bool:
        """Take the claim in the job's place, so that it never starts; False where it has been claimed."""
        key = key_of(folder)
        return self.place.create(job_at(key, CLAIM), canonical_bytes({"key": folder.name, "withdrawn": why}))

    def _take_over(self, folder: Path, key: str, ended: bytes) -> None:
        try:
            record = parse_exit(ended)
        except ValueError as error:
            raise AuditDamage(f"the exit record has not the form of one: {error}", where=key) from error
        if record.key != folder.name:
            raise AuditDamage(f"the exit record is of {record.key!r}, not of {folder.name!r}", where=key)
        raw = self.place.read(job_at(key, LEFT), TABLE_BYTES)
        left = read_table(raw or b"{}", key).get("job", Table(files={}))
        for path, piece in left.files.items():
            if path not in KEPT and not path.startswith(f"{OUTPUTS}/"):
                raise AuditDamage(f"{path[:100]!r} is no file that a job leaves", where=key)
            if path in KEPT and (folder / path).exists():
                # What was mirrored while it grew.
                (folder / path).unlink()
            self.place.take_tree(Table(files={path: piece}), folder)
        # Last, as the wrapper does: whoever sees it finds everything else.
        write_durably(folder / "exit.json", ended)

    def _mirror(self, folder: Path, key: str, name: str, most: int) -> None:
        data = self.place.read(job_at(key, name), most)
        if data is None or self._seen.get((folder, name)) == data:
            return
        self._seen[folder, name] = data
        partial = folder / f".{name}.told"
        partial.write_bytes(data)
        partial.replace(folder / name)

    def _show_presence(self, folder: Path, key: str) -> None:
        """Report that an orchestrator is there; without one the job ends itself, if its order says so."""
        try:
            beat = str((folder.parent.parent / BEAT).stat().st_mtime_ns).encode()
        except OSError:
            return
        if self._seen.get((folder, PRESENT)) != beat:
            self.place.write(job_at(key, PRESENT), beat)
            self._seen[folder, PRESENT] = beat


def place_of(run: Path) -> Moving | None:
    """Return how the jobs of a run move: over the place that PEERGATE_PLACE names, or over the recorded one.

    Raises:
        UserError: it names none.
    """
    named = os.environ.get("PEERGATE_PLACE")
    if not named:
        try:
            named = str(json.loads((run / RECORD).read_bytes())["place"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
    return Moving(Place(named))
