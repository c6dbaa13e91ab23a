"""The ledger: what is spent, reserved and left, computed from the trail and from nothing else.

Reserve before the job, settle after it. There is no counter that a resume could reset. Held-back shares keep
evaluation, review and teardown possible whatever the other stages cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reviews.trail import Recorded, Trail
from specs.errors import BudgetExceeded
from specs.session import Budget
from specs.stages import Stage

REQUESTED = "review/asked."
"""How the keys of reservations for requested reviews begin."""


class Balance(NamedTuple):
    """Money in USD, time in hours of orchestrated session (pauses do not count)."""

    spent_usd: float
    reserved_usd: float
    left_usd: float
    hours: float
    left_hours: float


def price_cap(budget: Budget, stage: Stage) -> float:
    """Return the most one attempt can cost: its time limit at the machine's rate."""
    return round(stage.max_minutes / 60 * budget.machine_usd_per_hour, 6)


def balance(trail: Trail, budget: Budget) -> Balance:
    """Add up the trail of a running session."""
    return balance_of(list(trail.iterate()), budget)


def balance_of(entries: Sequence[Recorded], budget: Budget) -> Balance:
    """Add up the entries of a trail."""
    reserved: dict[str, float] = {}
    spent = 0.0
    for recorded in entries:
        if recorded.entry.kind != "spend":
            continue
        body = recorded.body
        if body["what"] == "reserve":
            reserved[body["job"]] = body["usd"]
        else:
            reserved.pop(body["job"], None)
            spent += body["usd"]
    hours = _active_seconds(entries) / 3600
    held = sum(reserved.values())
    return Balance(spent, held, budget.max_cost_usd - spent - held, hours, budget.max_hours - hours)


def reserve(trail: Trail, budget: Budget, stage: Stage, key: str) -> None:
    """Set the price cap of a job aside before it starts; repeating it for the same job changes nothing.

    Raises:
        BudgetExceeded: the cap does not fit in what is left for this kind of stage, or no hours are left.
    """
    if trail.find(f"reserve/{key}"):
        return
    now = balance(trail, budget)
    shares = budget.held_back
    # Evaluation may use its own share; everybody else leaves all three alone.
    held = shares.review + shares.teardown + (0.0 if stage.kind in ("evaluate", "package") else shares.evaluation)
    # What reviews have taken came out of their share, so that much less of it is still held back.
    taken = min(_reviews_usd(list(trail.iterate())), shares.review * budget.max_cost_usd)
    available = now.left_usd - held * budget.max_cost_usd + taken
    cap = price_cap(budget, stage)
    if cap > available + 1e-9:
        raise BudgetExceeded(
            f"the attempt may cost {cap:.4f} USD, "
            f"{max(available, 0):.4f} USD of {budget.max_cost_usd:g} are left for it",
            where=key,
            hint="raise budget.max_cost_usd or lower the stage's max_minutes in a new session",
        )
    if now.left_hours <= 0:
        raise BudgetExceeded(
            f"the session has run {now.hours:.2f} h of {budget.max_hours:g} h",
            where=key,
            hint="raise budget.max_hours in a new session",
        )
    trail.append(
        "spend", f"reserve/{key}", {"what": "reserve", "job": key, "party": "job", "stage": stage.name, "usd": cap}
    )


def settle(trail: Trail, budget: Budget, stage: Stage, key: str, seconds: float) -> None:
    """Replace a reservation by what the job's wall time cost."""
    usd = round(max(seconds, 0.0) / 3600 * budget.machine_usd_per_hour, 6)
    body = {"what": "settle", "job": key, "party": "job", "stage": stage.name, "usd": usd, "seconds": round(seconds, 3)}
    trail.append("spend", f"settle/{key}", body)


def reserve_review(trail: Trail, budget: Budget, stage: str, attempt: int | str, cap: float) -> str:
    """Set the cost cap of a review aside, out of the share held back for reviews, and return its key.

    ``attempt`` is its number, with the member's where a panel is asked.

    A reservation that is already there belongs to a call whose answer was lost with its process. It may have been
    billed, so its whole cap counts as spent and the repeated review has a reservation of its own.

    Raises:
        BudgetExceeded: the cap does not fit in what is left for reviews.
    """
    with trail.alone():
        return _reserve_review(trail, budget, stage, attempt, cap)


def _reserve_review(trail: Trail, budget: Budget, stage: str, attempt: int | str, cap: float) -> str:
    key, repeat = f"review/{stage}.{attempt}", 1
    while (lost := trail.find(f"reserve/{key}")) is not None:
        settle_review(trail, stage, key, lost.body["usd"])
        repeat += 1
        key = f"review/{stage}.{attempt}/{repeat}"
    entries = list(trail.iterate())
    share = budget.held_back.review * budget.max_cost_usd
    teardown = budget.held_back.teardown * budget.max_cost_usd
    available = min(share - _reviews_usd(entries), balance_of(entries, budget).left_usd - teardown)
    if cap > available + 1e-9:
        raise BudgetExceeded(
            f"the review may cost {cap:.4f} USD, "
            f"{max(available, 0):.4f} USD of the {share:.4f} USD for reviews are left",
            where=key,
            hint="raise budget.held_back.review or lower reviewer.effort in a new session",
        )
    body = {"what": "reserve", "job": key, "party": "reviewer", "stage": stage, "usd": cap}
    trail.append("spend", f"reserve/{key}", body)
    return key


def settle_review(trail: Trail, stage: str, key: str, usd: float) -> None:
    """Replace a reservation by what the review cost; repeating it changes nothing."""
    if trail.find(f"settle/{key}") is None:
        body = {"what": "settle", "job": key, "party": "reviewer", "stage": stage, "usd": usd}
        trail.append("spend", f"settle/{key}", body)


def _reviews_usd(entries: Sequence[Recorded]) -> float:
    """Return what reviews have spent and reserved."""
    amounts: dict[str, float] = {}
    for recorded in entries:
        if recorded.entry.kind == "spend" and recorded.body["party"] == "reviewer":
            amounts[recorded.body["job"]] = recorded.body["usd"]
    return sum(amounts.values())


def _is_from_outside(recorded: Recorded) -> bool:
    """Say whether an entry may be recorded while no orchestrator runs."""
    if recorded.entry.kind == "spend":
        return recorded.body["job"].startswith(REQUESTED)
    return recorded.entry.kind in ("asked", "answered", "override", "retraction")


def _active_seconds(entries: Sequence[Recorded]) -> float:
    """Sum the stretches from open or resume to the pause, or to the last entry before the next resume.

    What is recorded while the session is paused (a cancel, say) adds nothing, nor does what somebody else records at
    any time: a question asked an hour after the orchestrator was killed is no hour of the session.
    """
    total = 0
    last: int | None = None
    for recorded in entries:
        if _is_from_outside(recorded):
            continue
        now = int(recorded.entry.time_ns)
        kind = recorded.entry.kind
        if last is not None and kind not in ("open", "resume"):
            total += now - last
        if kind == "pause":
            last = None
        elif last is not None or kind in ("open", "resume"):
            last = now
    return total / 1e9
