from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from agents.turns import ModelTurn, TurnUsage
from sessions.pages.report.live_display import Terminal
from sessions.run.money.ledger import Balance
from specs.jobs.job_records import JobProgress
from specs.stages.base.metric import Metric, MetricSet
from specs.system.digests import digest_bytes
from specs.system.vendors.conversation import ToolCall
from specs.trail.verdict import CheckResult, Decision, RequiredChange

BALANCE = Balance(0.25, 0.0, 0.75, 0.5, 1.5)
NASTY = "\x1b[2J[bold red]gone[/]\x07"


def make_terminal(terminal: bool = False) -> tuple[Terminal, io.StringIO]:
    out = io.StringIO()
    return Terminal(Console(file=out, force_terminal=terminal, highlight=False, soft_wrap=True, width=200)), out


def test_a_decision_is_shown_with_reasons_changes_and_what_is_left() -> None:
    terminal, out = make_terminal()
    change = RequiredChange(text="raise temperature", parameter="temperature", value=0.9)
    digest = digest_bytes(b"")
    terminal.decision(
        Decision(
            stage="sample",
            attempt=1,
            outcome="revise",
            reasons=(
                "too few",
                "check a is FAIL: 3 are bad",
                "checklist: All: FAIL. 3 are bad",
                "checklist: 2 are bad",
            ),
            required_changes=(change,),
            packet=digest,
            verdict=digest,
        ),
        BALANCE,
    )
    message = out.getvalue()
    assert all(
        text in message
        for text in ("gate sample: revise", "- too few", "required: raise temperature", "left 0.7500 USD and 90 min")
    )
    assert message.count("3 are bad") == 1 and "checklist: 2 are bad" in message, "the checklist repeats its check"


def test_checks_are_counted_and_those_that_closed_the_gate_are_shown() -> None:
    terminal, out = make_terminal()
    results = [
        CheckResult.model_validate(
            {"id": id, "title": "t", "status": status, "blocking": True, "detail": f"about {id}"}
        )
        for id, status in (("a", "PASS"), ("b", "PASS"), ("c", "FAIL"), ("d", "BLOCKED"))
    ]
    terminal.checks(tuple(results))
    message = out.getvalue()
    assert "1 BLOCKED, 1 FAIL, 2 PASS" in message and "FAIL c: about c" in message and "about a" not in message
    broken = results[2].model_copy(update={"id": "e", "detail": "about c"})
    terminal.checks((*results, broken))
    assert "FAIL c, e: about c" in out.getvalue(), "one fault, told once"


def test_metrics_come_with_interval_n_and_unit() -> None:
    terminal, out = make_terminal()
    metric = Metric(
        id="accuracy", value=0.5, n=12, unit="fraction", population="p", definition="d", interval=(0.25, 0.75)
    )
    code = digest_bytes(b"")
    terminal.metrics(MetricSet(stage="s", attempt=1, rows={}, code=code, metrics={"accuracy": metric}))
    assert "accuracy" in out.getvalue() and "[0.250, 0.750]  n=12 (fraction)" in out.getvalue()


def test_without_a_terminal_progress_is_a_line_now_and_then_and_always_the_last() -> None:
    terminal, out = make_terminal()
    terminal.stage("train", 1, 2, 5)
    for done in (1, 2, 10):
        terminal.progress("train", JobProgress(time=0.0, done=done, total=10, unit="steps", note={"loss": 1.23456}))
    lines = out.getvalue().splitlines()
    assert len(lines) == 2 and "train: 10/10 steps" in lines[1] and "loss 1.235" in lines[1]


def test_nothing_a_job_writes_moves_the_terminal() -> None:
    for is_terminal in (False, True):
        terminal, out = make_terminal(is_terminal)
        terminal.stage("train", 1, 1, 1)
        terminal.progress("train", JobProgress(time=0.0, done=1, total=1, unit=NASTY, note={NASTY: NASTY}))
        terminal.say(NASTY)
        terminal.job_ended("train", NASTY)
        message = out.getvalue()
        # Rich itself moves the cursor for its bar; clearing the screen, the bell and markup are not its own.
        assert "\x1b[2J" not in message and "\x07" not in message and "[bold red]gone[/]" in message


def test_the_time_left_does_not_count_what_came_before_the_first_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sessions.pages.report.live_display.PLAIN_EVERY_S", 0.0)
    terminal, out = make_terminal()
    terminal.stage("train", 1, 1, 1)
    for done, when in ((2, 100.0), (4, 110.0)):
        terminal.progress("train", JobProgress(time=when, done=done, total=10, unit="steps"))
    # Two steps in ten seconds, six to go; loading took 100 seconds before that.
    assert "4/10 steps, about 30 s left" in out.getvalue()
    terminal.job_ended("train", "done")
    for done, when in ((5, 1000.0), (7, 1010.0)):
        terminal.progress("train (witness)", JobProgress(time=when, done=done, total=10, unit="steps"))
    assert "7/10 steps, about 15 s left" in out.getvalue(), "the witness of a job is not as slow as the job before it"


def make_turn(**changes: Any) -> ModelTurn:
    values: dict[str, Any] = {
        "text": "x",
        "calls": (ToolCall(id="a", name="read_spec", arguments="{}"),),
        "stop": "tool_use",
        "model": "some-model",
        "usage": TurnUsage(input_tokens=12_345, output_tokens=420, cached_tokens=10_000),
        "usd": 0.0123,
        "usd_is_measured": True,
    }
    return ModelTurn.model_validate(values | changes)


def test_a_turn_is_one_line_with_model_tokens_and_money() -> None:
    terminal, out = make_terminal()
    terminal.turn(make_turn(), 0.21, 2.0)
    terminal.turn(make_turn(calls=(), stop="end", usage=None, usd_is_measured=False, model=NASTY), 0.22, 2.0)
    first, second = (line[9:] for line in out.getvalue().splitlines())
    assert first == (
        "  some-model: 12.3k tokens in (10.0k cached), 420 out, 1 call; 0.0123 USD, builder 0.2100 of 2 USD"
    )
    assert second == "  [bold red]gone[/]: end; 0.0123 USD at most, builder 0.2200 of 2 USD"


def test_a_call_is_one_line_however_long_or_hostile_and_shown_once_in_a_row() -> None:
    terminal, out = make_terminal()
    for _ in range(50):
        terminal.call_begins("write_note")
        terminal.call("write_note", '{"text": "' + NASTY + "x" * 5000 + '"}', "kept\nas note.1\n" + "y" * 5000, False)
    terminal.call("\x1b[2Jnothing", "{}", f"unknown tool {NASTY}", True)
    lines = out.getvalue().splitlines()
    assert len(lines) == 2 and all(len(line) < 350 for line in lines) and "\x1b" not in out.getvalue()
    assert (
        lines[0][9:].startswith('    write_note {"text": "[bold red]gone[/]xxx') and "-> kept as note.1 yyy" in lines[0]
    )
    assert lines[1][9:] == "    nothing -> refused: unknown tool [bold red]gone[/]"


def test_what_may_take_minutes_is_announced_once() -> None:
    terminal, out = make_terminal()
    for number in range(3):
        terminal.call_begins("job_status")
        terminal.call("job_status", "{}", f"running, step {number}", False)
    terminal.call_begins("read_spec")
    assert [line[9:] for line in out.getvalue().splitlines()] == [
        "    job_status ...",
        "    job_status -> running, step 0",
        "    job_status -> running, step 1",
        "    job_status -> running, step 2",
    ]
