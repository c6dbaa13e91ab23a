"""Looking at a job while it runs."""

from __future__ import annotations

from pathlib import Path

from sessions.jobs.untrusted_files import read_end
from specs.job_records import Progress
from specs.strict_json import read_json

POLL_S = 0.5
LINE_BYTES = 65_536
"""A longer progress line is none."""


def newest_progress(folder: Path) -> Progress | None:
    """Return the newest whole line of a job's progress file; None when there is none or it is unreadable."""
    try:
        lines = read_end(folder / "progress.jsonl", LINE_BYTES)[0].rpartition(b"\n")[0].splitlines()
        return Progress.model_validate(read_json(lines[-1])) if lines else None
    except (OSError, ValueError):
        return None
