"""Looking at a job while it runs."""

from __future__ import annotations

import json
from pathlib import Path

from specs.evidence import Progress

POLL_S = 0.5


def newest_progress(folder: Path) -> Progress | None:
    """Return the newest whole line of a job's progress file; None when there is none or it is unreadable."""
    try:
        lines = (folder / "progress.jsonl").read_bytes().rpartition(b"\n")[0].splitlines()
        return Progress.model_validate(json.loads(lines[-1])) if lines else None
    except (OSError, ValueError):
        return None
