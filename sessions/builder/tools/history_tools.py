"""Tools that look back: a metric over all attempts, and what gates decided and reviewers found."""

from __future__ import annotations

import json

from sessions.builder.redaction import sees_heldout
from sessions.builder.tools.tool_context import PhaseWork, ToolCallRefusal
from sessions.exports.metric_history import history_of
from specs.system.text import enclose
from specs.trail.builder_tools import MetricHistory, ReadFindings
from specs.trail.entry import DESIGN
from specs.trail.gate_bodies import DecisionEntry
from specs.trail.verdict import Decision, Finding

STATEMENT = 1_500
MOST_ATTEMPTS = 100


def metric_history(work: PhaseWork, arguments: MetricHistory) -> str:
    """Return the metric of every measured attempt, with what the attempt changed, how it ended and what it cost."""
    session = work.session
    budget = session.resolved.spec.budget
    history = history_of(session.history, budget, arguments.metric, arguments.stage)
    if not history.attempts:
        names = ", ".join(sorted(history.known)) or "nothing was measured yet"
        raise ToolCallRefusal(
            f"no attempt has the metric '{work.wall.clean(arguments.metric, 100)}'; available: {names}"
        )
    return "\n".join(json.dumps(attempt) for attempt in history.attempts[-MOST_ATTEMPTS:])


def read_findings(work: PhaseWork, arguments: ReadFindings) -> str:
    """Return decisions and findings of the gates so far; quotes of what sees held-out items are left out."""
    session = work.session
    parts: list[str] = []
    history = session.history
    for decided in (entry.body for entry in history.of(DecisionEntry)):
        stage, attempt = decided.stage or DESIGN, decided.attempt
        if arguments.stage not in (None, stage) or arguments.attempt not in (None, attempt):
            continue
        decision = Decision.model_validate(session.store.get_value(decided.decision))
        verdict = history.attempt(stage, attempt).verdict_value
        lines = [f"{stage}.{attempt}: {decision.outcome}", *(f"- {reason}" for reason in decision.reasons)]
        lines += [f"- required: {change.text}" for change in decision.required_changes]
        if verdict is not None:
            quotes = stage == DESIGN or not sees_heldout(session.resolved.spec, session.resolved.spec.stage(stage))
            lines += [_finding(finding, quotes=quotes) for finding in verdict.findings]
            lines += [f"- recommendation: {verdict.recommendation}", *(f"- risk: {risk}" for risk in verdict.risks)]
        parts.append("\n".join(work.wall.clean(line, STATEMENT) for line in lines))
    if not parts:
        raise ToolCallRefusal("no gate has decided that yet")
    return enclose("findings", "\n\n".join(reversed(parts)))


def _finding(finding: Finding, *, quotes: bool) -> str:
    change = f" Required: {finding.required_change.text}" if finding.required_change else ""
    ruled_out = f" Ruled out: {finding.ruled_out}" if finding.ruled_out else ""
    texts = [span.quote for span in finding.evidence if span.quote] if quotes else []
    quoted = f" Points at: {'; '.join(texts)}" if texts else ""
    return f"- finding {finding.id} ({finding.severity}): {finding.statement}{change}{ruled_out}{quoted}"
