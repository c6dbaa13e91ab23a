"""Claude Code and Codex build a session with the settings that docs/how-to/mcp.md prints, where they are installed.

``npm install --prefix FOLDER @anthropic-ai/claude-code @openai/codex``, and PEERGATE_AGENTS=FOLDER.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from testing.fixtures.agent_programs import PlayedModel, program, settings
from testing.fixtures.command_sessions import entries, verify
from testing.fixtures.loopback_api import ANTHROPIC, OPENAI, loopback_api
from testing.fixtures.quick_session import open_quick
from tests.sessions.builder.test_mcp import EXTERNAL

pytestmark = pytest.mark.integration

TASK = "Work as the builder of the Peergate session: call `brief` and follow it."
STAGES = ("base", "sample", "train", "tuned", "ship")


def works_as_the_builder(folder: Path, run: Path, vendor: str, name: str) -> None:
    """Let an agent program build the session, and require its accepted end."""
    result = program(name)
    if result is None:
        pytest.skip(f"the agent program '{name}' is not installed: its vendor says how to install it")
    model = PlayedModel(vendor)
    home = folder / "home"
    home.mkdir()
    own = {"PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(folder), "DISABLE_AUTOUPDATER": "1"}
    with loopback_api() as api:
        api.steps = [model.step]
        if vendor == ANTHROPIC:
            (folder / ".mcp.json").write_text(settings("json", folder, run.parent), encoding="utf-8")
            own |= {"ANTHROPIC_BASE_URL": api.address, "ANTHROPIC_API_KEY": "none"}
            own |= {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
            command = [result, "--mcp-config", ".mcp.json", "--allowedTools", "mcp__peergate", "-p", TASK]
        else:
            provider = f'[model_providers.played]\nname = "played"\nbase_url = "{api.address}/v1"\nenv_key = "KEY"\n'
            chosen = 'model = "played"\nmodel_provider = "played"\n\n'
            (home / ".codex").mkdir()
            text = chosen + settings("toml", folder, run.parent) + provider
            (home / ".codex" / "config.toml").write_text(text, encoding="utf-8")
            own |= {"KEY": "none"}
            command = [result, "exec", "--skip-git-repo-check", TASK]
        done = subprocess.run(
            command, cwd=folder, env=own, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=500
        )
    output = f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    assert done.returncode == 0 and "The session is closed." in done.stdout, output
    assert entries(run)[-1].raw["decision"] == "approve", output
    called = entries(run, "call")
    assert [entry.raw["tool"] for entry in called if entry.raw["tool"] != "job_status"] == [
        "launch_stage",
        "submit_stage",
    ] * len(STAGES)
    # The client says of itself what it is, unproven.
    assert all(name in entry.raw["call_id"].lower() for entry in called), called[0].raw["call_id"]
    code, answer = verify(run)
    assert (code, answer["verdict"]) == (0, "verified"), answer


@pytest.mark.parametrize(("vendor", "name"), [(ANTHROPIC, "claude"), (OPENAI, "codex")])
def test_an_agent_program_builds_a_session_from_the_docs_alone(tmp_path: Path, vendor: str, name: str) -> None:
    works_as_the_builder(tmp_path, open_quick(tmp_path, EXTERNAL), vendor, name)


def test_the_settings_of_the_docs_are_those_that_are_tried(tmp_path: Path) -> None:
    for block, words in (("json", '"mcpServers"'), ("toml", "required = true")):
        text = settings(block, tmp_path, tmp_path / "runs")
        assert words in text and "/path/to" not in text and str(tmp_path / "spec.yaml") in text
