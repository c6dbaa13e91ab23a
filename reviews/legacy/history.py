"""The commit that brought each file of a folder, from git.

Only reading commands run, without hooks, filters, pagers, signature programs, network or any other program that the
configuration of a foreign checkout could name.
"""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

_SECONDS = 30
_OFF = ["core.fsmonitor=false", "core.hooksPath=/dev/null", "log.showSignature=false", "protocol.allow=never"]
_GIT = ("git", "--no-pager", "--no-optional-locks", *(word for setting in _OFF for word in ("-c", setting)))
_LOG = ["log", "-M", "-z", "--name-status", "--diff-filter=ACR", "--relative", "--no-ext-diff", "--no-textconv"]


class Commit(NamedTuple):
    """The commit that brought a file."""

    id: str
    moment: datetime


def commits_of(folder: Path) -> tuple[dict[str, Commit], str]:
    """Return the commit of each file by its path below a folder, or why none is known."""
    top = _run(folder, "rev-parse", "--is-shallow-repository")
    if top is None:
        return {}, "not in a git checkout, or git is not there"
    if top.strip() == b"true":
        return {}, "the history of the checkout is cut (a shallow clone)"
    log = _run(folder, *_LOG, "--no-color", "--format=%x01%H %ct", "HEAD", "--", ".")
    return ({}, "git did not give the history") if log is None else (_commits(log), "")


def _run(folder: Path, *arguments: str) -> bytes | None:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    kept |= {"GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    command = [*_GIT, *arguments]
    try:
        return subprocess.run(
            command, cwd=folder, env=kept, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def _commits(log: bytes) -> dict[str, Commit]:
    """Return by present path the commit that brought it: the newest addition, followed back over renames."""
    found: dict[str, Commit] = {}
    now_called: dict[str, str] = {}
    for part in log.decode("utf-8", "surrogateescape").split("\x01")[1:]:
        head, _, rest = part.partition("\0")
        name, _, stamp = head.partition(" ")
        fields = iter(rest.lstrip("\n").split("\0"))
        for kind in (status.strip()[:1] for status in fields):
            path = next(fields, "") if kind else ""
            new = next(fields, "") if kind in ("R", "C") else path
            present = now_called.get(new, new)
            if path and kind == "R":
                now_called[path] = present
            elif path:
                found.setdefault(present, Commit(name, datetime.fromtimestamp(int(stamp), UTC)))
    return found
