"""Sessions for an MCP client that only reads: numbers of verified trails, and no words of items or gates."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from reviews.history.history import History
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.mcp.reader.mcp_reader import MOST_POINTS, SessionReader
from sessions.pages.report.report import steps_of
from sessions.pages.trail_place import TrailPlace
from sessions.pages.view.places import Scope
from testing.fixtures.command_sessions import called
from testing.fixtures.mcp_client import REAL, over_stdio
from tests.sessions.view.test_view_pages import damaged

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def runs(closed_quick: Path, hostile: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An accepted session, one with hostile texts that waits, and a damaged one."""
    folder = tmp_path_factory.mktemp("read") / "runs"
    shutil.copytree(closed_quick, folder / "accepted")
    shutil.copytree(hostile, folder / "waiting")
    shutil.copytree(damaged(closed_quick, tmp_path_factory.mktemp("damaged")), folder / "damaged")
    return folder


def call_tool(reader: SessionReader, tool: str, **arguments: Any) -> Any:
    text, is_error = reader.call(tool, arguments)
    assert not is_error, text
    return json.loads(text)


def refused(reader: SessionReader, tool: str, **arguments: Any) -> str:
    text, is_error = reader.call(tool, arguments)
    assert is_error, text
    return text


@pytest.mark.more
def test_a_client_reads_what_was_measured_and_cannot_do_more(runs: Path) -> None:
    with over_stdio("--read", runs, REAL) as driver:
        tools = {tool.name: tool for tool in driver.ask("list_tools").tools}
        assert set(tools) == {"sessions", "session", "metric_history", "curve"}
        assert all(tool.annotations.read_only_hint for tool in tools.values())
        names = {load["name"]: load["state"] for load in json.loads(driver.call("sessions").text)}
        assert names == {"accepted": "closed", "damaged": "damaged", "waiting": "waiting"}
        data = json.loads(driver.call("metric_history", metric="accuracy_gain", session="accepted").text)
        assert [(attempt["attempt"], attempt["value"], attempt["outcome"]) for attempt in data["attempts"]] == [
            ("tuned.1", 1.0, "approve")
        ]
        assert driver.call("launch_stage", stage="base").is_error


def test_what_is_printed_is_what_the_trail_has(runs: Path) -> None:
    reader = SessionReader(Scope(runs))
    item = call_tool(reader, "session", session="accepted")
    assert item["metrics"]["tuned.1/accuracy_gain"] == 1.0 and item["state"]["decision"] == "approve"
    entries = read_entries(runs / "accepted" / "trail.sqlite")
    losses = steps_of(History(entries, Store(runs / "accepted" / "store")))["train", 1]
    curve = call_tool(reader, "curve", session="accepted", curve="train.1/loss")
    assert curve == {"steps": len(losses), "points": [[step, value] for step, value in enumerate(losses, 1)]}
    assert len(losses) < MOST_POINTS
    every = call_tool(reader, "metric_history", metric="accuracy")
    assert {(attempt["session"], attempt["attempt"]) for attempt in every["attempts"]} == {
        (name, at) for name in ("accepted", "waiting") for at in ("base.1", "tuned.1")
    }
    assert len(every["left_out"]) == 1 and every["left_out"][0].startswith("damaged: the trail is damaged")


def test_no_item_answer_or_reason_is_reported_and_no_control_character(runs: Path) -> None:
    reader = SessionReader(Scope(runs))
    texts = [reader.call("sessions", {})[0], reader.call("session", {"session": "waiting"})[0]]
    texts.append(reader.call("metric_history", {"metric": "accuracy"})[0])
    words = ("Write one line", "fine answer", "Wrong Answer", "look again", "points at nothing")
    assert not [word for word in words for text in texts if word in text]
    assert "tuned.1 escalate" in texts[0] and all(text.isascii() and text.isprintable() for text in texts)


def test_a_notification_that_cannot_be_sent_is_one_line(runs: Path) -> None:
    reader = SessionReader(Scope(runs))
    assert "the trail is damaged" in refused(reader, "session", session="damaged")
    assert "available: train.1/learning_rate, train.1/loss" in refused(
        reader, "curve", session="accepted", curve="train.1/x"
    )
    assert "unknown session" in refused(reader, "session", session="../accepted")
    assert "no attempt has this metric (available: acceptance_rate" in refused(
        reader, "metric_history", metric="x", session="accepted"
    )
    assert refused(reader, "session") == "malformed arguments: session: Field required"
    assert refused(reader, "curve", session="accepted", curve="train.1/loss", more=1).startswith(
        "malformed arguments: more: Extra"
    )
    assert "unknown tool 'launch_stage'" in refused(reader, "launch_stage")
    alone = TrailPlace(runs / "accepted", runs / "accepted" / "trail.sqlite")
    assert "unknown session" in refused(SessionReader(Scope(runs, alone)), "session", session="waiting")


def test_without_a_session_to_build_the_command_says_so(tmp_path: Path) -> None:
    done = called("mcp", "--runs", tmp_path)
    assert done.returncode == 2 and "no session, spec or folder specified" in done.stderr
    done = called("mcp", "--read", "--runs", tmp_path / "none")
    assert done.returncode == 2 and "no such folder" in done.stderr
