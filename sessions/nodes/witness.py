"""The node `witness`: another process reads rows of the ended job again, before anything is measured.

Which rows follows from the trail's entry of the end, so a kill anywhere leaves the same challenge.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reviews.gate.challenge import witness_order
from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry
from sessions.jobs import orphans
from sessions.jobs.launcher import JobState, job_folder, submit_witness
from sessions.jobs.untrusted_files import is_own_file
from sessions.nodes.act import await_end, cancel_job, report_prepared
from sessions.nodes.job_end import log_of, manifest_of, mask_log, observed_from
from sessions.nodes.job_order import current_attempt
from sessions.run.money import ledger
from sessions.session import Session, State
from specs.jobs.job_records import ExitRecord, JobOrder, Manifest
from specs.stages.base.witness import LEAST_SHARE, ROWS
from specs.system.masking import current
from specs.system.regular_files import read_regular
from specs.system.resources import usd_per_hour
from specs.trail.session_bodies import ChallengeEntry, SpendEntry, WitnessEntry


def witness(session: Session, state: State) -> State:
    """Have a witness read what its challenge names, and record what it read; a lost one closes the gate."""
    stage, attempt, key = current_attempt(session, state)
    order = witness_order(session.history, key)
    if order is None:
        return {"route": "go"}
    order = order.model_copy(update={"max_seconds": _seconds(session, order, key)})
    challenge = order.challenge
    assert challenge is not None
    rate = usd_per_hour(session.resolved.spec.budget, stage.resources)
    ended = session.find(WitnessEntry, stage.name, attempt)
    if ended is None:
        cap = round(order.max_seconds / 3600 * rate, 6)
        ledger.reserve(session.trail, session.resolved.spec.budget, "job", stage, order.key, cap)
        session.store.put_value(order)
        report_prepared(session, submit_witness(session.launcher, session.trail, session.run, order).body)
        session.display.say(f"{stage.name}: a witness {challenge.describe()}")
        job, alive_s = await_end(session, f"{stage.name} (witness)", job_folder(session.run, order.key))
        ended = _record(session, stage.name, attempt, order.key, job, alive_s)
    _settle(session, ended.body, order.max_seconds)
    return {"route": "go"}


def end_witnesses(session: Session, history: History, why: str) -> None:
    """End the witnesses that began in a part of the history and still run, and record how they ended."""
    for challenge in (entry.body for entry in history.of(ChallengeEntry)):
        if history.attempt(challenge.stage, challenge.attempt).witness is None:
            job = cancel_job(session, job_folder(session.run, challenge.key), why)
            ended = _record(session, challenge.stage, challenge.attempt, challenge.key, job, 0.0)
            order = JobOrder.model_validate_json(session.store.get(challenge.order))
            _settle(session, ended.body, order.max_seconds)


def _seconds(session: Session, order: JobOrder, key: str) -> float:
    """Return how long a witness may run: what the job left of the attempt's time, or a share of it if that is more."""
    settled = session.trail.find(SpendEntry.settlement_key(key), SpendEntry)
    assert settled is not None and settled.body.seconds is not None, "the end of a job settles its cost"
    return round(max(order.max_seconds - settled.body.seconds, LEAST_SHARE * order.max_seconds), 3)


def _record(
    session: Session, name: str, attempt: int, key: str, job: JobState, alive_s: float
) -> RecordedEntry[WitnessEntry]:
    """Record the end of a witness, once."""
    folder, stage = job_folder(session.run, key), session.resolved.spec.stage(name)
    facts: dict[str, Any]
    if job.exit is None:
        orphans.end_left_behind(folder)
        facts = dict.fromkeys(("exit", "manifest", "rows", "log", "observed"))
        facts["why"] = job.message or "its process is gone and left no exit record"
    else:
        raw = manifest_of(session, stage, folder / "manifest.json")
        log = current().data(log_of(session, stage, folder))
        mask_log(folder, log)
        facts = {
            "exit": session.store.put_value(job.exit),
            "manifest": session.store.put(raw) if raw is not None else None,
            "rows": _rows(session, folder, raw),
            "log": session.store.put(log),
            "observed": observed_from(session.find(ChallengeEntry, name, attempt), alive_s),
            "why": "" if job.exit.code == 0 else f"it ended with code {job.exit.code} ({job.exit.reason})",
        }
    if facts["why"]:
        session.display.say(f"{name}: the witness read nothing that counts: {facts['why']}; its log is in {folder}")
    return session.trail.append(WitnessEntry(stage=name, attempt=attempt, key=key, **facts))


def _settle(session: Session, ended: WitnessEntry, most: float) -> None:
    """Pay for a witness that has ended: for the time that was seen, or for all of its time where it is lost."""
    seconds = most
    if ended.exit is not None and ended.observed is not None:
        record = ExitRecord.model_validate_json(session.store.get(ended.exit))
        seconds = ended.observed.bound_seconds(record.seconds)
    ledger.settle_job(session.trail, session.resolved.spec.budget, ended.key, seconds)


def _rows(session: Session, folder: Path, manifest: bytes | None) -> str | None:
    """Keep the rows of a witness as they are, and return their digest; None where they do not count."""
    path = folder / "out" / f"{ROWS}.jsonl"
    if manifest is None or not is_own_file(path):
        return None
    data = read_regular(path)
    if current().known_in(data):
        return None
    digest = session.store.put(data)
    return digest if Manifest.model_validate_json(manifest).outputs.get(ROWS) == digest else None
