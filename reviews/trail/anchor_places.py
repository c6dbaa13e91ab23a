"""Places where signed heads are kept out of reach: a folder elsewhere, a branch of a git remote, or a command.

Not guaranteed: that no one who can write the trail can write the place, as with a branch that can be rewritten.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from reviews.trail.anchors import read_anchor
from reviews.trail.chain.store import write_durably
from reviews.trail.integrity import TrailVerification
from specs.system.errors import AuditDamage, PeergateError, UserError

BRANCH = "peergate-heads"
_SECONDS = 120


def note_name(origin: str, size: int) -> Path:
    """Return the path of a log's head in a place."""
    return Path(re.sub(r"[^A-Za-z0-9_.-]+", "-", origin)) / f"{size:08}.note"


def keep_in_folder(folder: Path, walk: TrailVerification, note: bytes) -> tuple[Path, int]:
    """Add a head to a folder; returns its path and the number of older heads.

    Raises:
        AuditDamage: an older head is not of this history: the trail was cut back or rewritten.
        OSError: the folder cannot be written.
    """
    policy = walk.policy
    if policy is None:
        raise UserError("a trail without keys has no signed head to keep elsewhere")
    path = folder / note_name(policy.origin, walk.tree.size)
    older = sorted(path.parent.glob("*.note"))
    for current_path in older:
        problems = walk.against(read_anchor(current_path).head)
        if problems:
            raise AuditDamage(
                f"a head that was kept is not of this trail: it {problems[0]}",
                where=str(current_path),
                hint="`peergate audit verify --anchor` with this note lists the damage; nothing was kept",
            )
    if not path.exists():
        write_durably(path, note)
    return path, len(older)


def keep_in_git(remote: str, walk: TrailVerification, note: bytes) -> tuple[str, int]:
    """Push a head to a branch of a git remote; returns the commit and the number of older heads.

    Raises:
        AuditDamage: as :func:`keep_in_folder`.
        PeergateError: git failed; the message holds its output.
    """
    with tempfile.TemporaryDirectory(prefix="peergate-heads-") as name:
        clone = Path(name)
        _git(clone, "init", "--quiet", f"--initial-branch={BRANCH}")
        _git(clone, "remote", "add", "origin", remote)
        if _git(clone, "ls-remote", "--heads", "origin", BRANCH).strip():
            _git(clone, "fetch", "--quiet", "--depth=1", "origin", BRANCH)
            _git(clone, "reset", "--quiet", "--hard", "FETCH_HEAD")
        path, older = keep_in_folder(clone, walk, note)
        _git(clone, "add", "--", path.relative_to(clone).as_posix())
        if _git(clone, "status", "--porcelain").strip():
            _git(clone, "commit", "--quiet", "-m", f"{path.parent.name}: head of {walk.tree.size} entries")
            _git(clone, "push", "--quiet", "origin", f"HEAD:refs/heads/{BRANCH}")
        return _git(clone, "rev-parse", "HEAD").strip(), older


def _git(folder: Path, *arguments: str) -> str:
    facts = {f"GIT_{role}_NAME": "peergate" for role in ("AUTHOR", "COMMITTER")}
    facts |= {f"GIT_{role}_EMAIL": "peergate@localhost" for role in ("AUTHOR", "COMMITTER")}
    # No prompt: a command that waits for a password would hang a session that runs unattended.
    environment = facts | os.environ | {"GIT_TERMINAL_PROMPT": "0"}
    command = ["git", "-c", "commit.gpgsign=false", *arguments]
    return _run(command, f"git {arguments[0]}", cwd=folder, env=environment)


def _run(command: list[str] | str, what: str, **options: Any) -> str:
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=_SECONDS, **options)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeergateError(f"{what} did not finish: {error}") from error
    if done.returncode:
        stderr = done.stderr.decode("utf-8", "replace").strip()[:500]
        raise PeergateError(f"{what} ended with {done.returncode}: {stderr}")
    return done.stdout.decode("utf-8", "replace")


def keep_by_command(command: str, walk: TrailVerification, note: bytes) -> None:
    """Hand a head to a command on standard input, its name in ``PEERGATE_NOTE``; raises PeergateError if it fails."""
    origin = walk.policy.origin if walk.policy else ""
    environment = os.environ | {"PEERGATE_NOTE": note_name(origin, walk.tree.size).as_posix()}
    _run(command, f"the command '{command}'", shell=True, input=note, env=environment)
