"""Refutation: a blocking finding is put to a fresh call with nothing but its evidence; what falls is advice."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from reviews.gate.packet import quoted_place
from reviews.gate.reviewer import Earlier, ModelOutcome, ReviewExchange
from reviews.reviewers.vendors.effort_tiers import MOST_REFUTED
from reviews.reviewers.vendors.model_exchange import AnswerPart, read_part
from specs.system.digests import canonical_bytes
from specs.system.text import enclose, plain
from specs.system.vendors.conversation import AnswerForm
from specs.trail.verdict import Finding, Packet, Verdict

PROMPT = Path(__file__).with_name("refutation.md")
PLACE_CHARACTERS = 4000
Ask = Callable[[str, str, float], "ModelOutcome[RefutationAnswer]"]
"""Asks a model: instructions, text, and the most USD; raises nothing."""


class RefutationAnswer(AnswerPart):
    """What a fresh call says of one finding."""

    reasoning: str
    stands: bool


def refutation_form() -> AnswerForm:
    """Return the form of an answer."""
    return AnswerForm("refutation", RefutationAnswer.model_json_schema())


def read_refutation(text: str, who: str) -> RefutationAnswer:
    """Read an answer; raises ReviewerUnavailable if it does not fit the form."""
    return read_part(text, RefutationAnswer, who)


def describe_finding(finding: Finding, packet: Packet) -> str:
    """Return what a fresh call is sent: the statement, and what stands at each place that it names."""
    places = [
        {
            "place": span.pointer or (f"log lines {span.lines}" if span.lines else "an answer of a tool"),
            "quote": span.quote,
            "value": plain(json.dumps(quoted_place(span, packet), ensure_ascii=False), PLACE_CHARACTERS),
        }
        for span in finding.evidence
    ]
    value = {"statement": finding.statement, "evidence": places}
    return enclose("finding", canonical_bytes(value).decode()) + "Do the places show the statement?"


def refute_findings(
    verdict: Verdict, packet: Packet, exchange: ReviewExchange, usd: float, ask: Ask
) -> ModelOutcome[Verdict]:
    """Put the first blocking findings to a fresh call each, as far as ``usd`` reaches; return the verdict after that.

    A finding that falls becomes ``major``, with the reason. A finding that no call could judge stands. If all of them
    fall, the verdict approves: the reviewer withheld its approval for them.
    """
    findings: list[Finding] = []
    calls = 0
    for finding in verdict.findings:
        remaining = usd - exchange.usd
        if finding.severity != "blocking" or calls == MOST_REFUTED or remaining <= 0 < usd:
            findings.append(finding)
            continue
        calls += 1
        outcome = ask(PROMPT.read_text(encoding="utf-8"), describe_finding(finding, packet), remaining)
        exchange = _with(exchange, outcome.exchange)
        if outcome.value is None or outcome.value.stands:
            findings.append(finding)
            continue
        why = f"did not survive a second look at its evidence: {outcome.value.reasoning}"
        findings.append(finding.model_copy(update={"severity": "major", "refuted": why}))
    fell = any(finding.refuted for finding in findings)
    approves = verdict.approve or (fell and all(finding.severity != "blocking" for finding in findings))
    remainder = verdict.model_copy(update={"findings": tuple(findings), "approve": approves})
    return ModelOutcome(exchange, remainder)


def _with(exchange: ReviewExchange, other: ReviewExchange) -> ReviewExchange:
    """Return an exchange with the requests and the price of another one added."""
    usage = dict(exchange.usage or {})
    for name, count in (other.usage or {}).items():
        usage[name] = usage.get(name, 0) + count
    last = Earlier(other.request, other.response, "") if other.response is not None else None
    return replace(
        exchange,
        statuses=exchange.statuses + other.statuses,
        usage=usage or None,
        usd=round(exchange.usd + other.usd, 6),
        usd_is_measured=exchange.usd_is_measured and other.usd_is_measured,
        seconds=round(exchange.seconds + other.seconds, 3),
        earlier=(*exchange.earlier, *other.earlier, *((last,) if last else ())),
    )
