"""Reads what is recorded of the session in a run folder."""

from __future__ import annotations

from pathlib import Path

from reviews.history.history import History
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.run.run_layout import STORE, TRAIL


def read_history(run: Path) -> History:
    """Return the history of a session, unverified; raises AuditDamage if its trail cannot be read."""
    return History(read_entries(run / TRAIL), Store(run / STORE))
