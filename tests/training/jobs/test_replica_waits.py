"""Who waits for whom at a synchronisation, and when the log says so: once."""

from __future__ import annotations

import pytest

from training.jobs.finetuning.replicas import waits
from training.jobs.finetuning.replicas.waits import Waits, waiting


def test_who_waits_for_whom_is_said_in_words() -> None:
    assert waiting([0], [1]) == "replica 0 waits for replica 1"
    assert waiting([0, 2], [1, 3]) == "replicas 0, 2 wait for replicas 1, 3"
    assert waiting([], [1]) == waiting([0, 1], []) == ""


def test_what_lasts_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(waits.time, "monotonic", lambda: now[0])
    result, seen = Waits(), list[bool]()
    for at, what in ((0, "a"), (4, "a"), (5, "a"), (6, "a"), (7, "b"), (11, "a"), (30, "a"), (31, ""), (99, "")):
        now[0] = float(at)
        seen.append(result.lasts(what))
    assert seen == [False, False, True, *[False] * 6]
