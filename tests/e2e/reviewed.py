"""A short session on real weights whose reviewer is played over the wire by the loopback server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from testing.fixtures.command_sessions import CANARY, called, environment, write_small_spec
from testing.fixtures.loopback_api import OPENAI, Api, Step, answered

APPROVE: dict[str, Any] = {
    "analysis": "The rows were read next to the figures.",
    "findings": [],
    "conditions": [],
    "risks": [],
    "not_judged": [],
    "reasoning": "The rows fit the figures.",
    "recommendation": "go on",
    "approve": True,
}


def at(pointer: str, quote: str = "") -> dict[str, Any]:
    """Return a place in the packet."""
    return {"pointer": pointer, "first_line": None, "last_line": None, "quote": quote}


def finding(pointer: str, statement: str, change: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a blocking finding."""
    return {
        "severity": "blocking",
        "statement": statement,
        "evidence": [at(pointer)],
        "ruled_out": "",
        "required_change": change,
    }


def says(**changes: Any) -> Step:
    """Return the response of a reviewer who approves, but for these changes."""
    return answered(OPENAI, json.dumps(APPROVE | changes))


def endpoint(api: Api, model: str = "tiny") -> str:
    """Return the spec's mapping of a reviewer behind the loopback server, whose tokens cost nothing."""
    price = "usd_per_million_tokens: {input: 0, output: 0}"
    return f'{{vendor: openai, model: {model}, base_url: "{api.address}", outage_s: 4, {price}}}'


def write_reviewed_spec(folder: Path, reviewer: str, *changes: tuple[str, str]) -> Path:
    """Write the small spec with this ``reviewer`` or ``panel``, half of its samples, and no gate that revises."""
    smaller = (
        ("budget: {max_cost_usd", f"{reviewer}\nbudget: {{max_cost_usd"),
        ("{samples_per_prompt: 2, ", "{samples_per_prompt: 1, "),
        ("at_least: 33}   # 16 prompts: out of reach with 2 samples each, so the gate revises", "at_least: 4}"),
        ("samples_per_prompt: {min: 2", "samples_per_prompt: {min: 1"),
    )
    return write_small_spec(folder, *smaller, *changes)


def peergate(*arguments: str | Path, key: str = CANARY) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, with a key for the reviewer's endpoint in the environment."""
    command = [sys.executable, "-m", "sessions.commands.cli", *map(str, arguments)]
    own = environment() | {"PEERGATE_REVIEWER_KEY": key}
    return subprocess.run(
        command, capture_output=True, text=True, env=own, check=False, timeout=3000, stdin=subprocess.DEVNULL
    )


def run_command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in this process, with a key for the reviewer's endpoint in the environment."""
    return called(*arguments, env=environment() | {"PEERGATE_REVIEWER_KEY": CANARY})


def in_background(*arguments: str | Path) -> subprocess.Popen[str]:
    """Start a command and return at once."""
    command = [sys.executable, "-m", "sessions.commands.cli", *map(str, arguments)]
    own = environment() | {"PEERGATE_REVIEWER_KEY": CANARY}
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdout=quiet, stderr=quiet, text=True, env=own, start_new_session=True)


def complaints(api: Api) -> list[str]:
    """Return what the server has against the client; one packet is one review, a repeat sends the same."""
    packets: list[str] = []
    for request in api.requests:
        if request.packet_text() not in packets:
            packets.append(request.packet_text())
        request.review = packets.index(request.packet_text()) + 1
    return api.complaints()
