"""Helpers of a builder: a fresh context, reading and computing only, bounded, in parallel, each leaving one note."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from agents.workbench_protocol import Workbench
from reviews.audit.verify import verify_run
from reviews.trail.chain.store import Store
from sessions.builder.helper_workbench import EXCERPT
from sessions.run.run_layout import STORE, TRAIL
from specs.system.errors import BuilderUnavailable
from specs.system.vendors.conversation import ToolResult
from testing.factories.benches import READABLE, bench_of, new_session, open_stage
from testing.factories.benches import call as call_tool
from testing.factories.bodies import append_json
from testing.fixtures.loopback_api import ANTHROPIC, OPENAI
from testing.fixtures.sandbox import needs_sandbox
from testing.fixtures.scripted_builder import (
    Call,
    Reply,
    call,
    calls,
    follows_the_spec,
    scripted_builder,
    texts_of,
)
from tests.sessions.builder.test_builder_session import KEY, entries, open_with, play

pytestmark = pytest.mark.integration

TASK = "Say which tale is the shortest. CANARY-OF-THE-TASK"


def plays(body: dict[str, Any]) -> Reply:
    """Play a builder that delegates two tasks before its first launch, and the two helpers."""
    first, *after = texts_of(body)
    if first.startswith("# Your task"):
        if not after:
            return calls(
                Call("read_artifact", {"name": "heldout"}), Call("launch_stage", {"stage": "base", "reason": "x"})
            )
        return call("hand_in", result="five tales" if "Count" in first else "the shortest is the one of the sea")
    if "stage 'base'" in first and "phase 'plan'" in first and not after:
        task = {"task": TASK, "artifacts": ["data.prompts"], "max_usd": 0.4}
        return call("delegate", tasks=[task, task | {"task": "Count the tales."}])
    return follows_the_spec(body)


@pytest.mark.parametrize("vendor", [ANTHROPIC, pytest.param(OPENAI, marks=pytest.mark.slow)])
def test_tasks_are_worked_on_over_the_wire_and_leave_notes(
    tmp_path: Path, vendor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_with(tmp_path, vendor)
    with scripted_builder(vendor, [], canaries=(KEY,), then=plays) as played:
        play(run, played, monkeypatch)
        assert played.complaints() == []
        bodies = played.bodies()
    assert entries(run, "close")[0].raw["decision"] == "approve"
    helpers = [body for body in bodies if texts_of(body)[0].startswith("# Your task")]
    # The artifact is in the brief; the session, its stage and what the builder has seen are not.
    assert len(helpers) == 4 and all(READABLE in texts_of(body)[0] for body in helpers)
    assert not any("phase 'plan'" in text for body in helpers for text in texts_of(body))
    tools = {tool["name"] for tool in helpers[0]["tools"]}
    looking = {"query_rows", "compare_rows", "grep", "run_python", "look_up"}
    assert tools == {"read_spec", "list_artifacts", "read_artifact", "read_metrics", "hand_in"} | looking
    notes = [Store(run / STORE).get(entry.raw["text"]) for entry in entries(run, "note")]
    assert sorted(notes) == [b"five tales", b"the shortest is the one of the sea"]
    refused = [entry for entry in entries(run, "result") if entry.raw["is_error"]]
    assert len(refused) == 4, "held-out and a launch, of each helper"
    lines = {entry.raw["helper"] for entry in entries(run, "call", "turn") if "helper" in entry.raw}
    assert lines == {"1-1", "1-2"}
    money = [entry.raw for entry in entries(run, "spend") if entry.raw["party"] == "helper"]
    assert len({row["job"] for row in money}) == 4 and {row["what"] for row in money} == {"reserve", "settle"}
    assert verify_run(run, TRAIL, STORE).damage == []


class Delegating:
    """A builder whose helpers do what the test says."""

    name = "delegating"

    def __init__(self, helps: Any) -> None:
        self.helps = helps

    def work(self, bench: Workbench) -> None:
        raise AssertionError

    def help(self, bench: Workbench) -> None:
        self.helps(bench)


def delegated(folder: Path, helps: Any, *tasks: dict[str, Any]) -> str:
    session = new_session(folder, builder=Delegating(helps))
    open_stage(session)
    bench = bench_of(session)
    return call_tool(bench, "delegate", tasks=[{"task": "t"} | task for task in tasks or ({},)]).text


def test_tasks_run_at_once(tmp_path: Path) -> None:
    both = threading.Barrier(2, timeout=120)

    def helps(bench: Workbench) -> None:
        both.wait()
        call_tool(bench, "hand_in", result=f"from {threading.get_ident()}")  # type: ignore[arg-type]

    assert "nothing was handed in" not in delegated(tmp_path, helps, {}, {"task": "another"})


@needs_sandbox
def test_a_helper_computes_in_the_sandbox_and_reads_no_more_there(tmp_path: Path) -> None:
    results: list[ToolResult] = []

    def helps(bench: Workbench) -> None:
        script = "print(len(open('/inputs/data.prompts').readlines()), 'lines')"
        for name in ("data.prompts", "heldout"):
            results.append(call_tool(bench, "run_python", script=script, artifacts=[name]))  # type: ignore[arg-type]
        call_tool(bench, "hand_in", result=results[0].text)  # type: ignore[arg-type]

    assert delegated(tmp_path, helps) == "task 1: note.1"
    assert [result.is_error for result in results] == [False, True] and "5 lines" in results[0].text


def test_a_bound_ends_a_task_and_is_reported(tmp_path: Path) -> None:
    seen: list[str] = []

    def helps(bench: Workbench) -> None:
        seen.append(call_tool(bench, "hand_in", result="too late").text)  # type: ignore[arg-type]

    output = delegated(tmp_path, helps, {"timeout_minutes": 1e-9})
    assert "minutes are over" in output and "ended" in seen[0]


def test_a_helper_that_cannot_be_reached_is_reported_and_the_others_go_on(tmp_path: Path) -> None:
    def helps(bench: Workbench) -> None:
        if "first" in bench.brief:
            raise BuilderUnavailable("status 503 after 3 calls", where="m")
        call_tool(bench, "hand_in", result="done")  # type: ignore[arg-type]

    output = delegated(tmp_path, helps, {"task": "first"}, {"task": "second"})
    assert "task 1: nothing was handed in: status 503" in output and "task 2: note.1" in output


def test_money_of_a_task_is_its_bound(tmp_path: Path) -> None:
    def helps(bench: Workbench) -> None:
        bench.reserve(0.3)
        bench.reserve(0.3)

    assert "nothing was handed in: " in (output := delegated(tmp_path, helps, {"max_usd": 0.5})) and "0.2" in output


def test_the_playbook_has_no_helpers(tmp_path: Path) -> None:
    session = new_session(tmp_path)
    open_stage(session)
    result = call_tool(bench_of(session), "delegate", tasks=[{"task": "t"}])
    assert result.is_error and "has no helpers" in result.text


def test_what_is_handed_in_can_be_read_later_and_only_once_each(tmp_path: Path) -> None:
    def helps(bench: Workbench) -> None:
        call_tool(bench, "hand_in", result="the result of it")  # type: ignore[arg-type]

    session = new_session(tmp_path, builder=Delegating(helps))
    open_stage(session)
    bench = bench_of(session)
    assert "task 1: note.1" in call_tool(bench, "delegate", tasks=[{"task": "t"}]).text
    assert "the result of it" in call_tool(bench, "read_artifact", name="note.1").text
    (note,) = session.trail.iterate("note")
    assert Store(session.run / "store").get(note.raw["text"]) == b"the result of it"


def test_what_is_withheld_is_taken_out_of_a_task_before_it_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "correct-horse-battery-staple-0123456789"
    monkeypatch.setenv("SOME_SECRET_KEY", secret)
    briefs: list[str] = []

    def helps(bench: Workbench) -> None:
        briefs.append(bench.brief)

    session = new_session(tmp_path, builder=Delegating(helps))
    open_stage(session)
    # The secret lies over the edge of what is shown; the note is planted past the wall of the tools.
    text = "x" * (EXCERPT - 20) + secret + "y" * 100
    body = {"stage": "sample", "attempt": 1, "what": "free", "text": session.store.put(text.encode())}
    append_json(session.trail, "note", "note/planted", body)
    call_tool(bench_of(session), "delegate", tasks=[{"task": "t", "artifacts": ["note.1"]}])
    assert "xxx" in briefs[0] and secret[:12] not in briefs[0]
