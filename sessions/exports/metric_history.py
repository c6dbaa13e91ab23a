"""One metric over the attempts of a session, for anyone who asks over MCP: its builder, or someone who only reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from reviews.evidence.gather import find
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from sessions.run.money.accounts import Accounts
from specs.session.design import Budget
from specs.stages.base.metric import MetricSet


class History(NamedTuple):
    """The attempts that have a metric, and the names of all metrics that were measured."""

    attempts: list[dict[str, Any]]
    known: set[str]


def history_of(
    entries: Sequence[RecordedEntry], store: Store, budget: Budget, metric: str, stage: str | None = None
) -> History:
    """Return a metric of every measured attempt, with what the attempt changed, how it ended and what it cost."""
    name = entries[0].session if entries else ""
    spent = {line.key: line.usd for line in Accounts(entries, budget).select("job")}
    parts: list[dict[str, Any]] = []
    known: set[str] = set()
    for entry in entries:
        body = entry.raw
        if entry.kind != "metrics" or not body["metrics"] or stage not in (None, body["stage"]):
            continue
        measured = MetricSet.model_validate(store.get_value(body["metrics"]))
        known |= measured.metrics.keys()
        if (matching_metric := measured.metrics.get(metric)) is None:
            continue
        key = f"{body['stage']}.{body['attempt']}"
        plan, decided = find(entries, f"plan/{key}"), find(entries, f"decision/{key}")
        parts.append(
            {
                "attempt": key,
                "value": matching_metric.value,
                "interval_95": matching_metric.interval,
                "n": matching_metric.n,
                "changes": plan.raw["changes"] if plan else {},
                "outcome": decided.raw["outcome"] if decided else "open",
                "job_usd": spent.get(f"{name}.{key}", 0.0),
            }
        )
    return History(parts, known)
