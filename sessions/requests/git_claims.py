"""The claims of a range of commits, and what shows them: messages and changelog lines next to patches and files.

The repository may be a stranger's: git reads it without hooks, filters, external programs or network.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from specs.system.errors import UserError

MOST_COMMITS = 100
PATCH_BYTES = 60_000
_SECONDS = 60
_SAFE = (
    *("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "protocol.allow=never"),
    *("-c", "core.pager=cat", "-c", "diff.external=", "-c", "core.attributesFile=/dev/null"),
)
_PLAIN = ("--no-ext-diff", "--no-textconv", "--no-color")
CHANGELOG = "CHANGELOG.md"


class ClaimText(NamedTuple):
    """A text that a reviewer reads."""

    name: str
    text: str
    is_claim: bool


def git_texts(repository: Path, commits: str) -> Iterator[ClaimText]:
    """Yield the claims of a range of commits (``A..B``) and the evidence for them.

    Raises:
        UserError: the folder is not a repository, or the range names no commits, or too many.
    """
    if commits.startswith("-") or not re.fullmatch(r"[\w./~^@{}-]+", commits):
        raise UserError(f"invalid commit range '{commits}'", where="--git", hint="such as v1.0..HEAD or HEAD~3..")
    log = _git(repository, "log", "--reverse", "--format=%H", "--max-count", str(MOST_COMMITS + 1), commits)
    names = log.split()
    if not names:
        raise UserError(f"no commits in '{commits}'", where=str(repository), hint="name a range, such as HEAD~3..HEAD")
    if len(names) > MOST_COMMITS:
        hint = f"at most {MOST_COMMITS} are read at once"
        raise UserError(f"'{commits}' has more than {MOST_COMMITS} commits", where="--git", hint=hint)
    messages = [_git(repository, "show", "--no-patch", "--format=## %h %s%n%n%b", name).strip() for name in names]
    yield ClaimText("commits.md", "\n\n".join(messages) + "\n", is_claim=True)
    if added := list(_read_added_lines(repository, names)):
        yield ClaimText(CHANGELOG, "\n".join(added) + "\n", is_claim=True)
    tree = _git(repository, "ls-tree", "-r", "--name-only", names[-1])
    yield ClaimText("tree.txt", tree, is_claim=False)
    for name in names:
        patch = _git(repository, "show", "--stat", "--patch", "--format=", *_PLAIN, name)
        cut = patch.encode()[:PATCH_BYTES].decode("utf-8", "ignore")
        yield ClaimText(f"{name[:12]}.patch", cut + ("" if cut == patch else "\n[cut here]\n"), is_claim=False)


def _read_added_lines(repository: Path, names: list[str]) -> Iterator[str]:
    """Yield the lines that the commits add to the changelog."""
    for name in names:
        patch = _git(repository, "show", "--format=", "--unified=0", *_PLAIN, name, "--", CHANGELOG)
        yield from (line[1:] for line in patch.splitlines() if line.startswith("+") and not line.startswith("+++"))


def _git(repository: Path, *arguments: str) -> str:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("GIT_") and name != "SSH_ASKPASS"
    }
    environment |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_TERMINAL_PROMPT": "0"}
    environment |= {"GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", *_SAFE, "-C", str(repository), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=environment,
            timeout=_SECONDS,
            check=False,
        )
    except FileNotFoundError as error:
        raise UserError("git is not installed", hint="install git, or name files with --evidence") from error
    except subprocess.TimeoutExpired as error:
        raise UserError(f"git did not answer within {_SECONDS} s", where=str(repository)) from error
    if done.returncode:
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no message"]
        raise UserError(f"git cannot read it: {last[0][:300]}", where=str(repository), hint="--git RANGE [REPOSITORY]")
    return done.stdout.decode("utf-8", "replace")
