"""How a command names a session, so that it works when it is typed from this folder."""

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote

DEFAULT_RUNS = Path("runs")
RUNS_VARIABLE = "PEERGATE_RUNS"


def session_words(run: Path) -> str:
    """Return how a command names a session from here: its name, with --runs where that is needed."""
    return f"{quote(run.resolve().name)}{below(run.resolve().parent)}"


def below(runs: Path) -> str:
    """Return the option that names the folder of runs; nothing for the default, or what PEERGATE_RUNS says."""
    usual = Path(os.environ.get(RUNS_VARIABLE) or DEFAULT_RUNS)
    return "" if runs.resolve() == usual.resolve() else f" --runs {displayed_path(runs.resolve())}"


def displayed_path(path: Path) -> str:
    """Return a path as people type it from here, quoted where a shell needs it."""
    here = Path.cwd()
    return quote(str(path.relative_to(here)) if path.is_relative_to(here) else str(path))
