"""What an engine starts: ``python -P -m sessions.jobs.transfer.remote_entry JOB_FOLDER`` becomes the wrapper.

``[--within SECONDS] --place URL KEY`` is for machines that do not see the folder, which may be held so long: the job is
claimed in the place, run by the wrapper below ``PEERGATE_JOB_ROOT`` or the user's cache, and its files are returned. A
job gets only the named variables, as on this machine: engines add addresses and tokens, and Ray sets one thread.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import platformdirs

from reviews.trail.chain.store import write_durably
from sessions.jobs import orphans
from sessions.jobs.job_environment import job_environment
from sessions.jobs.job_state import EXIT_BYTES, EngineUnavailable, patiently, read_order, shared_key
from sessions.jobs.transfer.job_transfer import (
    CANCEL,
    CLAIM,
    LEFT,
    OUTPUTS,
    PRESENT,
    RESULT_FILES,
    SENT,
    STATUS_FILES,
    job_at,
)
from sessions.jobs.transfer.shared_place import TABLE_BYTES, FileTable, Piece, SharedPlace, read_table
from sessions.jobs.untrusted_files import NotReadable, open_file
from sessions.run.claim import this_process
from sessions.run.heartbeat import beat
from sessions.run.private_files import keep_private
from specs.system.digests import canonical_bytes, digest_file
from specs.system.errors import EvidenceMissing, PeergateError
from specs.system.regular_files import read_regular

LOOK_S = 1.0
PATIENCE_S = 3600.0
"""How long the place may be out of reach when outputs are due."""
TERM_S = 60.0
"""How long a job that is asked to end may take to return its files."""


def job_root() -> Path:
    """Return the folder for jobs of other machines."""
    named = os.environ.get("PEERGATE_JOB_ROOT")
    return Path(named).resolve() if named else Path(platformdirs.user_cache_dir("peergate")) / "moved"


def carry_out(url: str, key: str, root: Path) -> int:
    """Claim a job in a place, run it here, and return its files; the exit record comes last.

    Raises:
        EngineUnavailable: the place is out of reach; nothing was claimed, or nothing could be returned.
        EvidenceMissing: the place does not hold the job that the key names.
        AuditDamage: bytes do not match their digest.
    """
    place = SharedPlace(url)
    if not place.create(job_at(key, CLAIM), canonical_bytes(this_process(key))):
        print(f"{key}: already claimed, nothing to do", file=sys.stderr)
        return 0
    run = root / key
    folder = prepare(place, key, run, root / "blobs")
    wrapper = subprocess.Popen(
        [sys.executable, "-P", "-m", "sessions.jobs.wrapper", str(folder)],
        stdin=subprocess.DEVNULL,
        cwd=folder,
        env=job_environment(read_order(folder).grant.resources),
        preexec_fn=partial(orphans.end_with_parent, os.getpid(), signal.SIGTERM),
    )
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: wrapper.terminate())
    _watch(place, key, run, folder, wrapper)
    if not (folder / "exit.json").is_file():
        print(f"{key}: the wrapper left no exit record", file=sys.stderr)
        return 1
    patiently(lambda: bring_back(place, key, folder), EngineUnavailable, PATIENCE_S, 5 * LOOK_S)
    return 0


def prepare(place: SharedPlace, key: str, run: Path, cache: Path) -> Path:
    """Fetch order and inputs, compared with their digests, and return the job folder, with this machine's paths."""
    raw = place.read(job_at(key, SENT), TABLE_BYTES)
    if raw is None:
        raise EvidenceMissing("nothing was sent for it", where=key)
    tables = read_table(raw, key)
    job = tables.get("job", FileTable(files={}))
    folder = run / "jobs" / key.rpartition(".")[0]
    place.take_tree(job, folder)
    order = read_order(folder)
    if (text := shared_key(order)) != key:
        raise EvidenceMissing(f"the order is {text}, not {key}", where=key)
    here = dict(order.inputs)
    for role, artifact in order.inputs.items():
        table = tables.get(f"input/{role}", FileTable(files={}))
        if table.digest() != artifact.digest:
            raise EvidenceMissing(f"input '{role}' is {table.digest()}, expected {artifact.digest}", where=key)
        place.take_tree(table, run / "inputs" / role, cache)
        here[role] = artifact.model_copy(update={"path": f"inputs/{role}"})
    write_durably(folder / "order.json", order.model_copy(update={"inputs": here}).canonical())
    return folder


def bring_back(place: SharedPlace, key: str, folder: Path) -> None:
    """Send the job's files, their table, and then its exit record."""
    files: dict[str, Piece] = {}
    for name in RESULT_FILES:
        try:
            with open_file(folder / name):
                files[name] = Piece(digest=digest_file(folder / name), bytes=(folder / name).stat().st_size)
        except NotReadable:
            continue
        place.send(folder / name, files[name])
    if (folder / OUTPUTS).is_dir() and not (folder / OUTPUTS).is_symlink():
        try:
            pieces = place.send_tree(folder / OUTPUTS).files
        except ValueError as error:
            # A link among the outputs: they cannot be digested, so they do not count.
            print(f"{key}: outputs left behind: {error}", file=sys.stderr)
            pieces = {}
        files |= {f"{OUTPUTS}/{path}": piece for path, piece in pieces.items()}
    place.write(job_at(key, LEFT), canonical_bytes({"job": FileTable(files=files).model_dump()}))
    place.write(job_at(key, "exit.json"), read_regular(folder / "exit.json", EXIT_BYTES))


def _watch(place: SharedPlace, key: str, run: Path, folder: Path, wrapper: subprocess.Popen[bytes]) -> None:
    """Report on the job until it has ended, and pass requests on to it."""
    seen_data: dict[str, bytes] = {}
    while True:
        try:
            code = wrapper.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            code = None
        try:
            _exchange(place, key, run, folder, seen_data)
        except EngineUnavailable as error:
            # The job continues; the orchestrator sees silence.
            print(error, file=sys.stderr)
        if code is not None:
            return


def _exchange(place: SharedPlace, key: str, run: Path, folder: Path, seen_data: dict[str, bytes]) -> None:
    for name, most in STATUS_FILES.items():
        try:
            with open_file(folder / name) as handle:
                data = handle.read(most)
        except NotReadable:
            continue
        if seen_data.get(name) != data:
            place.write(job_at(key, name), data)
            seen_data[name] = data
    present = place.read(job_at(key, PRESENT), 4096)
    if present is not None and seen_data.get(PRESENT) != present:
        seen_data[PRESENT] = present
        beat(run)
    if not (folder / "cancel").exists() and (reason := place.read(job_at(key, CANCEL), 65_536)) is not None:
        write_durably(folder / "cancel", reason)


def end_within(seconds: float) -> None:
    """Signal this process after so many seconds, and end it a minute later, with or without an orchestrator."""

    def end() -> None:
        print(f"the machine was held for {seconds:.0f} s, which is what max_hours allow", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(TERM_S)
        # A transfer hangs or takes hours. The kernel then asks the wrapper to end.
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


def main() -> int:
    """Run the job that the arguments name."""
    keep_private()
    os.environ.pop("OMP_NUM_THREADS", None)
    words = sys.argv[1:]
    try:
        if words[:1] == ["--within"] and len(words) > 2:
            end_within(float(words[1]))
            words = words[2:]
        match words:
            case ["--place", url, key]:
                # The place's settings and credentials are for this process; the job gets none of them.
                return carry_out(url, key, job_root())
            case [folder]:
                resources = read_order(Path(folder)).grant.resources
            case _:
                usage = "JOB_FOLDER | [--within SECONDS] --place URL KEY"
                print(f"usage: python -P -m sessions.jobs.transfer.remote_entry {usage}", file=sys.stderr)
                return 2
    except PeergateError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)
    command = [sys.executable, "-P", "-m", "sessions.jobs.wrapper", folder]
    os.execve(sys.executable, command, job_environment(resources))


if __name__ == "__main__":
    raise SystemExit(main())
