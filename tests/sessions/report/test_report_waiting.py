"""The report of a session that waits for a person, and critics in words: why, and what can be done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from reviews.trail.trail import Trail
from sessions.commands.cli import app
from sessions.pages.report.remarks import critic_in_words
from sessions.pages.report.report import render_waiting_report
from specs.session.thresholds import Thresholds
from specs.system.errors import EvidenceMissing
from specs.trail.entry import EntryKind
from testing.factories.bodies import append_json, body_of
from testing.fixtures.quick_session import open_quick

WHY = "check critics.calibration is FAIL: kappa 0.30"


def waiting(folder: Path, kind: EntryKind, key: str, **body: Any) -> Path:
    """Return a session that waits, because of one entry at the end of its trail."""
    run = open_quick(folder)
    trail = Trail(run / "trail.sqlite", "small")
    append_json(trail, kind, key, body_of(kind, **body))
    trail.close()
    return run


def escalated(folder: Path, stage: str | None = "base") -> Path:
    body = {"stage": stage, "attempt": 1, "outcome": "escalate", "reasons": [WHY], "opens": None}
    return waiting(folder, "decision", f"decision/{stage or 'design'}.1", **body)


def test_a_closed_gate_is_reported_with_its_reasons_and_every_answer(tmp_path: Path) -> None:
    run = escalated(tmp_path)
    data, text = render_waiting_report(run, "trail.sqlite", "store")
    assert data["result"] == "interim: the gate of 'base' stays closed, and a person is asked how to continue"
    assert data["why"] == [WHY] and f"- {WHY}" in text.splitlines()
    assert [answer["commands"] for answer in data["answers"]] == [
        ["peergate resume small --answer retry --reason WHY"],
        ["peergate override small --gate --reason WHY"],
        ["peergate resume small --answer stop --reason WHY"],
    ]
    assert "## What you can do" in text and all(f"- `{answer['commands'][0]}` " in text for answer in data["answers"])
    assert not (run / "report").exists() and not (run / "interim").exists()


def test_a_design_that_was_judged_is_not_judged_again(tmp_path: Path) -> None:
    data, _ = render_waiting_report(escalated(tmp_path, None), "trail.sqlite", "store")
    assert data["result"].startswith("interim: the gate of 'design' stays closed")
    assert [answer["commands"][0].split()[1] for answer in data["answers"]] == ["override", "resume"]


def test_the_command_prints_it_and_says_that_it_is_not_the_end(tmp_path: Path) -> None:
    escalated(tmp_path)
    result = CliRunner().invoke(app, ["report", "small", "--runs", str(tmp_path / "runs")])
    assert result.exit_code == 0 and result.stdout.startswith("# small: interim: the gate of 'base' stays closed")
    assert "interim: the gate of 'base' stays closed" in result.stderr
    as_json = CliRunner().invoke(app, ["report", "small", "--runs", str(tmp_path / "runs"), "--json"])
    assert '"outcome": "waiting"' in as_json.stdout


def test_a_session_that_asks_nothing_has_no_report_yet(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    with pytest.raises(EvidenceMissing, match="asks nothing of a person"):
        render_waiting_report(run, "trail.sqlite", "store")
    result = CliRunner().invoke(app, ["report", "small", "--runs", str(tmp_path / "runs")])
    assert isinstance(result.exception, EvidenceMissing) and "has no report yet" in str(result.exception)


def test_no_one_lifts_a_budget_that_is_used_up(tmp_path: Path) -> None:
    body = {"stage": "base", "attempt": 1, "at": "launch", "reasons": ["0.1 USD are left"]}
    data, text = render_waiting_report(waiting(tmp_path, "budget", "budget/1", **body), "trail.sqlite", "store")
    assert "the session waits for a larger budget" in data["result"] and data["why"] == ["0.1 USD are left"]
    assert [answer["commands"][0].split()[1] for answer in data["answers"]] == ["amend", "resume"]
    assert "override" not in text.partition("## What you can do")[2].partition("\n| |")[0]


def test_a_builder_that_asks_is_reported_with_its_words(tmp_path: Path) -> None:
    body = {"stage": "base", "attempt": 2, "escalate": True, "reason": "the data\x1b[2J look odd"}
    data, _ = render_waiting_report(waiting(tmp_path, "plan", "plan/base.2", **body), "trail.sqlite", "store")
    assert data["result"] == "interim: at 'base' the builder asks a person how to continue"
    assert len(data["why"]) == 1 and "look odd" in data["why"][0] and "\x1b" not in data["why"][0]


# ---- critics ---------------------------------------------------------------------------------------------------


def measured(kappa: float, low: float, swap: float) -> dict[str, Any]:
    values = {
        "instructions_agreement": (0.65, (0.5, 0.78)),
        "instructions_kappa": (kappa, (low, 0.9)),
        "instructions_swap_inconsistency": (swap, (0.0, 1.0)),
    }
    same = {"n": 40, "unit": "1", "population": "labelled items", "definition": "of this test"}
    return {id: {"id": id, "value": value, "interval": ends} | same for id, (value, ends) in values.items()}


def words(kappa: float, low: float, swap: float) -> tuple[str, list[str]]:
    results = critic_in_words("critique_instructions", measured(kappa, low, swap), Thresholds())
    assert results is not None
    assert [row["required"] for row in results["rows"]] == ["", ">= 0.6", "<= 0.25"]
    return " ".join(results["follows"]), results["helps"]


def test_a_critic_that_is_good_enough_needs_no_help() -> None:
    follows, helps = words(0.7, 0.4, 0.1)
    assert follows.startswith("The critic agrees with the person beyond chance") and helps == []


@pytest.mark.parametrize(
    ("kappa", "low", "swap", "message"),
    [
        (0.5, 0.2, 0.1, "is too low."),
        (0.3, -0.01, 0.1, "is too low and may be chance"),
        (0.7, -0.1, 0.1, "is high enough, on too few items and may be chance"),
        (0.7, 0.4, 0.3, "It is unsure: too many of its verdicts change"),
        (0.7, 0.4, 1.0, "It prefers a label, whatever the label means"),
    ],
)
def test_what_is_wrong_with_a_critic_is_said_in_words(kappa: float, low: float, swap: float, message: str) -> None:
    follows, helps = words(kappa, low, swap)
    assert message in follows and any("larger model" in text for text in helps)
    assert any("more labelled items" in text for text in helps) == (low <= 0)


def test_limits_are_the_registered_ones() -> None:
    results = critic_in_words("critique_instructions", measured(0.5, 0.2, 0.3), Thresholds(critic_kappa=0.4))
    assert (
        results is not None
        and results["rows"][1]["required"] == ">= 0.4"
        and "is too low" not in " ".join(results["follows"])
    )
    assert critic_in_words("evaluate", measured(0.5, 0.2, 0.3), Thresholds()) is None
    assert critic_in_words("critique_instructions", {}, Thresholds()) is None
