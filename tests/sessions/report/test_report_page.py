"""report.md: what failed first, what passed folded, short enough to be read; and its plots, as they are drawn."""

from __future__ import annotations

import copy
import html
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from sessions.pages.report import plots
from sessions.pages.report.report import as_markdown
from specs.system.masking import forms_only
from testing.factories.more_arms import table_rows
from testing.fixtures.quick_session import QuickLauncher, drive, open_quick, quick_session, rows_with

MOST_LINES = 124
KINDS = ("lowercase", "uppercase", "bullets", "quoted", "title", "ending")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def data_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "report" / "report.json").read_bytes())


def page_of(data: dict[str, Any], examples: list[dict[str, Any]] | None = None) -> str:
    return as_markdown(data, examples or [], forms_only())


def like_the_demo(run: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the report's data with as many stages, kinds, warnings and plots as the shipped demo has, and examples."""
    data = data_of(run)
    pilot = copy.deepcopy(next(item for item in data["stages"] if item["stage"] == "sample"))
    data["stages"].insert(1, pilot | {"stage": "pilot"})
    data["accuracy_by_kind"] = {
        name: {"items": 20, "baseline": 1, "treatment": 11, "gained": 10, "lost": 0, "p": 0.002, "p_adjusted": 0.002}
        for name in KINDS
    }
    for stage in data["stages"]:
        for check in stage["attempts"][0]["gate"]["checks"][4:6]:
            check["status"] = "WARN"
    data["plots"] = list(plots.NAMES)
    example = {"prompt": "p", "before": "b", "before_passed": False, "after": "a", "after_passed": True}
    return data, [example] * len(KINDS)


def sections(page: str) -> list[str]:
    return re.findall(r"^## (.+)$", page, re.MULTILINE)


def test_a_report_like_the_demos_is_read_on_two_screens(closed_quick: Path) -> None:
    page = page_of(*like_the_demo(closed_quick))
    assert page.count("| WARN |") == 2 * 6 + 2, "two of each stage, of the design, and of the comparison"
    assert len(page.splitlines()) <= MOST_LINES
    assert "\n\n\n" not in page


def test_result_plot_and_warnings_come_first_and_digests_last(closed_quick: Path) -> None:
    page = page_of(*like_the_demo(closed_quick))
    assert page.startswith("# small: accepted: held-out accuracy 0.000 -> 1.000 on 12 items")
    assert page.index("![effect.svg](effect.svg)") < page.index("## Failures and warnings")
    results = sections(page)
    assert results[:2] == ["Failures and warnings", "The registered comparison"]
    assert results[-1] == "Appendix: the session and its digests"
    before = page.partition("## Appendix")[0]
    assert "sha256:" not in before and page.count("sha256:") > 20


def test_what_passed_is_one_folded_line_a_gate(closed_quick: Path) -> None:
    data = data_of(closed_quick)
    page = page_of(data)
    folded = [line for line in page.splitlines() if line.startswith("<details><summary>") and "checks passed" in line]
    assert [re.match(r"<details><summary>([\w.]+)", line)[1] for line in folded] == [  # pyright: ignore[reportOptionalSubscript]
        "design",
        *(f"{stage['stage']}.1" for stage in data["stages"]),
    ]
    # A reader of Markdown takes them for what they are, and each ends where its line ends.
    blocks = [token.content for token in MarkdownIt("commonmark").parse(page) if token.type == "html_block"]
    # One more for the digests, and one for the scorecard.
    assert sum(block.count("<details>") for block in blocks) == len(folded) + 2 == page.count("</details>")
    for stage, line in zip(data["stages"], folded[1:], strict=True):
        for check in stage["attempts"][0]["gate"]["checks"]:
            assert (check["id"] in line) == (check["status"] in ("PASS", "NOT_APPLICABLE")), check["id"]
        for name, metric in stage["attempts"][0]["metrics"].items():
            assert f" {name} = {metric['value']:.4g}" in line


@pytest.mark.parametrize("status", ["FAIL", "BLOCKED", "ERROR", "WARN"])
def test_what_did_not_pass_is_a_row_with_what_was_found(closed_quick: Path, status: str) -> None:
    data = data_of(closed_quick)
    check = data["stages"][0]["attempts"][0]["gate"]["checks"][3]
    check |= {"status": status, "detail": "seven <b>rows</b> differ"}
    page = page_of(data)
    row = next(line for line in page.splitlines() if line.startswith(f"| base.1 | {check['id']}"))
    assert f"| {status} | seven \\<b>rows\\</b> differ |" in row
    assert page.index(row) < page.index("## The registered comparison")
    assert not any(check["id"] in line for line in page.splitlines() if line.startswith("<details><summary>base.1"))


def test_nothing_to_warn_of_is_said(closed_quick: Path) -> None:
    data = data_of(closed_quick)
    for gate in (data["design"], *(stage["attempts"][0]["gate"] for stage in data["stages"])):
        for check in gate["checks"]:
            check["status"] = "PASS"
    assert "## Failures and warnings\n\nNo check failed, and none warned.\n" in page_of(data)


def test_a_null_result_says_what_was_not_met(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=QuickLauncher(rows=rows_with(0))))
    page = (run / "report" / "report.md").read_text(encoding="utf-8")
    assert "- Gate of tuned.1: **null**" in page and "- tuned.1, not met: " in page
    assert page.index("- tuned.1, not met: ") < page.index("## The registered comparison")


def test_no_text_of_a_check_or_stage_leaves_its_fold(closed_quick: Path) -> None:
    data = data_of(closed_quick)
    hostile = "</details>\n\n# accepted <script>alert(1)</script>"
    attempt = data["stages"][0]["attempts"][0]
    attempt["changes"] = {"a": hostile}
    attempt["gate"]["criteria"] = [{"criterion": hostile, "value": 1.0, "met": True, "hypothesis": False}]
    page = page_of(data)
    assert page.count("</details>") == page_of(data_of(closed_quick)).count("</details>")
    assert "<script>" not in page and "\n# accepted" not in page


# ---- plots ------------------------------------------------------------------------------------------------------


CURVE = [
    {"name": name, "examples": examples, "accuracy": 0.5, "low": 0.4, "high": 0.6, "fitted": 0.5}
    for name, examples in (("a tenth", 100), ("a third", 333), ("treatment", 1000), ("forecast", 15_000))
]


def compared(gain: float, interval: tuple[float, float], kinds: int = 6, metric: str = "accuracy") -> dict[str, Any]:
    counts = {"items": 3, "baseline": 1, "treatment": 2, "gained": 2, "lost": 1, "p": 0.5, "p_adjusted": 0.5}
    return {
        "comparison": {
            "primary_metric": metric,
            "metrics": {"accuracy_gain": {"value": gain, "interval": list(interval)}},
            "registered": {"minimum_effect": 0.15},
            "arms": table_rows([f"an arm of a name as long as names may be, number {number}" for number in range(8)]),
            "curve": {"detail": "a forecast", "points": CURVE},
        },
        "accuracy_by_kind": {f"a kind of a long name {number}": counts for number in range(kinds)},
    }


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    results: dict[str, Any] = {}

    def keep_figure(figure: Any, path: Path) -> None:
        results[path.name] = figure
        figure.draw_without_rendering()

    monkeypatch.setattr("sessions.pages.diagnosis.curve_plots.save", keep_figure)
    yield results


@pytest.mark.drawn
@pytest.mark.parametrize(("gain", "interval"), [(0.483, (0.381, 0.57)), (-0.02, (-0.1, 0.06)), (1.0, (0.6, 1.0))])
def test_the_headline_plot_shows_gain_interval_and_registered_minimum(
    tmp_path: Path, figures: dict[str, Any], gain: float, interval: tuple[float, float]
) -> None:
    assert plots.draw(tmp_path, compared(gain, interval), {})[0] == "effect.svg"
    axes = figures["effect.svg"].axes[0]
    places = sorted({float(line.get_xdata()[0]) for line in axes.lines if len(line.get_xdata()) == 2})
    assert places == [0.0, 0.15], "no difference, and the registered minimum"
    (bar,) = axes.containers
    rest, right = bar.lines[2][0].get_segments()[0][:, 0]
    assert (round(rest, 3), round(right, 3), float(bar.lines[0].get_xdata()[0])) == (*interval, gain)
    low, high = axes.get_xlim()
    assert low < min(0, interval[0]) and high > max(0.15, interval[1])
    assert f"{gain:+.3f}" in axes.get_title()
    lines = [text.get_text() for text in figures["effect.svg"].legends[0].get_texts()]
    assert lines == ["registered minimum +0.15", "gain, 95 % interval"]


@pytest.mark.drawn
def test_a_plot_drawn_in_one_pass_is_the_one_that_matplotlib_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def saved(figure: Any, path: Path) -> None:
        figure.savefig(path, format="svg", metadata={"Date": None})

    plots.draw(tmp_path / "ours", compared(0.5, (0.3, 0.6)), {})
    monkeypatch.setattr("sessions.pages.diagnosis.curve_plots.save", saved)
    plots.draw(tmp_path / "theirs", compared(0.5, (0.3, 0.6)), {})
    ours, theirs = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in tmp_path.iterdir())
    assert ours == theirs and "effect.svg" in ours


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("kinds", "steps"),
    [
        pytest.param(kinds, steps, marks=[] if (kinds, steps) in ((1, 1), (6, 2), (12, 40)) else pytest.mark.more)
        for kinds in (1, 6, 12)
        for steps in (1, 2, 40)
    ],
)
def test_counts_have_whole_ticks_and_everything_fits(
    tmp_path: Path, figures: dict[str, Any], steps: int, kinds: int
) -> None:
    report = compared(0.5, (0.3, 0.6), kinds, "preference_rate_of_a_judge_with_a_long_name_indeed")
    assert tuple(plots.draw(tmp_path, report, {"sft, attempt 1": [1.0] * steps})) == plots.NAMES
    for name, axis in (("loss.svg", "xaxis"), ("pairs.svg", "yaxis")):
        labels = [label.get_text() for label in getattr(figures[name].axes[0], axis).get_ticklabels()]
        views = [label for label in labels if label]
        assert views and all(re.fullmatch(r"\d+", label) for label in views), (name, labels)
    for name, figure in figures.items():
        whole = figure.bbox
        title = figure.axes[0].title.get_window_extent()
        assert whole.x0 <= title.x0 and title.x1 <= whole.x1 and title.y1 <= whole.y1, name
        legend = figure.legends[0].get_window_extent()
        assert whole.x0 <= legend.x0 and legend.x1 <= whole.x1 and whole.y0 <= legend.y0, name
        boxes = [
            xticklabel.get_window_extent() for xticklabel in figure.axes[0].get_xticklabels() if xticklabel.get_text()
        ]
        flat = [box for box in boxes if box.width > 0]
        if name == "effect.svg":
            assert all(item.x1 <= right.x0 for item, right in zip(flat, flat[1:], strict=False)), name


@pytest.mark.drawn
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: the report was seen in no browser")
def test_a_browser_shows_the_report_folded_with_its_plots(closed_quick: Path, tmp_path: Path) -> None:
    data, examples = like_the_demo(closed_quick)
    data["comparison"] |= {"arms": table_rows(["own drafts"]), "curve": {"detail": "a forecast", "points": CURVE}}
    assert tuple(plots.draw(tmp_path, data, {"sft, attempt 1": [2.0, 1.0]})) == plots.NAMES
    body = MarkdownIt("commonmark").enable("table").render(page_of(data, examples))
    script = (
        "onload = () => {const all = selector => [...document.querySelectorAll(selector)];"
        "document.title = JSON.stringify({pictures: all('img').map(image => image.naturalWidth > 100),"
        "folds: all('details').map(details => [details.open, details.getBoundingClientRect().height]),"
        "tables: all('table').length,"
        "headline: all('h1')[0].getBoundingClientRect().top, first: all('img')[0].getBoundingClientRect().top});}"
    )
    page = tmp_path / "page.html"
    page.write_text(f'<meta charset="utf-8"><script>{script}</script><body>{body}', encoding="utf-8")
    quiet = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--virtual-time-budget=20000")
    command = [str(CHROMIUM), *quiet, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    measured = json.loads(html.unescape(done.stdout.partition("<title>")[2].partition("</title>")[0]))
    assert measured["pictures"] == [True] * len(plots.NAMES)
    assert len(measured["folds"]) == 9 and all(not is_open and height < 60 for is_open, height in measured["folds"])
    assert measured["tables"] == 7 and 0 <= measured["headline"] < measured["first"] < 400
