"""A person as the reviewer of a gate: asked at the terminal, or answering by a command while the session waits.

Their answer has the form of a model's, is decided in the same way, and is signed with their own key.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from reviews.gate.panel import ReviewerAnswer, disagree, member_answer, merge
from reviews.gate.reviewer import PendingVerdict
from reviews.history.history import History
from reviews.reviewers.vendors.verdict_answer import to_verdict
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from reviews.trail.trail import Trail
from specs.system.errors import ReviewerUnavailable, UserError
from specs.system.text import one_line
from specs.trail.gate_bodies import PacketEntry, VerdictEntry
from specs.trail.key_policy import PERSON
from specs.trail.verdict import CLOSED, Packet, Verdict

LISTED_ROWS = 5
LINE_CHARACTERS = 300


class Person:
    """A reviewer who may take their time."""

    name = PERSON

    def review(self, packet: Packet, packet_digest: str) -> Verdict:
        """Ask at the terminal; raises Unanswered without one: :func:`give` takes the verdict later."""
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise PendingVerdict(f"gate {packet.stage} waits for a person's verdict: peergate review show, review give")
        return to_verdict(json.dumps(ask_at_the_terminal(packet)), self.name, packet_digest)


def give(trail: Trail, store: Store, text: str) -> RecordedEntry:
    """Record a person's verdict on the waiting gate.

    Raises UserError if none waits or the text is not a whole answer.
    """
    with trail.alone():
        history = History(trail.iterate(), store)
        at, digest = waiting(history)
        try:
            verdict = to_verdict(text, PERSON, digest)
        except ReviewerUnavailable as error:
            raise UserError(error.message, where="verdict", hint="`peergate review show` prints the form") from error
        stage, _, attempt = at.rpartition(".")
        body = VerdictEntry(
            stage=stage,
            attempt=int(attempt),
            packet=digest,
            verdict=store.put_value(verdict),
            error="",
            reviewer=PERSON,
        )
        return trail.append(body, _place(history, at))


def waiting(history: History) -> tuple[str, str]:
    """Return the waiting gate, as ``STAGE.ATTEMPT``, and its packet's digest; raises UserError if none waits."""
    for packet in reversed(history.of(PacketEntry)):
        attempt = history.attempt_of(packet.body)
        if attempt.verdict is None:
            return attempt.name, packet.body.packet
    raise UserError("no gate waits for a verdict")


def _place(history: History, at: str) -> str:
    """Return the key a person's verdict is recorded under; raises UserError if the gate waits for someone else."""
    spec = history.resolved.spec
    key = VerdictEntry.key_of(at)
    if spec.panel is None:
        turn = spec.reviewer
    else:
        answers: list[ReviewerAnswer] = []
        while (result := history.find(VerdictEntry, f"{at}/{len(answers) + 1}")) is not None:
            answers.append(member_answer(history.store, result))
        members, last = spec.panel.members, spec.panel.tie_breaker
        key = f"{key}/{len(answers) + 1}"
        if len(answers) < len(members):
            turn = members[len(answers)]
        else:
            turn = last if len(answers) == len(members) and disagree(merge(answers, spec.panel.quorum)) else None
    if turn is None or turn.vendor != PERSON:
        who = turn.vendor if turn else "no one"
        hint = "`peergate resume` continues; a person is asked when it is their turn"
        raise UserError(f"the gate of {at} waits for {who}, not for a person", hint=hint)
    return key


def summary(packet: Packet) -> list[str]:
    """Return what a person should look at first, one line each: no text in a packet can begin a line."""
    lines = [f"gate {packet.stage} ({packet.kind})", f"objective: {packet.registered.get('objective', '')}"]
    lines += [f"metric {name} = {metric['value']:.6g} (n = {metric['n']})" for name, metric in packet.metrics.items()]
    for result in packet.criteria:
        lines.append(
            f"criterion {result.criterion}: {result.describe_measurement()}, {'met' if result.met else 'NOT MET'}"
        )
    for condition in packet.conditions:
        lines.append(f"condition {condition.id}{' (due)' if condition.is_due else ''}: {condition.condition.text}")
    for index, check in enumerate(packet.checks):
        if check.status in CLOSED or check.status == "WARN":
            lines.append(f"/checks/{index} {check.status} {check.id}: {check.detail}")
    passed = sum(check.status == "PASS" for check in packet.checks)
    lines.append(f"{passed} of {len(packet.checks)} checks pass")
    for name, rows in (("flagged_rows", packet.flagged_rows), ("sample_rows", packet.sample_rows)):
        for index, row in enumerate(rows[:LISTED_ROWS]):
            lines.append(f"/{name}/{index} {json.dumps(row, ensure_ascii=False)}")
    for index, previous_finding in enumerate(packet.previous_findings):
        lines.append(f"/previous_findings/{index} {previous_finding['severity']}: {previous_finding['statement']}")
    lines.append("left out: " + ", ".join(f"{count} {name}" for name, count in packet.left_out.items() if count))
    return [one_line(line, LINE_CHARACTERS) for line in lines]


def ask_at_the_terminal(packet: Packet, read: Callable[[str], str] | None = None) -> dict[str, Any]:
    """Show the packet, ask for findings and approval, and return them in the form of an answer."""
    read = read or _read
    print("\n".join(summary(packet)), file=sys.stderr)
    findings: list[dict[str, Any]] = []
    while read("Is there something that blocks? [y/N] ").lower().startswith("y"):
        statement = _needed(read, "What is wrong: ")
        pointer = _needed(read, "Where in the packet, for example /checks/3 or /sample_rows/0: ")
        change = read("What would fix it (empty if nothing): ").strip()
        findings.append(_finding(pointer, statement, change))
    return _answer(
        findings,
        reasoning=_needed(read, "Why, in a sentence or two: "),
        recommendation=_needed(read, "What should happen next: "),
        approve=not findings and read("Do you approve? [y/N] ").lower().startswith("y"),
    )


def template(packet: Packet) -> dict[str, Any]:
    """Return an answer to fill in, which approves nothing."""
    places = [f"/checks/{index}" for index, check in enumerate(packet.checks) if check.status in CLOSED]
    return _answer([_finding(place) for place in places or ["/sample_rows/0"]])


def verdict_text(findings: Sequence[tuple[str, str]], reasoning: str, recommendation: str, approve: bool) -> str:
    """Return an answer as :func:`give` reads it; of each finding the place in the packet and what is wrong there."""
    return json.dumps(_answer([_finding(*finding) for finding in findings], reasoning, recommendation, approve))


def _finding(pointer: str, statement: str = "", change: str = "") -> dict[str, Any]:
    return {
        "severity": "blocking",
        "statement": statement,
        "evidence": [{"pointer": pointer, "first_line": None, "last_line": None, "quote": ""}],
        "ruled_out": "",
        "required_change": {"text": change, "parameter": None, "value": None, "by": "person"} if change else None,
    }


def _answer(
    findings: list[dict[str, Any]], reasoning: str = "", recommendation: str = "", approve: bool = False
) -> dict[str, Any]:
    empty: dict[str, list[str]] = {"conditions": [], "risks": [], "not_judged": []}
    # A person has read before they answer: what a model is asked to write down first stays empty.
    statements = {"analysis": "", "reasoning": reasoning, "recommendation": recommendation, "approve": approve}
    return {"findings": findings, **empty, **statements}


def _needed(read: Callable[[str], str], question: str) -> str:
    while not (text := read(question).strip()):
        pass
    return text


def _read(question: str) -> str:
    print(question, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        raise PendingVerdict("the terminal was closed before the verdict was given")
    return line.strip()
