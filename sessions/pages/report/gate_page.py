"""What a gate saw and said: checks, criteria, findings with their places, votes, and changes since the last try."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from reviews.checks.remedies import remedy_of_result
from reviews.history.attempt import Attempt
from reviews.history.history import History
from reviews.trail.chain.store import Store
from sessions.pages.report.next_steps import has_training
from sessions.pages.report.report import gate_of
from specs.system.errors import PeergateError, UserError
from specs.trail.entry import DESIGN
from specs.trail.gate_bodies import DecisionEntry, MetricsEntry
from specs.trail.verdict import CheckResult, Status, Verdict

ORDER: tuple[Status, ...] = ("FAIL", "ERROR", "BLOCKED", "WARN", "PASS", "NOT_APPLICABLE")
"""What keeps a gate closed comes first."""


def gate_page(history: History, stage: str, attempt: int) -> dict[str, Any]:
    """Return everything on record of one gate.

    Raises:
        UserError: this gate has not decided.
        EvidenceMissing: what it saw is not in the store.
        AuditDamage: it has other bytes than its name.
    """
    judged_attempt = history.attempt(stage, attempt)
    gate, decided, judged = gate_of(judged_attempt), judged_attempt.decision, judged_attempt.verdict
    if gate is None or decided is None:
        raise UserError(f"the gate of {stage}.{attempt} has not decided")
    checks = judged_attempt.check_results
    verdict, trained = verdict_of(history.store, gate["verdict"]), has_training(history, stage)
    return gate | {
        "stage": stage,
        "attempt": attempt,
        "entry": decided.seq,
        "conditions": decided.body.conditions,
        "claims": [
            claim | {"attempt": _find_measured_attempt(history[: decided.seq], claim["claim"]["stage"])}
            for claim in gate["claims"]
        ],
        "count": len(checks),
        "by_status": [
            (status, [_check(check, trained) for check in checks if check.status == status]) for status in ORDER
        ],
        "reviewer": judged.body.reviewer if judged else "",
        "error": judged.body.error if judged else "not on record",
        "judged": judged.seq if judged else None,
        "sent": judged.body.request if judged else None,
        "answered": judged.body.response if judged else None,
        "verdict_value": verdict,
        "votes": [
            {"vote": vote, "verdict": verdict_of(history.store, vote.verdict)}
            for vote in (verdict.votes if verdict else ())
        ],
        "before": _since(history, judged_attempt),
    }


def verdict_of(store: Store, digest: str | None) -> Verdict | None:
    """Return a stored verdict; None without a digest, or if it cannot be read."""
    try:
        return Verdict.model_validate(store.get_value(digest)) if digest else None
    except (PeergateError, ValidationError, ValueError):
        return None


def _check(check: CheckResult, trained: bool) -> dict[str, Any]:
    remedy = remedy_of_result(check, trained=trained) if check.status not in ("PASS", "NOT_APPLICABLE") else ""
    return {"check": check, "remedy": remedy}


def _since(history: History, attempt: Attempt) -> dict[str, Any] | None:
    """Return what differs from the attempt before: parameters, checks and metrics; None for a first attempt."""
    decided = (entry.body for entry in history.of(DecisionEntry))
    numbers = (body.attempt for body in decided if (body.stage or DESIGN) == attempt.stage)
    number = max((number for number in numbers if number < attempt.number), default=None)
    if number is None:
        return None
    earlier = history.attempt(attempt.stage, number)
    then, now = (
        {check.id: check.status for check in compared_attempt.check_results} for compared_attempt in (earlier, attempt)
    )
    before, after = (metric_values_of(compared_attempt) for compared_attempt in (earlier, attempt))
    return {
        "attempt": number,
        "changes": attempt.plan.body.changes if attempt.plan else {},
        "checks": [
            (id, then.get(id, ""), now.get(id, ""))
            for id in sorted(then.keys() | now.keys())
            if then.get(id) != now.get(id)
        ],
        "metrics": [
            (id, before.get(id), after.get(id))
            for id in sorted(before.keys() | after.keys())
            if before.get(id) != after.get(id)
        ],
    }


def _find_measured_attempt(before: History, stage: str) -> int | None:
    """Return the attempt whose metrics a claim was compared with; None if its stage had none."""
    measured = [entry.body for entry in before.of(MetricsEntry) if entry.body.metrics and entry.body.stage == stage]
    return measured[-1].attempt if measured else None


def metric_values_of(attempt: Attempt) -> dict[str, float]:
    """Return the metrics of an attempt by id; empty without any."""
    metric_set = attempt.metric_set
    return {id: metric.value for id, metric in metric_set.metrics.items()} if metric_set else {}
