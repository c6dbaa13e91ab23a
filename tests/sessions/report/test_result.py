"""The first sentence of a report: what it names next to the figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reviews.evidence.registered_evidence import registered_spec
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.pages import result
from sessions.run.run_layout import STORE, TRAIL

REST = {"without": "title\n", "items": 20, "gained": 0, "lost": 0, "gain": 0.0}


def sentence(run: Path) -> str:
    entries, store = list(read_entries(run / TRAIL)), Store(run / STORE)
    resolved, _ = registered_spec(entries, store)
    return result.result_in_words(
        entries, Store(run / STORE), resolved, "approve", result.comparison_of(entries, store, resolved)
    )


def test_a_kind_that_carries_the_gain_is_named_and_no_other(
    closed_quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "without" not in sentence(closed_quick)
    asked, recorded = list[tuple[str, int]](), result.checks_of

    def hangs(entries: Any, store: Any, stage: str, attempt: int) -> Any:
        asked.append((stage, attempt))
        return [
            one.model_copy(update={"status": "WARN", "shown": (REST,)}) if one.id == "strata.sensitivity" else one
            for one in recorded(entries, store, stage, attempt)
        ]

    monkeypatch.setattr(result, "checks_of", hangs)
    assert "); without 'title' +0.000 on 20 items; one seed" in sentence(closed_quick)
    assert ("tuned", 1) in asked and {attempt for _, attempt in asked} == {1}
