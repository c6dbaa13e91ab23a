"""The page of figures quotes a bench from the file that it wrote, as the bench prints it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bench import diloco
from bench.composer import learning, step
from specs.system.home import HOME

RESULTS, PAGE = HOME / "bench" / "results", HOME / "docs" / "reference" / "figures.md"
Lines = Callable[[Any], list[str]]
QUOTED: dict[str, Lines] = {
    "learning.json": learning.table,
    "diloco.json": lambda rows: [*diloco.table(rows), *diloco.fit_costs(rows).splitlines()],
    "composer_step.json": step.table,
    "composer_step_adapters.json": step.table,
}


def missing_lines(result: Path, page: Path, lines: Lines) -> list[str]:
    """Return the lines of a result that a page does not have."""
    present = page.read_text(encoding="utf-8").splitlines()
    return [line for line in lines(json.loads(result.read_bytes())) if line and line not in present]


@pytest.mark.parametrize("name", QUOTED)
def test_the_page_has_the_figures_of_the_file(name: str, tmp_path: Path) -> None:
    lines = QUOTED[name]
    assert missing_lines(RESULTS / name, PAGE, lines) == []
    last = lines(json.loads((RESULTS / name).read_bytes()))[-1]
    changed = tmp_path / "figures.md"
    changed.write_text(PAGE.read_text(encoding="utf-8").replace(last, last.replace("1", "2")), encoding="utf-8")
    assert missing_lines(RESULTS / name, changed, lines) == [last]


def test_every_file_of_results_is_quoted() -> None:
    assert {path.name for path in RESULTS.iterdir()} == set(QUOTED)


@pytest.mark.parametrize(
    ("seconds", "interval", "message"),
    [
        ([1.0, 1.01, 1.02, 1.03, 1.04], [1.0, 1.04], "not concluded"),
        ([1.0, 1.01, 1.02, 1.025, 1.03], [1.0, 1.03], "holds"),
        ([1.31, 1.04, 1.05, 1.06, 1.07], [1.04, 1.31], "DOES NOT HOLD"),
        ([1.0, 1.0, 1.01, 1.01, 1.01, 1.01, 1.02, 1.02, 9.0], [1.0, 1.02], "holds"),
        ([1.0, 1.0, 1.01, 1.01, 1.01, 1.01, 1.02, 9.0, 9.0], [1.0, 9.0], "not concluded"),
        ([1.0] * 4, [1.0, 1.0], "too few pairs"),
    ],
)
def test_nothing_is_concluded_where_the_interval_of_a_ratio_covers_the_limit(
    seconds: list[float], interval: list[float], message: str
) -> None:
    runs = {"ours": [{"seconds": second} for second in seconds], "theirs": [{"seconds": 1.0}] * len(seconds)}
    results = step.compare_steps("time", runs, "ours", "theirs", "seconds", 1.03)
    assert (results["interval"], results["said"]) == (interval, message)


def trainings(right: int, other: int, seeds: int = 3, items: int = 40) -> list[dict[str, Any]]:
    """Return what a channel and its control left, with so many right answers each."""
    return [
        {"arm": arm, "seed": seed, "steps": 1, "cpu_s": 1.0, "items": list(range(items))}
        | {"right": [place < count for place in range(items)]}
        for seed in range(seeds)
        for arm, count in zip(learning.ARMS, (right, other), strict=True)
    ]


def test_a_channel_is_shown_only_where_every_seed_and_all_items_together_say_so() -> None:
    def status(*values: dict[str, Any]) -> str:
        return learning.conclude(values)["status"]

    assert status(*trainings(36, 20)) == "shown"
    assert status(*trainings(20, 36)) == status(*trainings(21, 20)) == "not shown"
    assert status(*trainings(50, 20, seeds=2, items=60)) == status(*trainings(36, 20, items=39)) == "not shown"
    # One seed that gains nothing.
    assert status(*trainings(40, 10)[:4], *trainings(20, 20)[4:]) == "not shown"
    # A control whose training was cut off does not count.
    assert len(learning.conclude(trainings(36, 20)[:5])["seeds"]) == 2


@pytest.mark.parametrize("channel", learning.CHANNELS)
def test_what_is_measured_is_about_other_topics_than_what_is_trained_on(channel: str) -> None:
    data = learning.data_of(channel)
    assert len(data.heldout) >= learning.FEWEST == len({item.id for item in data.heldout})
    assert {item.group for item in data.train}.isdisjoint(item.group for item in data.heldout)
