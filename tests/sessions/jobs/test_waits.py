"""A session whose engine never begins its job: told while it waits, lost with its reason, and asked about."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from reviews.audit.verify import verify_run
from reviews.trail.tables.open_table import read_entries
from sessions.jobs.engine_launcher import EngineLauncher
from sessions.nodes import act
from sessions.pages.report.live_display import Terminal
from testing.fixtures.process_engine import ProcessEngine
from testing.fixtures.quick_session import Silent, drive, open_quick, quick_session

pytestmark = pytest.mark.integration


def test_a_session_whose_job_never_begins_asks_a_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(act, "FIRST_REPORT_S", 0.5)
    engine = ProcessEngine(tmp_path / "engine")
    engine.queue = True
    waits = ("budget:\n", "resources: {max_wait_hours: 0.0005}\nbudget:\n")
    run = open_quick(tmp_path, waits)
    silent = Silent()
    launcher = EngineLauncher(engine, ask_every_s=0.1)
    drive(quick_session(run, launcher=launcher, display=cast(Terminal, silent)))
    lines = [line for line in silent.lines if "has not begun" in line]
    assert lines == [
        "base: job small.base.1 has not begun for 0 min: processes says 'pending'; "
        "it is given up if it does not begin within 0.0005 h"
    ]
    entries = read_entries(run / "trail.sqlite")
    (lost,) = [entry for entry in entries if entry.kind == "lost"]
    assert lost.raw["key"] == "small.base.1"
    assert lost.raw["why"].startswith("not begun in 0.000") and "processes says 'pending'" in lost.raw["why"]
    # The attempt is judged like any lost one: what opens next is a person's to say.
    decided = [entry.raw["outcome"] for entry in entries if entry.kind == "decision"]
    assert decided[-1] == "escalate" and entries[-1].kind != "close"
    audit = verify_run(run, "trail.sqlite", "store")
    assert audit.is_open and audit.damage == []
