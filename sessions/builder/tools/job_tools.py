"""Tools on the attempt's job: how it is doing, its log, the checks its evidence will meet."""

from __future__ import annotations

import time

from reviews.evidence.gather import gather
from reviews.gate.check_list import run_checks
from sessions.builder.redaction import sees_heldout
from sessions.builder.tools.tool_context import Refused, Work
from sessions.jobs.job_state import POLL_S, newest_progress
from sessions.jobs.launcher import job_folder
from sessions.jobs.untrusted_files import NotReadable, read_end
from specs.stages.metric import MetricSet
from specs.text import plain
from specs.trail.builder_tools import JobLogs, JobStatus, RunChecks
from specs.vendors.untrusted_text import enclose, mark

LOG_BYTES = 65_536
BEFORE_BYTES = 4096
"""Of the log before what is shown: what begins there and is withheld must be found whole."""
LOG_CHARACTERS = 16_000
LINE = 300
DETAIL = 300
CHECKS_CHARACTERS = 20_000


def job_status(work: Work, arguments: JobStatus) -> str:
    """Wait for the job's end, at most as long as asked, and say how it is."""
    session = work.session
    folder = job_folder(session.run, work.key)
    last: tuple[int, float] | None = None
    until = time.monotonic() + arguments.wait_seconds
    while True:
        job = session.launcher.poll(folder)
        if job.state in ("exited", "lost"):
            work.job_ended = work.phase == "watch"
            if job.exit is None:
                why = work.wall.clean(job.told, 300) or "its process is gone and left no exit record"
                return f"{work.key} is lost: {why}"
            seconds = job.exit.seconds
            return f"{work.key} ended after {seconds:.0f} s: {job.exit.reason}, code {job.exit.code}"
        progress = newest_progress(folder)
        if progress is not None and (progress.done, progress.time) != last:
            last = progress.done, progress.time
            session.display.progress(work.stage.name, progress)
        if time.monotonic() >= until:
            break
        session.checkpoint()
        time.sleep(min(POLL_S, max(until - time.monotonic(), 0)))
    if progress is None:
        return f"{work.key} is {job.state}; no progress yet"
    note = ", ".join(f"{name} {value}" for name, value in list(progress.note.items())[:8])
    stated = f"{progress.done} of {progress.total} {plain(progress.unit, 20)}; {work.wall.clean(note, 300)}"
    return f"{work.key} is {job.state}. Stated by the job, not measured:\n{mark('progress', stated)}"


def job_logs(work: Work, arguments: JobLogs) -> str:
    """Return the end of the job's log."""
    if sees_heldout(work.session.resolved.spec, work.stage):
        raise Refused(f"stage '{work.stage.name}' reads held-out items, so its log is not shown")
    path = job_folder(work.session.run, work.key) / "log.txt"
    try:
        data, is_all = read_end(path, LOG_BYTES + BEFORE_BYTES)
    except NotReadable as error:
        raise Refused(str(error)) from error
    # Cleaned as a whole: what is withheld may go over several lines, or begin before what is shown.
    lines = work.wall.clean(data.decode("utf-8", "replace")).splitlines()
    if not is_all:
        lines = _after(lines, BEFORE_BYTES)
    shown = [plain(line, LINE) for line in lines[-arguments.lines :]]
    told = "\n".join(shown)[-LOG_CHARACTERS:]
    return f"the end of the log of {work.key}\n{enclose('log', told)}"


def _after(lines: list[str], characters: int) -> list[str]:
    """Return the lines without the first of them that hold so many characters."""
    while lines and characters > 0:
        characters -= len(lines[0]) + 1
        lines = lines[1:]
    return lines


def run_stage_checks(work: Work, _: RunChecks) -> str:
    """Run the checks of the stage's kind on the evidence; rows that show something are kept from the builder."""
    session = work.session
    evidence = gather(session.run, list(session.trail.iterate()), session.store, work.stage.name, work.attempt)
    measured = session.trail.find(f"metrics/{work.stage.name}.{work.attempt}")
    digest = measured.body["metrics"] if measured else None
    metrics = MetricSet.model_validate(session.store.get_value(digest)) if digest else None
    told: list[str] = []
    for one in run_checks(evidence, metrics):
        closes = one.blocking and one.status not in ("PASS", "WARN", "NOT_APPLICABLE")
        told.append(f"{one.status} {one.id}{', keeps the gate closed' if closes else ''}: {_detail(work, one.detail)}")
        if one.required_change is not None and one.status != "PASS":
            told.append(f"  required: {_detail(work, one.required_change.text)}")
    return enclose("checks", plain("\n".join(told), CHECKS_CHARACTERS))


def _detail(work: Work, text: str) -> str:
    return work.wall.clean(text, DETAIL).replace("\n", " ")
