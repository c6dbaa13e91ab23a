"""What git knows about the files of a folder: the commit that brought each, and whether it was changed since.

Only reading commands of git run, without hooks, filters, pagers, signature programs, network or any other program
that the configuration of a foreign checkout could name. Without git, outside of a checkout or in a cut history nothing
is known.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

_SECONDS = 30
_OFF = ["core.fsmonitor=false", "core.hooksPath=/dev/null", "log.showSignature=false", "protocol.allow=never"]
_GIT = ("git", "--no-pager", "--no-optional-locks", *(word for setting in _OFF for word in ("-c", setting)))
_LOG = ["log", "-M", "-z", "--name-status", "--relative", "--no-ext-diff", "--no-textconv", "--no-color"]


class Commit(NamedTuple):
    """The commit that brought a file, and what happened to the file since."""

    id: str
    moment: datetime
    changed: str
    """``no``; ``later``: by a later commit; ``since``: the file differs from what is committed."""

    def told(self) -> str:
        """Return its time in the form of ISO 8601, in UTC."""
        return self.moment.isoformat()

    def as_json(self) -> dict[str, Any]:
        """Return the commit as a JSON value."""
        return {"id": self.id, "time": self.told(), "changed": self.changed}


class History(NamedTuple):
    """What git knows about a folder. ``root`` is the top of the checkout, None where there is none."""

    root: Path | None
    commits: dict[str, Commit]
    """By path below the folder."""
    blobs: dict[str, str]
    """Object id by path below the folder, as it is committed now."""
    tracked: frozenset[str]
    """Every committed path of the checkout, from its top."""
    oldest: datetime | None
    why: str = ""
    """Why nothing is known."""

    def of(self, name: str, raw: bytes | None) -> Commit | None:
        """Return the commit of a file, with whether its bytes are still the committed ones."""
        commit = self.commits.get(name)
        if commit is None or raw is None:
            return commit
        return commit._replace(changed="since") if _differs(self.blobs.get(name, ""), raw) else commit


def history_of(folder: Path) -> History:
    """Return what git knows about a folder; nothing is raised when it knows nothing."""
    nothing = History(None, {}, {}, frozenset(), None)
    top = _run(folder, "rev-parse", "--show-toplevel", "--is-shallow-repository")
    if top is None:
        return nothing._replace(why="not in a git checkout, or git is not there")
    lines = top.decode("utf-8", "surrogateescape").splitlines()
    root = Path(lines[0])
    listed = _run(folder, "ls-tree", "-r", "-z", "HEAD")
    whole = _run(root, "ls-tree", "-r", "-z", "--name-only", "HEAD")
    tracked = frozenset((whole or b"").decode("utf-8", "surrogateescape").split("\0")) - {""}
    if lines[1:] == ["true"]:
        return nothing._replace(root=root, tracked=tracked, why="the history of the checkout is cut (a shallow clone)")
    log = _run(folder, *_LOG, "--format=%x01%H %ct", "HEAD", "--", ".")
    first = _run(folder, "log", "--max-parents=0", "--no-show-signature", "--format=%ct", "HEAD")
    if log is None or listed is None:
        return nothing._replace(root=root, tracked=tracked, why="git did not tell the history")
    times = [int(one) for one in (first or b"").split()]
    oldest = datetime.fromtimestamp(min(times), UTC) if times else None
    return History(root, _commits(log), _blobs(listed), tracked, oldest)


def _run(folder: Path, *arguments: str) -> bytes | None:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    kept |= {"GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            [*_GIT, *arguments],
            cwd=folder,
            env=kept,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _commits(log: bytes) -> dict[str, Commit]:
    """Return by present path the commit that brought it: the newest addition, followed back over renames."""
    found: dict[str, Commit] = {}
    now_called: dict[str, str] = {}
    seen: set[str] = set()
    for part in log.decode("utf-8", "surrogateescape").split("\x01")[1:]:
        head, _, rest = part.partition("\0")
        name, _, stamp = head.partition(" ")
        moment = datetime.fromtimestamp(int(stamp), UTC)
        fields = iter(rest.lstrip("\n").split("\0"))
        for status in fields:
            kind = status.strip()[:1]
            path = next(fields, "") if kind else ""
            new = next(fields, "") if kind in ("R", "C") else path
            present = now_called.get(new, new)
            if not path or present in found:
                continue
            if kind == "R":
                now_called[path] = present
                seen.add(present)
            elif kind in ("A", "C"):
                found[present] = Commit(name, moment, "later" if present in seen else "no")
            elif kind == "M":
                seen.add(present)
    return found


def _blobs(listed: bytes) -> dict[str, str]:
    rows = (row.partition("\t") for row in listed.decode("utf-8", "surrogateescape").split("\0") if row)
    return {path: head.split()[2] for head, _, path in rows}


def _differs(blob: str, raw: bytes) -> bool:
    """Say whether bytes are not those of a git object; line ends that git may have changed are let pass."""
    for data in {raw, raw.replace(b"\r\n", b"\n")}:
        head = f"blob {len(data)}\0".encode()
        digest = hashlib.sha256 if len(blob) == 64 else hashlib.sha1
        if digest(head + data).hexdigest() == blob:
            return False
    return True
