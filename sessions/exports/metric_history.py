"""One metric over the attempts of a session, for anyone who asks over MCP: its builder, or someone who only reads."""

from __future__ import annotations

from typing import Any, NamedTuple

from reviews.history.history import History
from sessions.run.money.accounts import Accounts
from specs.session.design import Budget
from specs.trail.gate_bodies import MetricsEntry


class MetricValues(NamedTuple):
    """The attempts that have a metric, and the names of all metrics that were measured."""

    attempts: list[dict[str, Any]]
    known: set[str]


def history_of(history: History, budget: Budget, metric: str, stage: str | None = None) -> MetricValues:
    """Return a metric of every measured attempt, with what the attempt changed, how it ended and what it cost."""
    spent = {line.key: line.usd for line in Accounts(history, budget).select("job")}
    parts: list[dict[str, Any]] = []
    known: set[str] = set()
    for body in (entry.body for entry in history.of(MetricsEntry)):
        attempt = history.attempt(body.stage, body.attempt)
        if attempt.metric_set is None or stage not in (None, body.stage):
            continue
        known |= attempt.metric_set.metrics.keys()
        if (measured := attempt.metric_set.metrics.get(metric)) is None:
            continue
        parts.append(
            {
                "attempt": attempt.name,
                "value": measured.value,
                "interval_95": measured.interval,
                "n": measured.n,
                "changes": attempt.plan.body.changes if attempt.plan else {},
                "outcome": attempt.decision.body.outcome if attempt.decision else "open",
                "job_usd": spent.get(attempt.job, 0.0),
            }
        )
    return MetricValues(parts, known)
