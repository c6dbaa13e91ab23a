"""Reads what is recorded of the session in a run folder."""

from __future__ import annotations

from pathlib import Path

from reviews.history.history import History
from sessions.run.run_layout import STORE, TRAIL


def read_history(run: Path) -> History:
    """Return the history of a session, unverified; raises AuditDamage if its trail cannot be read."""
    return History.read(run / TRAIL, run / STORE)
