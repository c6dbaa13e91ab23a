"""A real MCP client manages sessions over stdio: it writes a spec, and only a person's signature lets it spend."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from mcp.shared.exceptions import MCPError

from testing.factories.evidence_on_disk import heldout_items, resolved_spec
from testing.fixtures.command_sessions import CANARY, entries, verify
from testing.fixtures.mcp_client import HOME, Driver, open_brief, over_stdio
from testing.fixtures.quick_session import POWERED, ROOMY
from testing.fixtures.terminal import at_a_terminal

pytestmark = pytest.mark.integration

EXTERNAL = ("{vendor: playbook}", "{vendor: external}")


class Managed:
    """A client of the management server, and its folders."""

    def __init__(self, driver: Driver, folder: Path) -> None:
        self.driver, self.folder, self.runs = driver, folder, folder / "runs"
        self.spec = (folder / "spec.yaml").read_text(encoding="utf-8")

    def sign(self, file: str, typed: str) -> tuple[int, str]:
        """Sign a spec as a person does."""
        own = os.environ | {"PYTHONPATH": str(HOME)}
        command = [sys.executable, "-m", "sessions.commands.cli", "spec", "sign", str(self.folder / file)]
        return at_a_terminal([*command, "--runs", str(self.runs), "--by", "mia"], typed, own)


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Managed]:
    folder = tmp_path_factory.mktemp("managed")
    resolved_spec(folder, POWERED, ROOMY, EXTERNAL)
    options = ("--manage",)
    with over_stdio(folder, folder / "runs", options=options, log=folder / "log", PEERGATE_CANARY_KEY=CANARY) as driver:
        yield Managed(driver, folder)


def test_what_a_program_wrote_starts_once_a_person_has_signed_it_and_only_once(managed: Managed) -> None:
    driver = managed.driver
    assert "NAME.draft.yaml" in (driver.client.instructions or "")
    written = driver.call("write_spec", name="mine", text=managed.spec)
    assert not written.is_error and "mine.draft.yaml" in written.text
    checked = driver.call("check_spec", file="mine.draft.yaml")
    assert not checked.is_error and '"outcome": "approve"' in checked.text, checked
    begin: dict[str, Any] = {"file": "mine.draft.yaml", "name": "mine"}
    refused = driver.call("start_session", **begin)
    assert refused.is_error and "no person has signed this spec" in refused.text, refused
    assert not (managed.runs / "mine").exists()

    code, text = managed.sign("mine.draft.yaml", "another name")
    assert code == 2 and "nothing was signed" in text
    assert driver.call("start_session", **begin).is_error
    code, text = managed.sign("mine.draft.yaml", "small")
    assert code == 0 and "at most 3 attempts; criteria: loss_drop > 0" in text and "budget: 10 USD" in text, text

    # Signed is the text as it was: another one with looser limits is not.
    loose = managed.spec.replace("minimum_effect: 0.8", "minimum_effect: 0.9")
    driver.call("write_spec", name="mine", text=loose)
    assert "no person has signed" in driver.call("start_session", **begin).text
    driver.call("write_spec", name="mine", text=managed.spec)
    started = driver.call("start_session", **begin)
    assert not started.is_error, started
    result = driver.call("session_status", session="mine", wait_seconds=60)
    assert json.loads(result.text)["name"] == "mine"
    again = driver.call("start_session", file="mine.draft.yaml", name="more")
    assert again.is_error and "no person has signed" in again.text, "a signature is good for one session"

    # Another program, with the other server, builds it.
    with over_stdio("mine", managed.runs) as builder:
        assert "stage 'base'" in open_brief(builder).text
        assert "launch_stage" in {tool.name for tool in builder.ask("list_tools").tools}
        # Its weights are not those of the test's jobs, so it goes no further than the phase.
        assert not builder.call("write_note", text="here").is_error
    opened = entries(managed.runs / "mine")[0].raw
    assert opened["signed"]["by"] == "mia"
    code, answer = verify(managed.runs / "mine")
    assert (code, answer["verdict"], answer["damage"]) == (2, "open", []), answer


def test_the_manager_neither_builds_nor_decides_nor_leaves_its_folder(managed: Managed) -> None:
    driver = managed.driver
    tools = {item.name: item for item in driver.ask("list_tools").tools}
    assert not {"launch_stage", "submit_stage", "run_python", "override", "spec_sign", "answer"} & tools.keys()
    assert not any("answer" in item.input_schema["properties"] for item in tools.values())
    (managed.folder / "heldout.yaml").symlink_to(managed.folder / "heldout.jsonl")
    before = (managed.folder / "spec.yaml").read_bytes()
    for tool, arguments, why in (
        ("launch_stage", {"stage": "base", "reason": "r"}, "unknown tool"),
        ("read_spec_file", {"file": "../spec.yaml"}, "malformed arguments"),
        ("read_spec_file", {"file": "heldout.jsonl"}, "malformed arguments"),
        ("read_spec_file", {"file": "heldout.yaml"}, "no file heldout.yaml"),
        ("write_spec", {"name": "spec.yaml", "text": "x"}, "malformed arguments"),
        ("write_spec", {"name": "out", "text": "heldout: {path: ../heldout.jsonl}"}, "leads out of"),
        ("write_spec", {"name": "out", "text": "data: {a: {path: /etc/passwd}}"}, "leads out of"),
        ("write_spec", {"name": "out", "text": "data: {a: {path: runs/mine/store/x}}"}, "into the run folders"),
        ("write_spec", {"name": "out", "text": f"objective: {CANARY}"}, "contains the value of PEERGATE_CANARY_KEY"),
        ("write_spec", {"name": "out", "text": "a: [1"}, "line "),
        ("start_session", {"file": "spec.yaml", "name": "--signed"}, "malformed arguments"),
        ("resume_session", {"session": "nobody"}, "unknown session 'nobody'"),
        ("resume_session", {"session": "mine", "answer": "approve"}, "malformed arguments"),
    ):
        answer = driver.call(tool, **arguments)
        assert answer.is_error and why in answer.text, (tool, arguments, answer)
    assert (managed.folder / "spec.yaml").read_bytes() == before
    assert not (managed.folder / "out.draft.yaml").exists()


def test_reports_trails_and_reviews_are_shown_without_heldout_texts(managed: Managed) -> None:
    driver = managed.driver
    prompt = heldout_items()[0].prompt
    listed = driver.call("list_files").text
    assert "heldout.jsonl: " in listed and "runs/" not in listed
    note = managed.folder / "note.md"
    note.write_text(f"An item says: {prompt}\n", encoding="utf-8")
    reviewed = driver.call("request_review", kind="design", files=["spec.yaml", "note.md"])
    assert not reviewed.is_error and json.loads(reviewed.text)["answered_by"], reviewed
    assert prompt not in reviewed.text
    names = [str(resource.uri) for resource in driver.ask("list_resources").resources]
    assert "peergate://spec/schema" in names and "peergate://sessions/mine/trail" in names
    trail = driver.ask("read_resource", "peergate://sessions/mine/trail").contents[0].text
    assert "decision" in trail
    assert "properties" in driver.ask("read_resource", "peergate://spec/schema").contents[0].text
    with pytest.raises(MCPError, match="unknown session"):
        driver.ask("read_resource", "peergate://sessions/nobody/report")
    audited = driver.call("audit_trail", session="mine")
    assert not audited.is_error and '"verdict": "open"' in audited.text


@pytest.mark.parametrize("manages", [True, False])
def test_a_server_answers_soon_after_its_imports_and_before_it_opens_a_session(tmp_path: Path, manages: bool) -> None:
    resolved_spec(tmp_path, POWERED, ROOMY, EXTERNAL)
    runs = tmp_path / "runs"
    target = ["--manage", str(tmp_path)] if manages else [str(tmp_path / "spec.yaml")]
    command = [sys.executable, "-m", "sessions.commands.cli", "mcp", *target, "--runs", str(runs)]
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "plain", "version": "1"}}
    question = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}) + "\n"
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=HOME
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write(question)
        server.stdin.flush()
        answer = json.loads(server.stdout.readline())
        opened = (runs / "small").exists()
        # Of the processor, next to what the SDK's import takes: machines differ, and have other work.
        taken = sum(psutil.Process(server.pid).cpu_times()[:2])
        server.stdin.close()
        assert server.wait(120) == (0 if manages else 130)
    assert answer["result"]["serverInfo"]["name"] == ("peergate-manage" if manages else "peergate")
    assert not opened
    script = "import time, mcp; print(time.process_time())"
    imported = float(subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout)
    assert taken < 3 * imported, (taken, imported)
