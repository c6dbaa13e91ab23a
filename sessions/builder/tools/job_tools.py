"""Tools on the attempt's job: its state, its log, the checks of its evidence."""

from __future__ import annotations

import math
import time

from reviews.gate import check_list
from sessions.builder.redaction import sees_heldout
from sessions.builder.tools.tool_context import PhaseWork, ToolCallRefusal
from sessions.jobs.job_state import POLL_S, gpu_idle_s, newest_progress
from sessions.jobs.launcher import job_folder
from sessions.jobs.untrusted_files import NotReadable, read_end
from specs.jobs.job_records import JobProgress
from specs.system.text import enclose, mark, plain
from specs.trail.builder_tools import CancelJob, JobLogs, JobStatus, RunChecks

LOG_BYTES = 65_536
BEFORE_BYTES = 4096
"""Bytes of the log before the visible part, so that a withheld text that begins there is found whole."""
LOG_CHARACTERS = 16_000
LINE = 300
REASON = 300
CANCEL_WAIT_S = 30.0
DETAIL = 300
CHECKS_CHARACTERS = 20_000


def job_status(work: PhaseWork, arguments: JobStatus) -> str:
    """Wait for the job's end, at most as long as asked, and return its state."""
    session = work.session
    folder = job_folder(session.run, work.key)
    last: tuple[int, float] | None = None
    moved = time.monotonic()
    until = moved + arguments.wait_seconds
    alarm = ""
    while True:
        job = session.launcher.poll(folder)
        if job.state in ("exited", "lost"):
            work.job_ended = work.phase == "watch"
            if job.exit is None:
                why = work.wall.clean(job.message, 300) or "its process is gone and left no exit record"
                return f"{work.key} is lost: {why}"
            return f"{work.key} ended after {job.exit.seconds:.0f} s: {job.exit.reason}, code {job.exit.code}"
        progress = newest_progress(folder)
        if progress is not None and (progress.done, progress.time) != last:
            last, moved = (progress.done, progress.time), time.monotonic()
            session.display.progress(work.stage.name, progress)
        still = time.monotonic() - moved
        idle = gpu_idle_s(folder)
        alarm = _alarm(arguments, progress, still) or _idle_alarm(arguments, idle)
        if alarm or time.monotonic() >= until:
            break
        session.checkpoint()
        time.sleep(min(POLL_S, max(until - time.monotonic(), 0)))
    raised = f"ALARM: {alarm}. cancel_job ends the job.\n" if alarm else ""
    if arguments.gpu_idle_seconds is not None and idle is None:
        raised += "How busy its GPU is, is not known: nvidia-smi says nothing.\n"
    if progress is None:
        return f"{raised}{work.key} is {job.state}; no progress yet"
    note = ", ".join(f"{name} {value}" for name, value in list(progress.note.items())[:8])
    stated = f"{progress.done} of {progress.total} {plain(progress.unit, 20)}; {work.wall.clean(note, 300)}"
    return f"{raised}{work.key} is {job.state}. Stated by the job, not measured:\n{mark('progress', stated)}"


def _alarm(arguments: JobStatus, progress: JobProgress | None, still_s: float) -> str:
    """Return what raises an alarm; empty if nothing does."""
    for alarm in arguments.alarms:
        stated = progress.note.get(alarm.figure) if progress is not None else None
        if stated is None:
            continue
        try:
            value = float(stated)
        except ValueError:
            value = math.nan
        name = plain(alarm.figure, 60)
        if not math.isfinite(value):
            return f"{name} is not a finite number"
        if alarm.above is not None and value > alarm.above:
            return f"{name} is {value:g}, above {alarm.above:g}"
        if alarm.below is not None and value < alarm.below:
            return f"{name} is {value:g}, below {alarm.below:g}"
    if arguments.stalled_seconds is not None and still_s >= arguments.stalled_seconds:
        return f"no progress for {still_s:.0f} s"
    return ""


def _idle_alarm(arguments: JobStatus, idle_s: float | None) -> str:
    if arguments.gpu_idle_seconds is None or idle_s is None or idle_s < arguments.gpu_idle_seconds:
        return ""
    return f"its GPU has been idle for {idle_s:.0f} s"


def cancel_job(work: PhaseWork, arguments: CancelJob) -> str:
    """End the job of the attempt; its rows so far stay evidence of what happened."""
    session = work.session
    if sees_heldout(session.resolved.spec, work.stage):
        message = (
            f"stage '{work.stage.name}' sees held-out items: a builder that is judged by them cannot end it half-way"
        )
        raise ToolCallRefusal(message)
    folder = job_folder(session.run, work.key)
    session.launcher.cancel(folder, f"{session.builder.name}: {plain(arguments.reason, REASON)}")
    until = time.monotonic() + CANCEL_WAIT_S
    while session.launcher.poll(folder).state not in ("exited", "lost"):
        if time.monotonic() > until:
            return f"{work.key} was asked to end; job_status says when it has"
        session.checkpoint()
        time.sleep(POLL_S)
    work.job_ended = True
    return f"{work.key} has ended; this attempt counts, and its gate opens the next one if one is left"


def job_logs(work: PhaseWork, arguments: JobLogs) -> str:
    """Return the end of the job's log."""
    if sees_heldout(work.session.resolved.spec, work.stage):
        raise ToolCallRefusal(f"stage '{work.stage.name}' reads held-out items, so its log is not shown")
    path = job_folder(work.session.run, work.key) / "log.txt"
    try:
        data, is_all = read_end(path, LOG_BYTES + BEFORE_BYTES)
    except NotReadable as error:
        raise ToolCallRefusal(str(error)) from error
    # Cleaned as a whole: a withheld text may have several lines, or begin before the shown part.
    lines = work.wall.clean(data.decode("utf-8", "replace")).splitlines()
    before = 0 if is_all else BEFORE_BYTES
    while lines and before > 0:
        before -= len(lines.pop(0)) + 1
    texts = [plain(line, LINE) for line in lines[-arguments.lines :]]
    text = "\n".join(texts)[-LOG_CHARACTERS:]
    return f"the end of the log of {work.key}\n{enclose('log', text)}"


def run_checks(work: PhaseWork, _: RunChecks) -> str:
    """Run the checks of the stage's kind on the evidence, without the rows they show."""
    parts: list[str] = []
    for check in check_list.run_checks(work.session.evidence(*work.at), work.session.metrics(*work.at)):
        closes = check.blocking and check.status not in ("PASS", "WARN", "NOT_APPLICABLE")
        parts.append(
            f"{check.status} {check.id}{', keeps the gate closed' if closes else ''}: {_detail(work, check.detail)}"
        )
        if check.required_change is not None and check.status != "PASS":
            parts.append(f"  required: {_detail(work, check.required_change.text)}")
    return enclose("checks", plain("\n".join(parts), CHECKS_CHARACTERS))


def _detail(work: PhaseWork, text: str) -> str:
    return work.wall.clean(text, DETAIL).replace("\n", " ")
