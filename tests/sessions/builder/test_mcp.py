"""A real MCP client, the SDK's, starts `peergate mcp` as a process and builds a session of quick jobs over stdio.

Starting a server costs seconds, so each of these tests walks through several things, and some share a server.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from agents.external_builder import BuilderExchange, CallAnswer
from reviews.trail.chain.store import Store
from sessions.mcp.tool_server import what_was_launched
from sessions.runtime.session_driver import SessionTarget, find_target
from specs.system.errors import UserError
from specs.system.vendors.conversation import ToolResult
from testing.factories.evidence_on_disk import heldout_items
from testing.fixtures.command_sessions import CANARY, entries, environment, verify, wait_for
from testing.fixtures.mcp_client import Driver, open_brief, over_stdio, server_of, take_through
from testing.fixtures.quick_session import open_quick

pytestmark = pytest.mark.integration

EXTERNAL = ("{vendor: playbook}", "{vendor: external}")
STAGES = ("base", "sample", "train", "tuned", "ship")


def opened(folder: Path) -> Path:
    return open_quick(folder, EXTERNAL)


def peergate(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "testing.fixtures.quick_mcp", *map(str, arguments)]
    own = environment() | {"PEERGATE_QUICK": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, env=own, check=False, timeout=120, stdin=subprocess.DEVNULL
    )


@pytest.fixture(scope="module")
def planning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Driver, Path]]:
    """A client in the phase `plan` of the first stage with a range, and the run folder."""
    run = opened(tmp_path_factory.mktemp("planning"))
    with over_stdio("small", run.parent, PEERGATE_CANARY_KEY=CANARY) as driver:
        assert "stage 'sample'" in take_through(driver, "base").then
        yield driver, run


def results(run: Path) -> list[tuple[str, str, bool, str]]:
    """Return tool, arguments, refused and text of every recorded call with a result."""
    store = Store(run / "store")
    calls = {entry.key: entry for entry in entries(run, "call")}
    return [
        (
            calls[entry.raw["call"]].raw["tool"],
            store.get(calls[entry.raw["call"]].raw["arguments"]).decode(),
            entry.raw["is_error"],
            store.get(entry.raw["text"]).decode(),
        )
        for entry in entries(run, "result")
    ]


@pytest.mark.slow
def test_a_client_that_starts_cold_takes_a_session_to_its_accepted_end_over_a_killed_server(tmp_path: Path) -> None:
    run = opened(tmp_path)
    hold = run.parent / "hold"
    hold.touch()
    with over_stdio("small", run.parent, mode="legacy") as driver:
        assert "phase 'watch'" in driver.call("launch_stage", stage="base", reason="r").then
        waiting = driver.begin("job_status", wait_seconds=600)
        second = peergate("mcp", "small", "--runs", run.parent)
        assert second.returncode == 4 and "another process is running this session" in second.stderr
        assert second.stdout == "", "stdout belongs to the protocol"
        server_of(run.parent).kill()
        with pytest.raises(MCPError, match="closed"):
            waiting.result(30)
    hold.unlink()
    with over_stdio("small", run.parent) as driver:
        assert "brief first" in (driver.client.instructions or "")
        first = open_brief(driver)
        assert first.text.startswith("# Session small: stage 'base' (evaluate), attempt 1, phase 'submit'")
        (prompt,) = driver.ask("get_prompt", "brief").messages
        assert first.text.splitlines()[0] in prompt.content.text
        assert "stage 'sample'" in driver.call("submit_stage").then
        last = take_through(driver, *STAGES[1:])
        assert last.then.startswith("the session is closed, approve: accepted: held-out accuracy 0.000 -> 1.000")
        late = driver.call("launch_stage", stage="ship", reason="once more")
        assert late.is_error and "the session is closed" in late.text
    assert entries(run)[-1].raw["decision"] == "approve"
    # Every call stands in the trail, with what the client calls itself and the number of its call; no job ran twice.
    called = [(entry.raw["tool"], entry.raw["call_id"]) for entry in entries(run, "call")]
    assert [tool for tool, _ in called] == ["launch_stage", "submit_stage"] * 5
    assert all(id.startswith("mcp ") for _, id in called)
    assert {entry.raw["builder"] for entry in entries(run, "plan")} == {"external"}
    assert len(entries(run, "launch")) == 5
    code, answer = verify(run)
    assert (code, answer["verdict"]) == (0, "verified"), answer


def test_the_tools_are_the_builders_with_their_schemas(planning: tuple[Driver, Path]) -> None:
    tools = {tool.name: tool for tool in planning[0].ask("list_tools").tools}
    assert {"brief", "launch_stage", "submit_stage", "job_status", "ask_review"} <= tools.keys()
    assert tools["launch_stage"].input_schema["required"] == ["stage", "reason"]
    assert "path" not in json.dumps([tool.input_schema for tool in tools.values()]).replace("xpath", "")


@pytest.mark.parametrize(
    ("tool", "arguments", "why"),
    [
        ("launch_stage", {"stage": "sample", "changes": {"temperature": 7}, "reason": "r"}, "temperature"),
        ("launch_stage", {"stage": "ship", "reason": "to the end at once"}, "has no grant"),
        ("launch_stage", {"stage": "sample"}, "malformed arguments: reason"),
        ("launch_stage", {"stage": ["sample"], "reason": 1, "grant": "mine"}, "malformed arguments"),
        ("submit_stage", {}, "is not open now"),
        ("read_artifact", {"name": "data.heldout"}, "may be read"),
        ("read_artifact", {"name": "../../small/spec.yaml"}, "malformed arguments"),
        ("read_artifact", {"name": "base.1.rows"}, "may be read"),
        ("shell", {"command": "cat heldout.jsonl"}, "unknown tool 'shell'"),
    ],
)
def test_what_is_refused_is_an_answer_and_is_recorded(
    planning: tuple[Driver, Path], tool: str, arguments: dict[str, Any], why: str
) -> None:
    driver, run = planning
    answer = driver.call(tool, **arguments)
    assert answer.is_error and why in answer.text, answer
    recorded = results(run)[-1]
    assert (recorded[0], json.loads(recorded[1]), recorded[2], recorded[3]) == (tool, arguments, True, answer.text)
    assert "phase 'plan'" in driver.call("brief").text, "the phase is open as before"
    assert not driver.call("write_note", text=f"refused: {tool} {arguments}").is_error


def test_no_answer_holds_a_heldout_prompt_or_a_key(planning: tuple[Driver, Path]) -> None:
    driver, _ = planning
    prompt = heldout_items()[0].prompt
    answers = [driver.call("write_note", text=f"remember {prompt} and {CANARY}"), driver.call("brief")]
    answers += [driver.call("read_spec"), driver.call("list_artifacts"), driver.call("read_metrics", stage="base")]
    text = "\n".join(f"{answer.text}\n{answer.then}" for answer in answers)
    assert "remember [held-out]" in text
    assert prompt not in text and CANARY not in text


def test_a_wait_for_the_job_holds_nothing_up_and_can_be_withdrawn(planning: tuple[Driver, Path]) -> None:
    driver, run = planning
    hold = run.parent / "hold"
    hold.touch()
    before = len(results(run))
    assert "phase 'watch'" in driver.call("launch_stage", stage="sample", reason="r").then
    given_up, waiting = driver.begin("job_status", wait_seconds=900), driver.begin("job_status", wait_seconds=901)
    assert "is running" in driver.call("job_status", wait_seconds=1).text
    assert "done" in driver.call("job_logs").text, "it is answered while others wait"
    wait_for(lambda: any("3 of 12 items" in text for text in driver.progress), 300)
    ended = driver.ended
    given_up.cancel()
    # The withdrawal has to arrive before the job ends. Otherwise the withdrawn call gets the answer. What is answered
    # now was sent after it.
    wait_for(lambda: driver.ended > ended, 60)
    driver.call("job_logs")
    assert not waiting.done()
    hold.unlink()
    done = waiting.result(60)
    assert "ended after" in done.text and "phase 'submit'" in done.then
    # The one that was withdrawn was never carried out, so it is not recorded.
    requests = [json.loads(arguments) for tool, arguments, _, _ in results(run)[before:] if tool == "job_status"]
    assert requests == [{"wait_seconds": 0}, {"wait_seconds": 901}]


@pytest.mark.slow
def test_what_a_person_answers_elsewhere_opens_the_tools_again(tmp_path: Path) -> None:
    run = opened(tmp_path)
    with over_stdio("small", run.parent) as driver:
        result = driver.call("ask_person", reason="I do not know")
        assert "waits for a person" in result.then
        refused = driver.call("launch_stage", stage="base", reason="r")
        assert refused.is_error and "waits for a person" in refused.text
        answer = peergate("resume", "small", "--runs", run.parent, "--answer", "retry", "--reason", "go on then")
        assert answer.returncode == 4 and "no client is connected" in answer.stderr
        wait_for(lambda: "phase 'plan'" in driver.call("brief").text, 300)
        assert "go on then" in driver.call("brief").text


def test_a_launcher_that_refuses_is_the_result_of_the_launch(tmp_path: Path) -> None:
    run = opened(tmp_path)
    (run.parent / "refuse").touch()
    with over_stdio("small", run.parent) as driver:
        open_brief(driver)
        answer = driver.call("launch_stage", stage="base", reason="r")
    assert answer.is_error and answer.text == "base.1 was not launched: no machine is free (rent another one)"
    assert "is launched" not in answer.text + answer.then and "the session has stopped" in answer.then
    # The trail does not say that it was launched either; the call is answered for what it did.
    assert results(run)[-1][3] == "the launch of small.base.1 is on record, with the parameters of the spec"
    (run.parent / "refuse").unlink()
    (run.parent / "hold").touch()
    with over_stdio("small", run.parent) as driver:
        assert "phase 'watch'" in open_brief(driver).text, "the next start launches it: the plan is on record"
        (run.parent / "hold").unlink()


@pytest.mark.parametrize(
    ("launched", "refusal", "ended", "output", "is_error"),
    [
        (True, "", "", "base.1 is launched", False),
        (True, "lost the database", "the session has stopped", "base.1 is launched", False),
        (False, "", "it waits for a person", "base.1 was not launched: nothing was started", True),
        (False, "no machine", "the session has stopped", "base.1 was not launched: no machine", True),
        (False, "", "", "on record; it has not begun yet", False),
    ],
)
def test_only_what_a_launcher_took_is_called_launched(
    launched: bool, refusal: str, ended: str, output: str, is_error: bool
) -> None:
    exchange = BuilderExchange()
    exchange.refusal, exchange.ended = refusal, ended
    exchange.launched |= {"base.1"} if launched else set()
    answer = CallAnswer(ToolResult(call="1", text="on record", is_error=False), 1, "base.1")
    assert what_was_launched(exchange, answer) == (output, is_error)


def test_a_client_that_leaves_pauses_the_session(tmp_path: Path) -> None:
    # Without the SDK: its client kills a server that has not ended four seconds after it left.
    run = opened(tmp_path)
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "plain", "version": "1"}}
    requests: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
    ]
    note = {"method": "tools/call", "params": {"name": "write_note", "arguments": {"text": "I was here"}}}
    command = [sys.executable, "-m", "testing.fixtures.quick_mcp", "mcp", "small", "--runs", str(run.parent)]
    pipe = subprocess.PIPE
    own = environment() | {"PEERGATE_QUICK": "1"}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=own) as server:
        assert server.stdin is not None and server.stdout is not None and server.stderr is not None
        server.stdin.write("".join(json.dumps({"jsonrpc": "2.0"} | row) + "\n" for row in requests))
        server.stdin.flush()
        json.loads(server.stdout.readline())
        id, output = 1, "no phase is open"
        # On a busy machine the session is still beginning, and each call waits a while for it.
        while "no phase is open" in output and id < 60:
            id += 1
            server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": id} | note) + "\n")
            server.stdin.flush()
            output = json.loads(server.stdout.readline())["result"]["content"][0]["text"]
        assert output == "kept as note.1"
        server.stdin.close()
        assert server.wait(120) == 130
        assert "continues" in server.stderr.read() and server.stdout.read() == ""
    assert entries(run)[-1].kind == "pause"
    (call,) = entries(run, "call")
    assert call.raw["call_id"] == f"plain 1 #{id}"


def test_a_spec_opens_its_session_once_and_only_for_an_external_builder(tmp_path: Path) -> None:
    run, spec = opened(tmp_path), tmp_path / "spec.yaml"
    assert find_target("small", run.parent, None) == SessionTarget(run.resolve())
    assert find_target(str(spec), run.parent, None) == SessionTarget(run.resolve())
    assert find_target(str(spec), run.parent, "other") == SessionTarget((run.parent / "other").resolve(), spec)
    text = spec.read_text(encoding="utf-8")
    spec.write_text(text.replace("alpha: 0.05", "alpha: 0.04"), encoding="utf-8")
    with pytest.raises(UserError, match="the session was opened with sha256"):
        find_target(str(spec), run.parent, None)
    spec.write_text(text.replace(EXTERNAL[1], EXTERNAL[0]), encoding="utf-8")
    with pytest.raises(UserError, match="the builder is 'playbook', which needs no client"):
        find_target(str(spec), run.parent, "other")
