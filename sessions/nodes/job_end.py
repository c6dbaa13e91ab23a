"""The end of a job: how it ended and what it left, recorded once. Everything in its folder is untrusted."""

from __future__ import annotations

import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import write_durably
from sessions.jobs import orphans
from sessions.jobs.launcher import JobState, job_folder
from sessions.jobs.sandbox.code_admission import keep_files
from sessions.jobs.untrusted_files import NotReadable, is_own_file, open_file
from sessions.nodes.heldout_use import used_elsewhere
from sessions.run.claim import clock_here
from sessions.run.money import ledger
from sessions.session import Session
from specs.jobs.job_records import Manifest, ObservedRuntime
from specs.session.operations import held_hours
from specs.stages.base.stage import FOLDERS
from specs.stages.registry import Stage, outputs_of
from specs.system.digests import digest_bytes, digest_path, list_tree
from specs.system.masking import current
from specs.system.regular_files import MOST_BYTES, open_regular, read_regular
from specs.system.strict_json import read_json
from specs.system.text import plain
from specs.trail.session_bodies import ChallengeEntry, ExitEntry, JobOutput, LaunchEntry, LostJobEntry

MOST_STORED_BYTES = 64 << 20
"""Bytes of a folder of files that the store keeps a copy of. Larger ones, as an exported model, stay where they are."""

MANIFEST_BYTES = 1 << 26
MOST_NAMES, NAME_CHARS = 8, 80
"""How many names are recorded of files that are not outputs, and how much of each."""


def record_end(session: Session, stage: Stage, attempt: int, key: str, job: JobState, alive_s: float = 0.0) -> None:
    """Record the end of a job seen alive here for ``alive_s``, and keep its files; those of a lost one do not count."""
    folder = job_folder(session.run, key)
    budget = session.resolved.spec.budget
    # Before a witness reads its files, or a decision opens the next attempt: a running process could touch both, and an
    # exit record may have been written by the job itself.
    orphans.end_left_behind(folder)
    if job.exit is None:
        # No one deletes them: they count against the limit of the disk.
        facts = {"why": job.message} if job.message else {}
        count = _bytes_in(folder / "out")
        session.trail.append(LostJobEntry(key=key, stage=stage.name, attempt=attempt, bytes=count, **facts))
        # The cost is unknown, so the whole reservation counts as spent.
        ledger.settle_job(session.trail, budget, key, held_hours(stage) * 3600)
        ledger.settle_storage(session.trail, budget, key, None)
        why = job.message or "its process is gone and left no exit record"
        session.display.job_ended(stage.name, f"{key} is lost: {why}")
        return
    observed = observed_from(session.find(LaunchEntry, key), alive_s)
    manifest, outputs = _keep_outputs(session, stage, folder, partial=job.exit.reason == "cancelled")
    remaining = log_of(session, stage, folder)
    log = current().data(remaining)
    # What does not apply is left out.
    facts: dict[str, Any] = {
        "log_left": digest_bytes(remaining) if log != remaining else None,
        "beside": _beside(stage, folder / "out"),
        "heldout": used_elsewhere(session, stage),
    }
    body = ExitEntry(
        key=key,
        stage=stage.name,
        attempt=attempt,
        exit=session.store.put_value(job.exit),
        manifest=manifest,
        outputs=outputs,
        log=session.store.put(log),
        observed=observed,
        **{name: value for name, value in facts.items() if value},
    )
    # After a crash the first body counts, with the time that was observed then.
    observed = session.trail.append(body).body.observed or observed
    mask_log(folder, log)
    seconds = observed.bound_seconds(job.exit.seconds)
    if not observed.fits(job.exit.seconds):
        text = f"states {job.exit.seconds:.6g} s, {seconds:.0f} s are paid for, as observed"
        session.display.say(f"{stage.name}: the exit record of job {key} {text}")
    ledger.settle_job(session.trail, budget, key, seconds, observed.at_least_s)
    ledger.settle_storage(session.trail, budget, key, sum(output.bytes for output in outputs.values()))
    ended = "done" if job.exit.code == 0 else f"ended with code {job.exit.code} ({job.exit.reason})"
    where = "" if job.exit.code == 0 else f"; why is in its log: {session.run / 'jobs' / key / 'log.txt'}"
    session.display.job_ended(stage.name, f"job {key} {ended} after {seconds:.0f} s{where}")


def observed_from(
    launch: RecordedEntry[LaunchEntry] | RecordedEntry[ChallengeEntry] | None, alive_s: float
) -> ObservedRuntime:
    """Return how long a job can have run: from its launch, under any orchestrator, until now.

    Of a job that was launched on this machine, by a clock that no one sets. Nothing is asked of the job itself, which
    would say that it read another clock.
    """
    # A witness notes no clock.
    then, now = launch.body.clock if launch and isinstance(launch.body, LaunchEntry) else None, clock_here()
    moved = None
    if then is not None and now is not None and then.boot == now.boot:
        since = now.up_s - then.up_s
        moved = round(now.time - then.time - since, 3)
    else:
        since = time.time() - launch.time_ns / 1e9 if launch else alive_s
    return ObservedRuntime(at_least_s=round(alive_s, 3), at_most_s=round(max(since, alive_s), 3), clock_set_s=moved)


def _keep_outputs(
    session: Session, stage: Stage, folder: Path, *, partial: bool
) -> tuple[str | None, dict[str, JobOutput]]:
    """Digest the job's outputs; row files also go into the store, weights stay where they are.

    ``partial``: rows are kept of a job without a manifest too. They show what it did, and open no gate.
    """
    outputs: dict[str, JobOutput] = {}
    raw = manifest_of(session, stage, folder / "manifest.json")
    if raw is None and not partial:
        return None, outputs
    for name, kind in outputs_of(stage.kind, stage.parameters).items():
        if raw is None and kind in FOLDERS:
            continue
        path = folder / "out" / (name if kind in FOLDERS else f"{name}.jsonl")
        if path.is_symlink() or not path.exists():
            continue
        stored = not path.is_dir()
        if stored and not is_own_file(path):
            _report_uncounted(session, stage, name, "is a link or no regular file")
            continue
        if why := _not_left(path, whole=kind == "files"):
            _report_uncounted(session, stage, name, why)
            continue
        if (stored or kind == "files") and (named := _known_in(path)):
            # Evidence is kept unchanged or not at all: its digest and the metrics belong to these bytes.
            _report_uncounted(session, stage, name, f"contains the value of {named}")
            continue
        size = path.stat().st_size if stored else _bytes_in(path)
        flag = kind == "files" and size <= MOST_STORED_BYTES
        if flag:
            digest = keep_files(session.store, path)
        else:
            digest = session.store.put(read_regular(path)) if stored else digest_path(path)
        relative = path.relative_to(session.run).as_posix()
        facts = {"copied": True} if flag else {}
        outputs[name] = JobOutput(path=relative, digest=digest, bytes=size, stored=stored, **facts)
    return None if raw is None else session.store.put(raw), outputs


def manifest_of(session: Session, stage: Stage, path: Path) -> bytes | None:
    """Return the job's manifest; None if it is missing, malformed or holds a secret."""
    if not is_own_file(path):
        return None
    with open_regular(path) as handle:
        raw = handle.read(MANIFEST_BYTES + 1)
    if named := current().known_in(raw):
        return _report_uncounted(session, stage, "manifest", f"contains the value of {named}")
    try:
        read_json(raw, MANIFEST_BYTES)
        Manifest.model_validate_json(raw)
    except ValueError:
        return _report_uncounted(session, stage, "manifest", "does not have the manifest's form")
    return raw


def _report_uncounted(session: Session, stage: Stage, name: str, why: str) -> None:
    session.display.say(f"{stage.name}: the job's output '{name}' {why}; it does not count")


def _not_left(path: Path, *, whole: bool) -> str:
    """Return why an output counts as not left; empty if it can be digested and, as rows, be kept.

    Each file of a folder is read as a ``whole``, as rows are, where it is looked through for secrets.
    """
    try:
        files = list_tree(path) if path.is_dir() else [path]
        if (whole or not path.is_dir()) and any(file.stat().st_size > MOST_BYTES for file in files):
            return f"has more than {MOST_BYTES:,} bytes"
    except (OSError, ValueError) as error:
        first = str(error).replace(f"{path}/", "").splitlines()[0]
        return f"holds what is not a file: {plain(first, 200)}"
    return ""


def _known_in(path: Path) -> str | None:
    """Return the name of a secret of this process that an output holds; None if it holds none."""
    files = [path] if path.is_file() else list_tree(path)
    return next((named for path in files if (named := current().known_in(read_regular(path)))), None)


def _beside(stage: Stage, out: Path) -> list[str]:
    """Return names among a job's outputs that its stage does not have, the first few."""
    texts = {
        name if kind in FOLDERS else f"{name}.jsonl" for name, kind in outputs_of(stage.kind, stage.parameters).items()
    }
    if out.is_symlink() or not out.is_dir():
        return []
    # What is being written begins with a dot until it is whole.
    matching_texts = sorted(
        path.name for path in out.iterdir() if path.name not in texts and not path.name.startswith(".")
    )
    return [plain(name, NAME_CHARS) for name in matching_texts[:MOST_NAMES]]


def log_of(session: Session, stage: Stage, folder: Path) -> bytes:
    """Return the job's log as it left it, secrets included; empty if it left no regular file."""
    try:
        with open_file(folder / "log.txt") as handle:
            return handle.read()
    except NotReadable as error:
        session.display.say(f"{stage.name}: the job has no log: {error}")
        return b""


def mask_log(folder: Path, masked: bytes) -> None:
    """Take the secrets out of a log in the run folder too, which people copy and pass on.

    Only once its digest as the job left it is on record: afterwards no one can tell it from an edited one.
    """
    with suppress(NotReadable):
        with open_file(folder / "log.txt") as handle:
            log = handle.read()
        if log != masked:
            write_durably(folder / "log.txt", masked)


def _bytes_in(folder: Path) -> int:
    """Return how many bytes the regular files of a folder have; links are not followed."""
    stat_results = (path.lstat() for path in folder.rglob("*"))
    return sum(stat_result.st_size for stat_result in stat_results if stat.S_ISREG(stat_result.st_mode))
