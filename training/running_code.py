"""Which code runs: a git checkout states its commit and the changes; an installed wheel cannot.

It describes the files on disk, not the loaded code: a file that changed after its import shows as changed, a file that
changed back does not.
"""

from __future__ import annotations

import os
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from specs.jobs.job_records import CodeState
from specs.system.digests import digest_file, digest_value
from specs.system.home import HOME, PACKAGES
from specs.system.text import plain

GIT_S = 20
"""Seconds git may take: it only looks at files."""


def code_digest(home: Path = HOME) -> str:
    """Return the digest of the code that jobs run, as it is on disk."""
    return digest_value({path.relative_to(home).as_posix(): digest_file(path) for path in code_files(home)})


def code_files(home: Path = HOME) -> list[Path]:
    """Return the files that jobs run: ``training``, its rubrics, and ``specs``."""
    files = [path for path in (home / "training").rglob("*") if path.suffix in (".py", ".yaml")]
    return sorted([*files, *(home / "specs").rglob("*.py")])


def code_state(home: Path = HOME) -> CodeState:
    """Return the state of the code in a folder; an unknown commit is an answer, not an error."""
    digest, text = code_digest(home), _version()
    commit = branch = changed = None
    try:
        top = _git(home, "rev-parse", "--show-toplevel").strip()
        if Path(top).resolve() != home:
            raise _UnknownError("not a git checkout of Peergate")
        commit = _git(home, "rev-parse", "--verify", "HEAD").strip()
        branch = plain(_git(home, "branch", "--show-current").strip(), 200) or None
        status = _git(home, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--", *PACKAGES)
        changed = status.count("\0")
    except _UnknownError as error:
        return CodeState(digest=digest, version=text, commit=None, branch=None, changed=None, unknown=str(error))
    return CodeState(digest=digest, version=text, commit=commit, branch=branch, changed=changed, unknown="")


class _UnknownError(Exception):
    pass


def _git(home: Path, *arguments: str) -> str:
    """Run git without locks on the index, hooks or monitors; return its output."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(home), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, timeout=GIT_S, env=environment, check=False)
    except FileNotFoundError:
        raise _UnknownError("git is not installed") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise _UnknownError(f"git did not answer: {type(error).__name__}") from None
    if done.returncode:
        stderr = done.stderr.decode("utf-8", "replace").strip().splitlines()
        if stderr and "not a git repository" in stderr[0]:
            raise _UnknownError("not a git checkout of Peergate")
        raise _UnknownError(plain(f"git said: {stderr[0] if stderr else f'code {done.returncode}'}", 200))
    return done.stdout.decode("utf-8", "replace")


def _version() -> str:
    try:
        return version("peergate")
    except PackageNotFoundError:
        return ""
