"""A person as the reviewer of a gate: asked at the terminal, or answering by a file while the session waits.

The answer has the form a model's answer has and goes the same way: findings with places in the packet, and `decide()`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reviews.reviewer import Unanswered
from reviews.store import write_durably
from reviews.text import plain
from reviews.vendors.answer import to_verdict
from specs.errors import ReviewerUnavailable, UserError
from specs.verdicts import CLOSED, Packet, Verdict

SHOWN_ROWS = 5
LINE_CHARACTERS = 300


class Person:
    """A :class:`reviews.reviewer.Reviewer` who may take their time."""

    name = "person"

    def __init__(self, inbox: Path) -> None:
        self._inbox = inbox

    def review(self, packet: Packet, packet_digest: str) -> Verdict:
        """Return the verdict that was handed in, or ask at the terminal.

        Raises:
            ReviewerUnavailable: what was handed in is no whole answer.
            Unanswered: nothing was handed in, and there is no terminal to ask at.
        """
        handed_in = verdict_path(self._inbox, packet_digest)
        if handed_in.exists():
            return to_verdict(handed_in.read_text(encoding="utf-8"), self.name, packet_digest)
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise Unanswered(f"gate {packet.stage} waits for a person's verdict: peergate review show, review give")
        text = json.dumps(ask_at_the_terminal(packet))
        hand_in(self._inbox, packet_digest, text)
        return to_verdict(text, self.name, packet_digest)


def verdict_path(inbox: Path, packet_digest: str) -> Path:
    """Return where the verdict on a packet lies."""
    return inbox / f"{packet_digest.removeprefix('sha256:')}.json"


def hand_in(inbox: Path, packet_digest: str, text: str) -> Path:
    """Keep a verdict for the session, once it is known to be a whole answer.

    Raises:
        UserError: it is none, or another one was handed in before.
    """
    path = verdict_path(inbox, packet_digest)
    if path.exists():
        raise UserError("a verdict on this packet was handed in before", where=str(path), hint="resume the session")
    try:
        to_verdict(text, Person.name, packet_digest)
    except ReviewerUnavailable as error:
        raise UserError(error.message, where="verdict", hint="`peergate review show` prints the form") from error
    inbox.mkdir(exist_ok=True)
    write_durably(path, text.encode())
    return path


def summary(packet: Packet) -> str:
    """Return what a person should look at first, as plain lines."""
    lines = [f"gate {packet.stage} ({packet.kind})", f"objective: {packet.registered.get('objective', '')}"]
    lines += [f"metric {name} = {one['value']:.6g} (n = {one['n']})" for name, one in packet.metrics.items()]
    for result in packet.criteria:
        value = "not measured" if result.value is None else f"{result.value:.6g}"
        lines.append(f"criterion {result.criterion}: {value}, {'met' if result.met else 'NOT MET'}")
    for one in packet.conditions:
        lines.append(f"condition {one.id}{' (due)' if one.due else ''}: {one.condition.text}")
    for index, check in enumerate(packet.checks):
        if check.status in CLOSED or check.status == "WARN":
            lines.append(f"/checks/{index} {check.status} {check.id}: {check.detail}")
    passed = sum(check.status == "PASS" for check in packet.checks)
    lines.append(f"{passed} of {len(packet.checks)} checks pass")
    for name, rows in (("flagged_rows", packet.flagged_rows), ("sample_rows", packet.sample_rows)):
        for index, row in enumerate(rows[:SHOWN_ROWS]):
            lines.append(f"/{name}/{index} {json.dumps(row, ensure_ascii=False)}")
    for index, found in enumerate(packet.previous_findings):
        lines.append(f"/previous_findings/{index} {found['severity']}: {found['statement']}")
    lines.append("left out: " + ", ".join(f"{count} {name}" for name, count in packet.left_out.items() if count))
    return "\n".join(plain(line, LINE_CHARACTERS) for line in lines)


def ask_at_the_terminal(packet: Packet, read: Callable[[str], str] | None = None) -> dict[str, Any]:
    """Show the packet, ask for findings and approval, and return them in the form of an answer."""
    read = read or _read
    print(summary(packet), file=sys.stderr)
    findings: list[dict[str, Any]] = []
    while read("Is there something that blocks? [y/N] ").lower().startswith("y"):
        statement = _needed(read, "What is wrong: ")
        pointer = _needed(read, "Where in the packet, for example /checks/3 or /sample_rows/0: ")
        change = read("What would mend it (empty if nothing): ").strip()
        findings.append(
            {
                "severity": "blocking",
                "statement": statement,
                "evidence": [{"pointer": pointer, "first_line": None, "last_line": None, "quote": ""}],
                "ruled_out": "",
                "required_change": {"text": change, "parameter": None, "value": None} if change else None,
            }
        )
    return {
        "findings": findings,
        "conditions": [],
        "risks": [],
        "not_judged": [],
        "reasoning": _needed(read, "Why, in a sentence or two: "),
        "recommendation": _needed(read, "What should happen next: "),
        "approve": not findings and read("Do you approve? [y/N] ").lower().startswith("y"),
    }


def template(packet: Packet) -> dict[str, Any]:
    """Return an answer to fill in: it approves nothing as it stands."""
    places = [f"/checks/{index}" for index, check in enumerate(packet.checks) if check.status in CLOSED]
    return {
        "findings": [
            {
                "severity": "blocking",
                "statement": "",
                "evidence": [{"pointer": place, "first_line": None, "last_line": None, "quote": ""}],
                "ruled_out": "",
                "required_change": None,
            }
            for place in places or ["/sample_rows/0"]
        ],
        "conditions": [],
        "risks": [],
        "not_judged": [],
        "reasoning": "",
        "recommendation": "",
        "approve": False,
    }


def _needed(read: Callable[[str], str], question: str) -> str:
    while not (given := read(question).strip()):
        pass
    return given


def _read(question: str) -> str:
    print(question, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise Unanswered("the terminal was closed before the verdict was given")
    return line.strip()
