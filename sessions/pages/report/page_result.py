"""The head of a trail's page: result and reasons, effect, registration, costs, evaluations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reviews.acceptance.scorecard import scorecard_of
from reviews.audit.witness_needs import witness_needs
from reviews.evidence.gather import evaluations
from reviews.history.history import History
from reviews.history.people import last_question
from sessions.pages.comparison import comparison_of, p_of
from sessions.pages.overview import Overview, summary
from sessions.pages.result import question, reasons_of, result_in_words, result_of, why_it_ended
from sessions.run.money import ledger
from specs.system.errors import PeergateError
from specs.trail.session_bodies import CloseEntry, OpenEntry, SpendEntry

WORDS = {
    "approve": "Accepted",
    "null": "Null result",
    "overridden": "Not accepted: a person lifted a gate or check",
    "reject": "Rejected",
    "stop": "Stopped by a person",
    "budget": "Stopped: the budget is used up",
    "cancelled": "Cancelled",
    "retracted": "Taken back",
}
OPEN = {"waiting": "Waiting for a person", "paused": "Not finished"}
UNREADABLE = (PeergateError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""Errors of reading unverified entries and values."""


def page_result(history: History) -> dict[str, Any] | None:
    """Return the head of the page.

    None if the trail is not a session's, or lacks something: verifying is not its task.
    """
    if history.find(OpenEntry) is None:
        return None
    try:
        return _result(history)
    except UNREADABLE:
        return None


def page_scorecard(history: History) -> dict[str, Any] | None:
    """Return the scorecard of a closed session; None of another one, or where trail or store lack something."""
    if history.newest(CloseEntry) is None:
        return None
    try:
        return scorecard_of(history).as_json()
    except UNREADABLE:
        return None


def _result(history: History) -> dict[str, Any]:
    resolved = history.resolved
    at = summary(history.session, Path(), history, len(history))
    compared = comparison_of(history)
    balance = ledger.balance_of(history, resolved.spec.budget)
    analysis = resolved.spec.analysis
    why = list(at.reasons) if at.decision is None else why_it_ended(history, at.decision)
    if at.decision == "retracted":
        why = reasons_of(last_question(history))
    parties: dict[str, float] = {}
    for spend in (entry.body for entry in history.of(SpendEntry)):
        if spend.what == "settle":
            parties[spend.party] = parties.get(spend.party, 0.0) + spend.usd
    return {
        "state": at.decision if at.decision in WORDS else at.state if at.state in OPEN else "paused",
        "word": WORDS.get(at.decision or "") or OPEN.get(at.state, "Not finished"),
        "sentence": _sentence(history, at, compared),
        "why": why,
        "objective": resolved.spec.objective,
        "witnesses": witness_needs(history),
        "effect": _effect(compared) if compared else None,
        "arms": compared.get("arms", []) if compared else [],
        "principles": compared.get("principles", []) if compared else [],
        "curve": compared.get("curve") if compared else None,
        "registered": {
            "metric": analysis.primary_metric.replace("_", " "),
            "criterion": f"p < {analysis.alpha:g} and gain >= {analysis.minimum_effect:g}",
            "n": analysis.n,
            "seeds": ", ".join(map(str, analysis.seeds)),
            "arms": f"{analysis.baseline} against {analysis.treatment}",
            "exploratory": history.is_exploratory,
        },
        "costs": {
            "spent": f"{balance.spent_usd:.4f}",
            "most": f"{resolved.spec.budget.max_cost_usd:g}",
            "left": f"{balance.left_usd:.4f}",
            "reserved": f"{balance.reserved_usd:.4f}" if balance.reserved_usd else "",
            "minutes": f"{balance.hours * 60:.0f}",
            "parties": [{"party": party, "usd": f"{usd:.4f}"} for party, usd in sorted(parties.items())],
        },
        "evaluations": evaluations(history),
    }


def _sentence(history: History, at: Overview, compared: dict[str, Any] | None) -> str:
    if at.decision is not None:
        message = "stopped" if at.decision == "retracted" else at.decision
        return result_in_words(history, message, compared)
    request = question(history)
    if request is not None:
        return result_of(request)
    if at.state == "waiting":
        return "a person is asked for a verdict"
    return f"open, at stage {at.stage}, attempt {at.attempt}" if at.stage else "open, before its first stage"


def _effect(compared: dict[str, Any]) -> dict[str, Any]:
    """Return the effect in words, and its place and interval on a scale from -1 to 1, in per cent."""
    metrics, gain = compared["metrics"], compared["metrics"]["accuracy_gain"]
    low, high = gain["interval"]
    marks = (low, high, gain["value"], float(compared["registered"]["minimum_effect"]))
    low_end, high_end, point, least = (round(50 + 50 * max(-1.0, min(1.0, mark)), 2) for mark in marks)
    return {
        "gain": f"{gain['value']:+.3f}",
        "interval": f"{low:+.3f} to {high:+.3f}",
        "n": gain["n"],
        "baseline": f"{compared['baseline_accuracy']:.3f}",
        "treatment": f"{compared['treatment_accuracy']:.3f}",
        "gained": f"{metrics['gained']['value']:.0f}",
        "lost": f"{metrics['lost']['value']:.0f}",
        "p": f"{p_of(compared)['value']:.2g}",
        "left": low_end,
        "width": round(high_end - low_end, 2),
        "point": point,
        "least": least,
    }
