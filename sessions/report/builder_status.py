"""What a session's builder does at the moment, read from the trail alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reviews.trail.envelope import Recorded
from sessions.money.accounts import Accounts
from specs.session.session_spec import Budget


class Doing(NamedTuple):
    """The newest phase of a builder: what it called last, and what it has taken."""

    stage: str
    attempt: int
    phase: str
    turns: int
    calls: int
    last_call: str
    """The name of the tool, as the builder wrote it."""
    outcome: str
    """``done``, ``refused``, or ``under way``."""
    taken_usd: float
    most_usd: float


def doing(entries: Sequence[Recorded], budget: Budget) -> Doing | None:
    """Return what the builder did last; None before its first call or turn."""
    newest = next((one for one in reversed(entries) if one.entry.kind in ("call", "turn")), None)
    if newest is None:
        return None
    at = {name: newest.body[name] for name in ("stage", "attempt", "phase")}
    mine = [one for one in entries if one.entry.kind in ("call", "turn") and at.items() <= one.body.items()]
    calls = [one for one in mine if one.entry.kind == "call"]
    results = {one.body["call"]: one.body["is_error"] for one in entries if one.entry.kind == "result"}
    last = calls[-1] if calls else None
    outcome = {None: "under way", True: "refused", False: "done"}[results.get(last.entry.key)] if last else ""
    accounts = Accounts(entries, budget)
    return Doing(
        **at,
        turns=len(mine) - len(calls),
        calls=len(calls),
        last_call=last.body["tool"] if last else "",
        outcome=outcome,
        taken_usd=accounts.taken("builder", "helper"),
        most_usd=budget.builder_usd,
    )
