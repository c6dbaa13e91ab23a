"""Record the transcripts of an agent program again, its model played on this machine.

``npm install --prefix FOLDER @anthropic-ai/claude-code@2.1.332 @openai/codex@0.171.0``, then
``python -m release.record_transcripts --program claude --prefix FOLDER``. Nothing leaves this machine.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from release.record_transcripts.invented import Pseudonyms
from release.record_transcripts.played_model import PlayedModel
from release.record_transcripts.scenarios import FILES, SCENARIOS, STARTED, Scenario
from specs.system.home import HOME
from testing.fixtures.loopback_api import ANTHROPIC, OPENAI, loopback_api

OUT = HOME / "tests" / "fixtures" / "transcripts"
DEADLINE_S = 120


class Program(NamedTuple):
    """An agent program, and how it is run."""

    vendor: str
    package: str
    first: tuple[str, ...]
    """Arguments before the first prompt."""
    next: tuple[str, ...]
    """Arguments before a prompt that continues the session."""
    sessions: str
    """Folder of its transcripts, below HOME."""


PROGRAMS = {
    "claude": Program(
        ANTHROPIC,
        "@anthropic-ai/claude-code",
        ("--allowedTools", "Bash,Task,Agent", "-p"),
        ("--allowedTools", "Bash,Task,Agent", "--continue", "-p"),
        ".claude/projects",
    ),
    "codex": Program(
        OPENAI,
        "@openai/codex",
        ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"),
        ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "resume", "--last"),
        ".codex/sessions",
    ),
}
CODEX_SETTINGS = """model = "played"
model_provider = "played"
model_context_window = 200000
model_auto_compact_token_limit = 50000
[model_providers.played]
name = "played"
base_url = "{address}/v1"
env_key = "KEY"
wire_api = "responses"
[features]
collab = true
"""
"""A compaction is what it does when a request is said to have had more tokens; subagents are the last line's."""


def record(name: str, program: Path, scenario: Scenario, out: Path) -> list[str]:
    """Run a program through a scenario, and keep its transcripts; returns what went wrong."""
    about = PROGRAMS[name]
    with tempfile.TemporaryDirectory(prefix="record-", ignore_cleanup_errors=True) as named, loopback_api() as api:
        folder = Path(named).resolve()
        home, project = folder / "home", folder / "home" / "bakery"
        project.mkdir(parents=True)
        (folder / "tmp").mkdir()
        for file, text in FILES.items():
            (project / file).write_text(text, encoding="utf-8")
        if about.vendor == OPENAI:
            (home / ".codex").mkdir()
            settings = CODEX_SETTINGS.format(address=api.address)
            (home / ".codex" / "config.toml").write_text(settings, encoding="utf-8")
        model = PlayedModel(about.vendor, scenario)
        api.steps = [model.step]
        faults: list[str] = []
        # `codex exec` compacts automatically and has no slash commands.
        prompts = [prompt for prompt in scenario.prompts if about.vendor == ANTHROPIC or not prompt.startswith("/")]
        for number, prompt in enumerate(prompts):
            command = [str(program), *(about.next if number else about.first), prompt]
            own = _environment(folder, api.address)
            faults += _run(command, project, own, interrupted=scenario.interrupted and not number)
        faults += model.faults
        faults += [
            f"{len(answers)} answers were not asked for" for answers in (model.answers, model.helpers) if answers
        ]
        if not faults:
            _keep(home / about.sessions, folder, out, model.requests if about.vendor == ANTHROPIC else {})
        return faults


def _environment(folder: Path, address: str) -> dict[str, str]:
    """Return all that the program knows of this machine; what it asks of others ends at a closed port."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "NO_PROXY": "127.0.0.1",
        "ANTHROPIC_BASE_URL": address,
        "ANTHROPIC_API_KEY": "none",
        "KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def _run(command: list[str], project: Path, own: dict[str, str], *, interrupted: bool) -> list[str]:
    """Run the program once, Ctrl-C during its call where it is to be interrupted; returns what went wrong."""
    process = subprocess.Popen(
        command,
        cwd=project,
        env=own,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        if interrupted:
            deadline = time.monotonic() + DEADLINE_S
            while not (project / STARTED).exists() and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.1)
            # The record of the call is written by then.
            time.sleep(1)
            process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return [f"{command[-1]!r} did not end within {DEADLINE_S} s: {process.communicate()[0][-500:]}"]
    return (
        []
        if interrupted or not process.returncode
        else [f"{command[-1]!r} ended {process.returncode}: {output[-500:]}"]
    )


def _keep(sessions: Path, folder: Path, out: Path, requests: dict[str, list[str]]) -> None:
    """Replace the recorded transcripts, with invented values."""
    # Each project of Claude Code has a folder, each day of Codex three: what is below them is copied.
    files = {path: path.read_text(encoding="utf-8") for path in sorted(sessions.rglob("*.jsonl"))}
    top = min((path.parent for path in files), key=lambda parent: len(parent.parts))
    pseudonyms = Pseudonyms(folder, [*files.values(), *map(str, files)])
    made = folder / "made"
    for path, text in files.items():
        target = made / pseudonyms.text(path.relative_to(top).as_posix())
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(pseudonyms.lines(text), encoding="utf-8")
    if requests:
        (made / "requests.json").write_text(f"{json.dumps(requests, indent=1)}\n", encoding="utf-8")
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(made, out)


def main() -> int:
    """Record every scenario, and say what went wrong."""
    parser = argparse.ArgumentParser(prog="python -m release.record_transcripts", description=__doc__)
    parser.add_argument("--program", choices=PROGRAMS, required=True)
    parser.add_argument("--prefix", type=Path, required=True, help="the folder of `npm install --prefix`")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--scenario", choices=SCENARIOS, action="append")
    chosen = parser.parse_args()
    modules = chosen.prefix.resolve() / "node_modules"
    package = modules / PROGRAMS[chosen.program].package / "package.json"
    version = json.loads(package.read_text(encoding="utf-8"))["version"]
    code = 0
    for name in chosen.scenario or SCENARIOS:
        out = chosen.out / f"{chosen.program}-{version}" / name
        faults = record(chosen.program, modules / ".bin" / chosen.program, SCENARIOS[name], out)
        code |= bool(faults)
        print(f"{out}: {'recorded' if not faults else 'NOT RECORDED'}")
        for fault in faults:
            print(f"  {fault}")
    return code


if __name__ == "__main__":
    sys.exit(main())
