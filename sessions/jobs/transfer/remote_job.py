"""A job on a machine without the orchestrator's disk: claimed in the place, run by the wrapper here, brought back.

``python -P -m sessions.jobs.transfer.remote_entry --place URL KEY``. Below the machine's own folder
(``PEERGATE_JOB_ROOT``, or the user's cache) each job has a folder like a run's; bytes of inputs are kept for the jobs
after it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import platformdirs
from pydantic import ValidationError

from reviews.trail.store import write_durably
from sessions.jobs import orphans
from sessions.jobs.claim import this_process
from sessions.jobs.engine_launcher import EngineUnavailable
from sessions.jobs.heartbeat import beat
from sessions.jobs.local_launcher import job_environment
from sessions.jobs.transfer.job_transfer import CANCEL, CLAIM, KEPT, LEFT, OUTPUTS, PRESENT, SENT, TOLD, job_at
from sessions.jobs.transfer.shared_place import TABLE_BYTES, Piece, Place, Table, read_table
from sessions.jobs.untrusted_files import NotReadable, open_file
from specs.digests import canonical_bytes, digest_bytes, digest_file
from specs.errors import EvidenceMissing
from specs.job_records import JobOrder

LOOK_S = 1.0
PATIENCE_S = 3600.0
"""How long the place may be out of reach when something has to be brought there."""


def job_root() -> Path:
    """Return where this machine keeps what it runs for others."""
    named = os.environ.get("PEERGATE_JOB_ROOT")
    return Path(named).resolve() if named else Path(platformdirs.user_cache_dir("peergate")) / "moved"


def carry_out(url: str, key: str, root: Path) -> int:
    """Claim a job in a place, run it here, and bring back what it leaves; the exit record comes last.

    Raises:
        EngineUnavailable: the place is out of reach; nothing was claimed, or nothing could be brought back.
        EvidenceMissing: what lies there is not the job that the key names.
        AuditDamage: bytes are other ones than their digest says.
    """
    place = Place(url)
    if not place.create(job_at(key, CLAIM), canonical_bytes(this_process(key))):
        print(f"{key}: already claimed, nothing to do", file=sys.stderr)
        return 0
    run = root / key
    folder = prepare(place, key, run, root / "blobs")
    asked = JobOrder.model_validate_json((folder / "order.json").read_bytes()).grant.resources
    wrapper = subprocess.Popen(
        [sys.executable, "-P", "-m", "sessions.jobs.wrapper", str(folder)],
        stdin=subprocess.DEVNULL,
        cwd=folder,
        env=job_environment(asked),
        preexec_fn=partial(orphans.end_with_parent, os.getpid(), signal.SIGTERM),
    )
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: wrapper.terminate())
    _watch(place, key, run, folder, wrapper)
    if not (folder / "exit.json").is_file():
        print(f"{key}: the wrapper left no exit record", file=sys.stderr)
        return 1
    _patiently(lambda: bring_back(place, key, folder))
    return 0


def prepare(place: Place, key: str, run: Path, cache: Path) -> Path:
    """Bring order and inputs here, each compared with its digest, and return the job folder.

    The order is that which the key names, with the inputs where they lie on this machine.
    """
    raw = place.read(job_at(key, SENT), TABLE_BYTES)
    if raw is None:
        raise EvidenceMissing("nothing was sent for it", where=key)
    tables = read_table(raw, key)
    job = tables.get("job", Table(files={}))
    name = key.rpartition(".")[0]
    folder = run / "jobs" / name
    place.take_tree(job, folder)
    try:
        order = JobOrder.model_validate_json((folder / "order.json").read_bytes())
    except (OSError, ValidationError) as error:
        raise EvidenceMissing(f"no readable order: {str(error).splitlines()[0]}", where=key) from error
    found = digest_bytes(order.canonical()).removeprefix("sha256:")[:12]
    if (order.key, found) != (name, key.rpartition(".")[2]):
        raise EvidenceMissing(f"the order is {order.key}.{found}, not {key}", where=key)
    here = dict(order.inputs)
    for role, artifact in order.inputs.items():
        table = tables.get(f"input/{role}", Table(files={}))
        if table.digest() != artifact.digest:
            raise EvidenceMissing(f"input '{role}' is {table.digest()}, ordered was {artifact.digest}", where=key)
        place.take_tree(table, run / "inputs" / role, cache)
        here[role] = artifact.model_copy(update={"path": f"inputs/{role}"})
    write_durably(folder / "order.json", order.model_copy(update={"inputs": here}).canonical())
    return folder


def bring_back(place: Place, key: str, folder: Path) -> None:
    """Bring what the job left, its table, and then its exit record."""
    files: dict[str, Piece] = {}
    for name in KEPT:
        try:
            with open_file(folder / name):
                files[name] = Piece(digest=digest_file(folder / name), bytes=(folder / name).stat().st_size)
        except NotReadable:
            continue
        place.send(folder / name, files[name])
    if (folder / OUTPUTS).is_dir() and not (folder / OUTPUTS).is_symlink():
        try:
            left = place.send_tree(folder / OUTPUTS).files
        except ValueError as error:
            # A link among the outputs: they cannot be digested there either, so they do not count.
            print(f"{key}: outputs left behind: {error}", file=sys.stderr)
            left = {}
        files |= {f"{OUTPUTS}/{path}": piece for path, piece in left.items()}
    place.write(job_at(key, LEFT), canonical_bytes({"job": Table(files=files).model_dump()}))
    place.write(job_at(key, "exit.json"), (folder / "exit.json").read_bytes())


def _watch(place: Place, key: str, run: Path, folder: Path, wrapper: subprocess.Popen[bytes]) -> None:
    """Tell how the job is until it has ended, and hand on what is asked of it."""
    seen: dict[str, bytes] = {}
    while True:
        try:
            code = wrapper.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            code = None
        try:
            _exchange(place, key, run, folder, seen)
        except EngineUnavailable as error:
            # The job continues; the orchestrator sees silence.
            print(error, file=sys.stderr)
        if code is not None:
            return


def _exchange(place: Place, key: str, run: Path, folder: Path, seen: dict[str, bytes]) -> None:
    for name, most in TOLD.items():
        try:
            with open_file(folder / name) as handle:
                data = handle.read(most)
        except NotReadable:
            continue
        if seen.get(name) != data:
            place.write(job_at(key, name), data)
            seen[name] = data
    present = place.read(job_at(key, PRESENT), 4096)
    if present is not None and seen.get(PRESENT) != present:
        seen[PRESENT] = present
        beat(run)
    if not (folder / "cancel").exists() and (reason := place.read(job_at(key, CANCEL), 65_536)) is not None:
        write_durably(folder / "cancel", reason)


def _patiently(bring: Callable[[], None]) -> None:
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return bring()
        except EngineUnavailable as error:
            if time.monotonic() > until:
                raise
            print(error, file=sys.stderr)
            time.sleep(5 * LOOK_S)
