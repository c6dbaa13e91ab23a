"""What a person can do: the same at the terminal and in the report, no retry that changes nothing, remedies."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reviews.checks.remedies import REMEDIES, remedy_of
from reviews.gate.check_catalog import listing
from reviews.history.history import History
from reviews.history.people import last_question
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.pages.report.next_steps import answers_to, remedies, why_the_same
from specs.jobs.job_records import JobOrder
from specs.stages.base.stage import ParameterRange
from testing.factories.evidence_on_disk import N, answers
from testing.fixtures.command_sessions import called as peergate
from testing.fixtures.quick_session import QuickLauncher, drive, healthy_rows, open_quick, quick_session

Rows = Callable[[JobOrder], list[dict[str, Any]]]


def cut(order: JobOrder) -> list[dict[str, Any]]:
    """The baseline never ends by itself."""
    return answers([False] * N, truncated=True) if order.grant.stage == "base" else healthy_rows(order)


def waits(folder: Path, rows: Rows = cut) -> Path:
    run = open_quick(folder)
    drive(quick_session(run, launcher=QuickLauncher(rows=rows)))
    return run


def offered(run: Path) -> list[str]:
    entries, store = read_entries(run / "trail.sqlite"), Store(run / "store")
    ways_out = answers_to(History(entries, store), last_question(History(entries)), "small")
    return [out.commands[0].removeprefix("peergate ") for out in ways_out]


LIFT, STOP = "override small --gate --reason WHY", "resume small --answer stop --reason WHY"
RETRY = "resume small --answer retry --reason WHY"


def test_a_retry_that_can_change_nothing_is_not_offered(tmp_path: Path) -> None:
    run = waits(tmp_path)
    entries = read_entries(run / "trail.sqlite")
    assert entries[-1].raw["outcome"] == "escalate" and "health.truncation" in str(entries[-1].raw["reasons"])
    assert offered(run) == [LIFT, STOP]


def test_a_retry_is_offered_where_a_parameter_may_move(tmp_path: Path) -> None:
    run = waits(tmp_path)
    entries, store = read_entries(run / "trail.sqlite"), Store(run / "store")
    resolved = History(entries, store).resolved
    stages = tuple(
        stage.model_copy(
            update={"ranges": {"max_new_tokens": ParameterRange(min=8, max=64)}} if stage.name == "base" else {}
        )
        for stage in resolved.spec.stages
    )
    movable = resolved.model_copy(update={"spec": resolved.spec.model_copy(update={"stages": stages})})
    history = History(entries, store)
    assert why_the_same(history, entries[-1])
    history.__dict__["_resolved"] = movable
    assert not why_the_same(history, entries[-1])


def test_a_retry_is_offered_after_a_check_was_lifted(tmp_path: Path) -> None:
    run = waits(tmp_path)
    lifted = ("--check", "health.truncation", "--stage", "base", "--reason", "long answers are the task")
    assert peergate("override", "small", *lifted, "--runs", run.parent).returncode == 0
    assert RETRY in offered(run)


def test_terminal_and_report_offer_the_same(tmp_path: Path) -> None:
    run = waits(tmp_path)
    data = json.loads(peergate("report", run, "--json").stdout)
    by_report = [answer["commands"][0] for answer in data["answers"]]
    assert [remedy["check"] for remedy in data["remedies"]] == ["health.truncation"]
    lines = peergate("status", run).stdout.splitlines()
    begin = lines.index("what you can do:")
    at = f" --runs {run.parent}"
    assert [line.strip().replace(at, "") for line in lines[begin + 1 :] if line.startswith("  peergate")] == by_report
    assert [line.strip() for line in lines[begin + 1 :] if line.startswith("      ")] == [
        answer["effect"] for answer in data["answers"]
    ]
    assert any(line.startswith("  against health.truncation: a larger `max_new_tokens`, or `stops`") for line in lines)
    page = peergate("report", run).stdout
    assert "- Against `health.truncation`: a larger `max_new_tokens`, or `stops`" in page
    assert not [line for line in lines if "answer retry" in line]


def test_a_rejected_session_says_what_to_change(tmp_path: Path) -> None:
    done = peergate("start", "demo_leaky", "--runs", tmp_path)
    assert "  against design.overlap: remove the rows shown from the training data" in done.stdout
    data = json.loads((tmp_path / "demo_leaky" / "report" / "report.json").read_bytes())
    assert [remedy["check"] for remedy in data["remedies"]] == ["design.overlap"]
    page = (tmp_path / "demo_leaky" / "report" / "report.md").read_text(encoding="utf-8")
    assert "- `peergate start SPEC --name NEW` begins another session" in page


def test_an_accepted_session_needs_no_remedy(tmp_path: Path) -> None:
    run = waits(tmp_path, healthy_rows)
    assert remedies(History(read_entries(run / "trail.sqlite"), Store(run / "store"))) == []


def test_a_question_of_the_builder_or_about_the_design_is_no_idle_retry(tmp_path: Path) -> None:
    run = waits(tmp_path)
    entries, store = read_entries(run / "trail.sqlite"), Store(run / "store")
    entry = entries[-1]
    assert why_the_same(History(entries, store), entry).startswith("with the same parameters and seed")
    design = next(recorded_entry for recorded_entry in entries if recorded_entry.key == "decision/design.1")
    plan = next(recorded_entry for recorded_entry in entries if recorded_entry.kind == "plan")
    assert why_the_same(History(entries, store), design) == why_the_same(History(entries, store), plan) == ""


def test_every_check_that_closes_a_gate_has_a_remedy() -> None:
    own = {check.id: check.blocking for check in listing() if check.distribution == "peergate"}
    assert [id for id, blocking in own.items() if blocking and not remedy_of(id)] == []
    assert REMEDIES.keys() <= own.keys()
    assert remedy_of("acme.no") == ""


@pytest.mark.parametrize("check", ["health.truncation", "parity.truncation"])
def test_the_remedy_is_explained_with_the_check(check: str) -> None:
    assert f"  against it: {remedy_of(check)}" in peergate("check", "explain", check).stdout
    assert "`max_new_tokens`" in remedy_of(check) and "`stops`" in remedy_of(check)
