"""Tools on the attempt's job: how it is doing, its log, the checks its evidence will meet."""

from __future__ import annotations

import time

from reviews.checks import run_checks
from reviews.collect import gather
from reviews.text import plain
from sessions.jobs.launcher import job_folder
from sessions.jobs.watching import POLL_S, newest_progress
from sessions.tools.artifacts import reads_heldout
from sessions.tools.work import Refused, Work
from specs.metrics import MetricSet
from specs.tools import JobLogs, JobStatus, RunChecks

LOG_BYTES = 65_536
LINE = 300
DETAIL = 300


def job_status(work: Work, arguments: JobStatus) -> str:
    """Wait for the job's end, at most as long as asked, and say how it is."""
    session = work.session
    folder = job_folder(session.run, work.key)
    until = time.monotonic() + arguments.wait_seconds
    while True:
        job = session.launcher.poll(folder)
        if job.state in ("exited", "lost"):
            work.job_ended = work.phase == "watch"
            if job.exit is None:
                return f"{work.key} is lost: its process is gone and left no exit record"
            seconds = job.exit.ended - job.exit.started
            return f"{work.key} ended after {seconds:.0f} s: {job.exit.reason}, code {job.exit.code}"
        if time.monotonic() >= until:
            break
        session.checkpoint()
        time.sleep(min(POLL_S, max(until - time.monotonic(), 0)))
    progress = newest_progress(folder)
    if progress is None:
        return f"{work.key} is {job.state}; no progress yet"
    note = ", ".join(f"{plain(name, 40)} {value}" for name, value in list(progress.note.items())[:8])
    return (
        f"{work.key} is {job.state}: {progress.done} of {progress.total} {plain(progress.unit, 20)}; "
        f"stated by the job, not measured: {plain(note, 300)}"
    )


def job_logs(work: Work, arguments: JobLogs) -> str:
    """Return the end of the job's log."""
    if reads_heldout(work.stage):
        raise Refused(f"stage '{work.stage.name}' reads held-out items, so its log is not shown")
    path = job_folder(work.session.run, work.key) / "log.txt"
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - LOG_BYTES))
            lines = log.read().decode("utf-8", "replace").splitlines()
    except OSError as error:
        raise Refused("there is no log yet") from error
    shown = [plain(line, LINE) for line in lines[-arguments.lines :]]
    return "\n".join([f"the last {len(shown)} lines of the log of {work.key} (untrusted text)", *shown])


def run_stage_checks(work: Work, _: RunChecks) -> str:
    """Run the checks of the stage's kind on the evidence; rows that show something are kept from the builder."""
    session = work.session
    evidence = gather(session.run, list(session.trail.iterate()), session.store, work.stage.name, work.attempt)
    measured = session.trail.find(f"metrics/{work.stage.name}.{work.attempt}")
    digest = measured.body["metrics"] if measured else None
    metrics = MetricSet.model_validate(session.store.get_value(digest)) if digest else None
    told: list[str] = []
    for one in run_checks(evidence, metrics):
        mark = "" if one.status in ("PASS", "NOT_APPLICABLE") or not one.blocking else ", keeps the gate closed"
        told.append(f"{one.status} {one.id}{mark}: {plain(one.detail, DETAIL)}")
        if one.required_change is not None and one.status != "PASS":
            told.append(f"  required: {plain(one.required_change.text, DETAIL)}")
    return "\n".join(told)
