"""A session with further arms from start to report: beaten, not beaten, failed; table, plot and page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reviews.audit.verify import verify_run
from reviews.history.history import History
from sessions.pages.report import plots
from sessions.pages.report.page_result import page_result
from sessions.pages.report.report import as_markdown
from sessions.pages.report.report_check import ReportCheck
from sessions.pages.report.trail_page import trail_page
from sessions.run.run_layout import STORE, TRAIL
from specs.jobs.job_records import JobOrder
from specs.system.masking import current
from specs.trail.gate_bodies import DecisionEntry
from specs.trail.session_bodies import CloseEntry
from testing.factories.evidence_on_disk import N, answers
from testing.factories.more_arms import ARM, STAGES
from testing.fixtures.quick_session import QuickLauncher, drive, healthy_rows, open_quick, quick_session

ARMED = (("  treatment: tuned\n", f"  treatment: tuned\n  arms:\n{ARM}"), ("  - name: train\n", STAGES))
APART = {"drafts": 2e-5}
Rows = Callable[[JobOrder], list[dict[str, Any]]]


def arm_has(right: int, rows: int = N) -> Rows:
    """Return rows of jobs whose further arm answers so many items, and leaves so many rows."""

    def leave(order: JobOrder) -> list[dict[str, Any]]:
        if order.grant.stage != "drafts_after":
            return healthy_rows(order)
        return answers([number < right for number in range(N)])[:rows]

    return leave


def run_session(folder: Path, rows: Rows, arm: str = ARM) -> tuple[Path, History]:
    folder.mkdir(parents=True, exist_ok=True)
    run = open_quick(folder, *((old, new.replace(ARM, arm)) for old, new in ARMED))
    drive(quick_session(run, launcher=QuickLauncher(rows, moved=APART)))
    return run, History.read(run / TRAIL, run / STORE)


def test_an_arm_that_is_beaten_stands_in_the_report_and_its_numbers_are_audited(tmp_path: Path) -> None:
    run, history = run_session(tmp_path, arm_has(2), ARM.replace("beaten: true", "beaten: true, human_minutes: 45"))
    closed = history.newest(CloseEntry)
    assert closed is not None and closed.body.decision == "approve"
    report = json.loads((run / "report" / "report.json").read_bytes())
    assert [(row["name"], row["right"]) for row in report["comparison"]["arms"]] == [
        ("baseline", 0), ("treatment", N), ("own drafts", 2)
    ]  # fmt: skip
    assert "lead over 'own drafts' +0.833, adjusted p = 0.0039" in report["result"]
    text = (run / "report" / "report.md").read_text(encoding="utf-8")
    assert "| own drafts | drafts_after | 2 of 12 | 0.167 [" in text
    assert "| yes, beaten | training on the unrevised answers (45 minutes of people) |" in text
    assert verify_run(run, TRAIL, STORE).damage == []
    page = page_result(history)
    assert page is not None and [row["name"] for row in page["arms"]] == ["baseline", "treatment", "own drafts"]


def test_every_row_of_a_table_in_the_report_has_the_cells_of_its_header(tmp_path: Path) -> None:
    """A pipe in a value is escaped, and those between cells are not."""
    run, _ = run_session(tmp_path, arm_has(2))
    data = json.loads((run / "report" / "report.json").read_bytes())
    principles = {
        "arm": "own | drafts",
        "kept": {"brief": 3, "check|able": 4},
        "answers": {"brief": 12, "check|able": 9},
    }
    data["comparison"]["principles"] = [principles]
    text = as_markdown(data, [], current())
    assert "| arm | brief | check\\|able |\n|---|---|---|\n| own \\| drafts | 3 of 12 | 4 of 9 |\n" in text
    tables = [block.splitlines() for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)]
    assert len(tables) >= 5
    for header, rule, *rows in tables:
        assert set(rule) == {"|", "-"}, header
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in (header, rule, *rows)}) == 1, header


def test_an_arm_that_is_not_beaten_closes_the_session_as_a_null_that_names_it(tmp_path: Path) -> None:
    run, history = run_session(tmp_path, arm_has(8))
    closed, decision = history.newest(CloseEntry), history.newest(DecisionEntry)
    assert closed is not None and closed.body.decision == "null"
    assert decision is not None and decision.body.reasons == (
        "the difference is not the registered one: arms_p < 0.05 is not met: 0.125",
    )
    report = json.loads((run / "report" / "report.json").read_bytes())
    assert report["result"].startswith("no result, the treatment is not shown to be better than 'own drafts': held-out")
    check = ReportCheck(run, history, apart=True)
    trace = check.trace(*check.find_metrics("arms_p"))
    assert (check.problems, trace.problems, trace.again) == ([], (), 0.125)
    assert [row.name for row in trace.rows] == ["baseline", "drafts_after", "tuned"]
    assert "| yes, **not beaten** |" in (run / "report" / "report.md").read_text(encoding="utf-8")
    assert verify_run(run, TRAIL, STORE).damage == []


def test_an_arm_whose_rows_are_not_whole_stops_the_session_at_its_own_gate(tmp_path: Path) -> None:
    _, history = run_session(tmp_path, arm_has(2, rows=N - 1))
    decision = history.newest(DecisionEntry)
    assert decision is not None and (decision.body.stage, decision.body.outcome) == ("drafts_after", "escalate")
    assert history.newest(CloseEntry) is None


def test_an_arm_that_a_person_lets_pass_without_its_rows_closes_the_gate_of_the_treatment(tmp_path: Path) -> None:
    run, _ = run_session(tmp_path, arm_has(2, rows=N - 1))
    arguments = {"answer": "approve", "reason": "it will do", "by": "Someone", "expires": None}
    drive(quick_session(run, launcher=QuickLauncher(arm_has(2, rows=N - 1), moved=APART)), arguments)
    history = History.read(run / TRAIL, run / STORE)
    decision = history.newest(DecisionEntry)
    assert decision is not None and (decision.body.stage, decision.body.outcome) == ("tuned", "escalate")
    assert any("arm 'own drafts' rows" in reason for reason in decision.body.reasons)
    assert "was not measured" in " ".join(decision.body.reasons)


def test_the_arms_are_drawn_with_their_intervals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"name": "own $drafts", "accuracy": 0.5, "low": 0.3, "high": 0.7}
    report = {"accuracy_by_kind": {}, "comparison": {"metrics": {}, "arms": [row | {"name": "baseline"}, row]}}
    monkeypatch.undo()  # The suite leaves plots out.
    names = plots._draw(tmp_path, report, {"train": [1.0, 0.5]})  # pyright: ignore[reportPrivateUsage]
    assert names == ["arms.svg", "loss.svg"] and "own $drafts" in (tmp_path / "arms.svg").read_text(encoding="utf-8")
    assert plots.select_plots(("report/arms.svg", "report/effect.svg"), "report") == ["effect.svg", "arms.svg"]


def test_the_page_shows_the_table(tmp_path: Path) -> None:
    _, history = run_session(tmp_path, arm_has(8))
    text = trail_page(history)
    assert "own drafts" in text and '<strong class="unmet">not beaten</strong>' in text


def test_an_arm_with_the_weights_of_the_treatment_is_rejected(tmp_path: Path) -> None:
    run = open_quick(tmp_path, *ARMED)
    drive(quick_session(run, launcher=QuickLauncher(arm_has(2))))
    decision = History.read(run / TRAIL, run / STORE).newest(DecisionEntry)
    assert decision is not None and (decision.body.stage, decision.body.outcome) == ("tuned", "reject")
    assert "'own drafts' evaluated the treatment's weights" in decision.body.reasons[0]
