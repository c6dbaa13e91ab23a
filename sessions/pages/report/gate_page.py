"""What a gate saw and said: checks, criteria, findings with their places, votes, and changes since the last try."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from reviews.checks.remedies import remedy_of_result
from reviews.evidence.gather import find
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from sessions.pages.report.next_steps import has_training
from sessions.pages.report.report import gate_of
from sessions.pages.result import checks_of
from specs.system.errors import PeergateError, UserError
from specs.trail.verdict import CheckResult, Status, Verdict

ORDER: tuple[Status, ...] = ("FAIL", "ERROR", "BLOCKED", "WARN", "PASS", "NOT_APPLICABLE")
"""What keeps a gate closed comes first."""


def gate_page(entries: Sequence[RecordedEntry], store: Store, stage: str, attempt: int) -> dict[str, Any]:
    """Return everything on record of one gate.

    Raises:
        UserError: this gate has not decided.
        EvidenceMissing: what it saw is not in the store.
        AuditDamage: it has other bytes than its name.
    """
    gate = gate_of(entries, store, stage, attempt)
    decided = find(entries, f"decision/{stage}.{attempt}")
    if gate is None or decided is None:
        raise UserError(f"the gate of {stage}.{attempt} has not decided")
    checks = checks_of(entries, store, stage, attempt)
    judged = find(entries, f"verdict/{stage}.{attempt}")
    verdict, trained = verdict_of(store, gate["verdict"]), has_training(entries, store, stage)
    return gate | {
        "stage": stage,
        "attempt": attempt,
        "entry": decided.seq,
        "conditions": decided.raw.get("conditions", []),
        "claims": [
            claim | {"attempt": _find_measured_attempt(entries, decided, claim["claim"])} for claim in gate["claims"]
        ],
        "count": len(checks),
        "by_status": [
            (status, [_check(check, trained) for check in checks if check.status == status]) for status in ORDER
        ],
        "reviewer": judged.raw.get("reviewer", "") if judged else "",
        "error": judged.raw.get("error", "") if judged else "not on record",
        "judged": judged.seq if judged else None,
        "sent": judged.raw.get("request") if judged else None,
        "answered": judged.raw.get("response") if judged else None,
        "verdict_value": verdict,
        "votes": [
            {"vote": vote, "verdict": verdict_of(store, vote.verdict)} for vote in (verdict.votes if verdict else ())
        ],
        "before": _since(entries, store, stage, attempt),
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


def _since(entries: Sequence[RecordedEntry], store: Store, stage: str, attempt: int) -> dict[str, Any] | None:
    """Return what differs from the attempt before: parameters, checks and metrics; None for a first attempt."""
    earlier = max((number for number in _attempts(entries, stage) if number < attempt), default=None)
    if earlier is None:
        return None
    then, now = (
        {check_result.id: check_result for check_result in checks_of(entries, store, stage, each)}
        for each in (earlier, attempt)
    )
    checks = [
        (id, then[id].status if id in then else "", now[id].status if id in now else "")
        for id in sorted(then.keys() | now.keys())
        if (then.get(id) and then[id].status) != (now.get(id) and now[id].status)
    ]
    before, after = (metrics_of_attempt(entries, store, stage, each) for each in (earlier, attempt))
    metrics = [
        (id, before[id]["value"] if id in before else None, after[id]["value"] if id in after else None)
        for id in sorted(before.keys() | after.keys())
        if before.get(id, {}).get("value") != after.get(id, {}).get("value")
    ]
    plan = find(entries, f"plan/{stage}.{attempt}")
    return {
        "attempt": earlier,
        "changes": plan.raw["changes"] if plan else {},
        "checks": checks,
        "metrics": metrics,
    }


def _find_measured_attempt(
    entries: Sequence[RecordedEntry], decided: RecordedEntry, claim: dict[str, Any]
) -> int | None:
    """Return the attempt whose metrics a claim was compared with; None if its stage had none."""
    before = (entry for entry in entries[: decided.seq] if entry.kind == "metrics" and entry.raw["metrics"])
    results = [value.raw["attempt"] for value in before if value.raw["stage"] == claim["stage"]]
    return results[-1] if results else None


def _attempts(entries: Sequence[RecordedEntry], stage: str) -> list[int]:
    return [
        entry.raw["attempt"]
        for entry in entries
        if entry.kind == "decision" and (entry.raw["stage"] or "design") == stage
    ]


def metrics_of_attempt(entries: Sequence[RecordedEntry], store: Store, stage: str, attempt: int) -> dict[str, Any]:
    """Return the metrics of an attempt by id; empty without any."""
    measured = find(entries, f"metrics/{stage}.{attempt}")
    digest = measured.raw["metrics"] if measured else None
    results: dict[str, Any] = store.get_value(digest)["metrics"] if digest else {}
    return results
