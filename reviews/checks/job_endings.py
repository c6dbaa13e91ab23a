"""Why a job broke, by how it ended and the last lines of its log, and what to do about that and nothing else."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from typing import Literal, NamedTuple

from specs.jobs.job_records import ExitRecord
from specs.system.extras import extra_with, install_command, install_hint
from specs.trail.verdict import CheckResult

_MEMORY = (
    "a smaller `batch_size` (with `gradient_accumulation`), a smaller `max_length`, `gradient_checkpointing: true`, "
    "`method: lora`, or a larger machine"
)
_MEMORY_PARAMETERS = ("batch_size", "max_length", "precision", "method")


class Ending(NamedTuple):
    """What ended a job."""

    name: Literal["time", "away", "memory", "killed", "package", "disk", "option", "network", "diverged", "unknown"]
    description: str
    remedy: str
    parameters: tuple[str, ...] = ()
    """What was granted that explains it."""


_TIME = Ending(
    "time",
    "its time was over",
    "a larger `max_minutes` of the stage, by `peergate amend`; or fewer epochs, rows or tokens",
    ("epochs",),
)
_AWAY = Ending(
    "away",
    "the orchestrator was away",
    "run the stage again with `peergate resume`: the orchestrator was away for longer than the spec allows",
)
_PACKAGE = re.compile(
    r"No module named '([\w.]+)'|PackageNotFoundError: No package metadata was found for ([\w.-]+)"
    r"|(?:ImportError|RuntimeError): .*?\b([\w-]+) (?:is not installed|(?:package|library) is required|requires)"
    r"|\b([\w-]+)(?:: command not found| is not installed)"
)
_BY_LOG: tuple[tuple[Ending, re.Pattern[str]], ...] = (
    (
        Ending("disk", "the disk is full", "free space where the session's folder is, or another folder (--runs)"),
        re.compile(r"No space left on device|Disk quota exceeded|ENOSPC|disk is full", re.I),
    ),
    (
        Ending("memory", "too little memory", f"too little memory: {_MEMORY}", _MEMORY_PARAMETERS),
        re.compile(r"out of memory|OutOfMemoryError|MemoryError|Cannot allocate memory", re.I),
    ),
    (
        Ending(
            "option",
            "an option was refused",
            "another value for the parameter or option that the log names, or none",
        ),
        re.compile(
            r"NotAsGranted|\brefused: |unexpected keyword argument|unrecognized arguments?|[Nn]o such option"
            r"|invalid choice|ValidationError|extra fields not permitted|Extra inputs are not permitted"
        ),
    ),
    (
        Ending("diverged", "the training diverged", "a lower `learning_rate`, a smaller `max_grad_norm`, or a warm-up"),
        re.compile(r"\bDiverged\b|the (?:loss|gradient norm) of step \d+ is (?:nan|-?inf)"),
    ),
    (
        Ending("network", "a server could not be reached", "reach the server that the log names, and run it again"),
        re.compile(
            r"ConnectionError|Temporary failure in name resolution|Name or service not known|Max retries exceeded"
        ),
    ),
)


def ending_of(how: str, log: str) -> Ending:
    """Return what ended a job.

    Args:
        how: ``timeout``, ``dead_man``, ``killed``, or anything else.
        log: the last lines of its log; the last of them that says something counts.
    """
    if how in ("timeout", "dead_man"):
        return _TIME if how == "timeout" else _AWAY
    for line in reversed(log.splitlines()):
        if package := _PACKAGE.search(line):
            return _missing(next(filter(None, package.groups())))
        if ending := next((ending for ending, pattern in _BY_LOG if pattern.search(line)), None):
            return ending
    if how == "killed":
        return Ending(
            "killed",
            "it was killed from outside, most often by the system for its memory",
            f"if it was not killed by hand, it probably ran out of memory: {_MEMORY}",
            _MEMORY_PARAMETERS,
        )
    return Ending("unknown", "", "the end of the job's log says why; fix that, and run the stage again")


def _missing(package: str) -> Ending:
    top = package.partition(".")[0]
    extra = extra_with(top)
    command = install_hint(extra) if extra else install_command(top)
    return Ending("package", f"the package '{top}' is missing", f"install it where the job runs: {command}")


def ending_of_record(record: ExitRecord, log: str) -> Ending:
    """Return what ended a job, by its exit record."""
    killed = record.code in (-signal.SIGKILL, 128 + signal.SIGKILL)
    return ending_of("killed" if killed else record.reason, log)


def ending_of_check(check: CheckResult) -> Ending:
    """Return what ended a job, by the recorded result of ``jobs.exit``."""
    log = "\n".join(log_lines(check))
    killed = "killed by SIGKILL" in check.detail or "code 137" in check.detail
    how = "timeout" if "time limit" in check.detail else "dead_man" if "(dead_man)" in check.detail else ""
    return ending_of("killed" if killed else how, log)


def log_lines(check: CheckResult) -> Sequence[str]:
    """Return the last lines of the log that a check shows."""
    return [str(row["log"]) for row in check.rows if "log" in row]
