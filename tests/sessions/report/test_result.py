"""The first sentence of a report: what it names next to the figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reviews.history.attempt import Attempt
from reviews.history.history import History
from sessions.pages import result
from sessions.pages.comparison import comparison_of
from sessions.run.run_layout import STORE, TRAIL

REST = {"without": "title\n", "items": 20, "gained": 0, "lost": 0, "gain": 0.0}


def sentence(run: Path) -> str:
    history = History.read(run / TRAIL, run / STORE)
    return result.result_in_words(history, "approve", comparison_of(history))


def test_a_kind_that_carries_the_gain_is_named_and_no_other(
    closed_quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "without" not in sentence(closed_quick)
    requests, recorded = list[tuple[str, int]](), Attempt.check_results.func

    def hangs(attempt: Attempt) -> Any:
        requests.append((attempt.stage, attempt.number))
        return tuple(
            check.model_copy(update={"status": "WARN", "rows": (REST,)}) if check.id == "strata.sensitivity" else check
            for check in recorded(attempt)
        )

    monkeypatch.setattr(Attempt, "check_results", property(hangs))
    assert "); without 'title' +0.000 on 20 items; one seed" in sentence(closed_quick)
    assert ("tuned", 1) in requests and {attempt for _, attempt in requests} == {1}


@pytest.mark.parametrize(
    ("p", "gain", "words"),
    [
        (0.2, 0.1, "no significant difference"),
        (0.002, 0.166, "no result, the gain is smaller than the registered one"),
        (0.002, 0.3, "no result, the difference is not the registered one"),
        (0.002, -0.3, "no result, the treatment is significantly worse"),
        (0.2, -0.1, "no significant difference"),
    ],
)
def test_a_null_says_what_was_found_in_place_of_the_registered_difference(
    closed_quick: Path, p: float, gain: float, words: str
) -> None:
    history = History.read(closed_quick / TRAIL, closed_quick / STORE)
    comparison = comparison_of(history)
    assert comparison is not None
    metrics, registered = comparison["metrics"], {"alpha": 0.05, "minimum_effect": 0.21}
    for name, value in (("mcnemar_p", p), ("accuracy_gain", gain)):
        metrics[name] = {key: metrics[name][key] for key in metrics[name] if key != "ratio"} | {"value": value}
    comparison["registered"] = comparison["registered"] | registered
    sentence = result.result_in_words(history, "null", comparison)
    assert sentence.startswith(f"{words}: held-out"), sentence
