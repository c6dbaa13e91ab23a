"""What a model may answer about a packet, and how that becomes a verdict.

Code fills in what a model cannot know: ids, the reviewer's name and the digest in every span.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from reviews.gate.reviewer import LookupRecord
from reviews.reviewers.vendors.model_exchange import AnswerPart, read_part
from specs.stages.base.stage import Criterion
from specs.system.errors import ReviewerUnavailable
from specs.system.vendors.conversation import AnswerForm
from specs.trail.verdict import Condition, Finding, RequiredChange, Severity, Span, Verdict

PROMPT = Path(__file__).with_name("reviewer.md")
_LOOKED = re.compile(r"/answers/([1-9][0-9]{0,5})")
"""How a span points at the answer to a call; a packet has no such place."""


class AnswerSpan(AnswerPart):
    """A place in the packet."""

    pointer: str | None
    first_line: int | None
    last_line: int | None
    quote: str


class AnswerChange(AnswerPart):
    """What would fix a finding."""

    text: str
    parameter: str | None
    value: float | int | None
    by: Literal["builder", "person"]


class AnswerFinding(AnswerPart):
    """A finding without its id."""

    severity: Severity
    statement: str
    evidence: list[AnswerSpan]
    ruled_out: str
    required_change: AnswerChange | None


class AnswerCondition(AnswerPart):
    """What must hold before a later stage starts; without a metric only a person can settle it."""

    text: str
    stage: str
    metric: str | None
    at_least: float | None
    at_most: float | None


class VerdictAnswer(AnswerPart):
    """What a model returns, in the order in which it is written: what was read, findings, then ``approve``."""

    analysis: str
    findings: list[AnswerFinding]
    conditions: list[AnswerCondition]
    risks: list[str]
    not_judged: list[str]
    reasoning: str
    recommendation: str
    approve: bool


def answer_form() -> AnswerForm:
    """Return the form of an answer."""
    return AnswerForm("verdict", VerdictAnswer.model_json_schema())


def instructions() -> str:
    """Return the reviewer's prompt."""
    return PROMPT.read_text(encoding="utf-8")


def to_verdict(text: str, reviewer: str, packet_digest: str, looked: Sequence[LookupRecord] = ()) -> Verdict:
    """Make an answer a verdict; raises ReviewerUnavailable if it is not whole, or leaves a statement empty.

    ``looked``: what the reviewer looked up, which it cites by number.
    """
    answer = read_part(text, VerdictAnswer, reviewer)
    texts = (*(finding.statement for finding in answer.findings), *(condition.text for condition in answer.conditions))
    if not all(text.strip() for text in (answer.reasoning, answer.recommendation, *texts)):
        what = "the answer leaves reasoning, recommendation or a statement empty"
        raise ReviewerUnavailable(what, where=reviewer, cause="out_of_schema")
    verdict = Verdict(
        reviewer=reviewer,
        findings=tuple(
            _finding(number, finding, packet_digest, looked) for number, finding in enumerate(answer.findings, 1)
        ),
        recommendation=answer.recommendation,
        reasoning=answer.reasoning,
        risks=tuple(answer.risks),
        conditions=tuple(_condition(condition, reviewer) for condition in answer.conditions),
        approve=answer.approve,
        not_judged=tuple(answer.not_judged),
        analysis=answer.analysis,
    )
    try:
        verdict.canonical()
    except ValueError as error:
        # Lone surrogates and integers of 2**53 and beyond pass a schema and cannot be stored.
        what = "the answer cannot be stored"
        raise ReviewerUnavailable(what, where=reviewer, cause="out_of_schema", detail=str(error)) from error
    return verdict


def _finding(number: int, answer: AnswerFinding, packet_digest: str, looked: Sequence[LookupRecord]) -> Finding:
    change = answer.required_change
    return Finding(
        id=f"finding-{number}",
        severity=answer.severity,
        statement=answer.statement,
        evidence=tuple(_span(span, packet_digest, looked) for span in answer.evidence),
        required_change=change and _change(change),
        ruled_out=answer.ruled_out,
    )


def _change(answer: AnswerChange) -> RequiredChange:
    by_builder = answer.by == "builder" and not answer.parameter
    text, parameter = answer.text, answer.parameter or None
    return RequiredChange(text=text, parameter=parameter, value=answer.value, by_builder=by_builder)


def _condition(answer: AnswerCondition, reviewer: str) -> Condition:
    bounds = {name: value for name in ("at_least", "at_most") if (value := getattr(answer, name)) is not None}
    if not answer.metric:
        # A bound without a metric says nothing; the text is kept.
        return Condition(text=answer.text, stage=answer.stage)
    if len(bounds) != 1:
        what, detail = "a condition of the answer needs exactly one of at_least and at_most", f"on '{answer.metric}'"
        raise ReviewerUnavailable(what, where=reviewer, cause="out_of_schema", detail=detail)
    return Condition(text=answer.text, stage=answer.stage, criterion=Criterion(metric=answer.metric, **bounds))


def _span(answer: AnswerSpan, packet_digest: str, looked: Sequence[LookupRecord]) -> Span:
    cited = _LOOKED.fullmatch(answer.pointer or "")
    if cited is not None and 1 <= int(cited[1]) <= len(looked):
        return Span(artifact=looked[int(cited[1]) - 1].answer, quote=answer.quote)
    lines = None
    if answer.pointer is None and answer.first_line is not None and answer.last_line is not None:
        lines = (answer.first_line, answer.last_line)
    return Span(artifact=packet_digest, pointer=answer.pointer, lines=lines, quote=answer.quote)
