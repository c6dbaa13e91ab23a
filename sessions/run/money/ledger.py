"""The ledger: what is spent, reserved and left, computed from the trail and from nothing else.

Reserve before anything that costs, settle after it. An unsettled reservation counts in full; a call whose answer was
lost with its process is settled at its whole cap, because it may have been billed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec, TypeVar

from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.trail import Trail
from sessions.run.money.accounts import TOLERANCE_USD, Accounts, Party
from specs.jobs.job_records import WITNESS
from specs.session.design import Budget
from specs.session.operations import attempt_usd, held_hours
from specs.stages.registry import Stage
from specs.system.errors import BudgetExceeded, PeergateError
from specs.system.resources import usd_per_hour
from specs.system.text import size_in_words
from specs.trail.entry import AMENDMENT, EntryKind
from specs.trail.gate_bodies import GrantEntry, LookupEntry, VerdictEntry
from specs.trail.key_policy import PERSON
from specs.trail.requested_review import LOOKS
from specs.trail.session_bodies import ExitEntry, LostJobEntry, OpenEntry, ResumeEntry, SpendEntry

REQUESTED = "review/requests."
"""Prefix of the keys of reservations for requested reviews."""
AMEND = "`peergate amend` with a larger budget, then `peergate resume`"
_WHO: dict[Party, str] = {
    "builder": "the builder's turn",
    "helper": "the helper's turn",
    "reviewer": "the review",
    "job": "the attempt",
    "storage": "keeping its outputs",
}
_BREAKS: tuple[EntryKind, ...] = ("pause", "budget")
P = ParamSpec("P")
DoneT = TypeVar("DoneT")


def _at_once(step: Callable[Concatenate[Trail, P], DoneT]) -> Callable[Concatenate[Trail, P], DoneT]:
    """Record a step as a whole or not at all, and repeat it if the connection is cut."""

    @wraps(step)
    def done(trail: Trail, *arguments: P.args, **named: P.kwargs) -> DoneT:
        return trail.together(lambda: step(trail, *arguments, **named))

    return done


class Balance(NamedTuple):
    """Money in USD, time in hours of orchestrated session (pauses do not count)."""

    spent_usd: float
    reserved_usd: float
    left_usd: float
    hours: float
    left_hours: float


def balance(trail: Trail, budget: Budget) -> Balance:
    """Add up the trail of a running session."""
    return balance_of(list(trail.iterate()), budget)


def balance_of(entries: Sequence[RecordedEntry], budget: Budget) -> Balance:
    """Add up the entries of a trail."""
    now = Accounts(entries, budget)
    hours = active_hours(entries)
    return Balance(now.sum_spent(), now.sum_reserved(), now.left_usd, hours, budget.max_hours - hours)


@_at_once
def reserve(
    trail: Trail,
    budget: Budget,
    party: Party,
    stage: Stage | str,
    key: str,
    cap: float,
    task: str = "",
    task_usd: float | None = None,
) -> None:
    """Reserve the most something can cost before it begins; the same key is reserved only once.

    ``stage`` may also be ``design`` or ``amendment``; ``task_usd`` is the most that a helper's ``task`` may take.
    Raises BudgetExceeded if the cap is unknown, or exceeds the remaining money of this party and stage.
    """
    if _find_reservation(trail, key):
        return
    if not math.isfinite(cap) or cap < 0:
        raise BudgetExceeded(f"the price of {_WHO[party]} is not known ({cap})", where=key)
    least = min(Accounts(trail.iterate(SpendEntry), budget).limits(party, stage, task, task_usd))
    if cap > least.usd + TOLERANCE_USD:
        message = f"{_WHO[party]} may cost {cap:.4f} USD, {max(least.usd, 0):.4f} USD {least.words}"
        raise BudgetExceeded(message, where=key, hint=AMEND)
    name = stage if isinstance(stage, str) else stage.name
    body = SpendEntry(what="reserve", job=key, party=party, stage=name, usd=cap)
    trail.append(body.model_copy(update={"task": task}) if task else body)


@_at_once
def settle(trail: Trail, key: str, usd: float | None, **facts: Any) -> None:
    """Replace a reservation by its cost, once; None, unknown, is the whole cap. Raise PeergateError without one."""
    reserved = _find_reservation(trail, key)
    if reserved is None:
        raise PeergateError("nothing is reserved, so nothing can be settled", where=key)
    known = max(float(usd), 0.0) if usd is not None and math.isfinite(usd) else reserved.usd
    trail.append(reserved.model_copy(update={"what": "settle", "usd": known, **facts}))


def _find_reservation(trail: Trail, key: str) -> SpendEntry | None:
    recorded = trail.find(SpendEntry.reservation_key(key), SpendEntry)
    return recorded.body if recorded else None


@_at_once
def reserve_job(trail: Trail, budget: Budget, stage: Stage, key: str, keeps_bytes: int = 0) -> None:
    """Reserve the cost of an attempt and of keeping its outputs, or raise BudgetExceeded if something lacks."""
    if _find_reservation(trail, key):
        return
    hours = active_hours(list(trail.iterate()))
    if hours + held_hours(stage) > budget.max_hours + TOLERANCE_USD:
        message = f"the attempt may take {held_hours(stage):.2f} h"
        raise BudgetExceeded(f"{_has_run(hours, budget)}, {message}", where=key, hint=AMEND)
    if budget.max_disk_gb is not None:
        count = _kept_bytes(trail)
        if count + keeps_bytes > budget.max_disk_gb * 1e9:
            message = f"the attempt may leave {size_in_words(keeps_bytes)}"
            has = f"outputs take {size_in_words(count)} of the {budget.max_disk_gb:g} GB of budget.max_disk_gb"
            raise BudgetExceeded(f"{has}, {message}", where=key, hint=AMEND)
    reserve(trail, budget, "job", stage, key, attempt_usd(budget, stage))
    if budget.storage_usd_per_gb is not None:
        reserve(trail, budget, "storage", stage, f"storage/{key}", storage_usd(budget, keeps_bytes))


def _kept_bytes(trail: Trail) -> int:
    """Return how many bytes the outputs of all jobs take, those of lost ones included."""
    count = sum(output.bytes for exit in trail.iterate(ExitEntry) for output in exit.body.outputs.values())
    return count + sum(lost.body.bytes or 0 for lost in trail.iterate(LostJobEntry))


def settle_job(trail: Trail, budget: Budget, key: str, seconds: float, seen_s: float = 0.0) -> None:
    """Replace a reservation by the cost of the job's wall time, at the price cap of its machine if it has one.

    The cost exceeds the reservation only if the job was seen running that long. In any case ``jobs.clock`` or
    ``jobs.cost`` closes the gate of a job that states or takes more.

    ``seconds`` is bounded by :meth:`specs.jobs.job_records.ObservedRuntime.bound_seconds`, ``seen_s`` is how long it
    was seen running.
    """
    grant = trail.find(GrantEntry.key_of(key.removesuffix(WITNESS)), GrantEntry)
    reserved, resources = _find_reservation(trail, key), grant.body.resources if grant else None
    paid, least = (round(max(value, 0.0) / 3600 * usd_per_hour(budget, resources), 6) for value in (seconds, seen_s))
    most = max(reserved.usd, least) if reserved else paid
    settle(trail, key, min(paid, most), seconds=round(seconds, 3))


def settle_storage(trail: Trail, budget: Budget, key: str, kept_bytes: int | None) -> None:
    """Settle what keeping a job's outputs costs, if the spec states a rate; None if the size is unknown."""
    if _find_reservation(trail, f"storage/{key}"):
        usd = None if kept_bytes is None else storage_usd(budget, kept_bytes)
        settle(trail, f"storage/{key}", usd, bytes=kept_bytes)


def storage_usd(budget: Budget, size: int) -> float:
    """Return what keeping so many bytes costs, 0 if the spec states no rate."""
    return round(size / 1e9 * (budget.storage_usd_per_gb or 0.0), 6)


@_at_once
def reserve_review(trail: Trail, budget: Budget, stage: str, attempt: int | str, cap: float) -> str:
    """Reserve the cost cap of a review, out of the share for reviews, and return its key.

    ``attempt`` is its number, with the member's for a panel. An existing reservation belongs to a call whose answer was
    lost with its process; it counts as its whole cap, and the repeated review gets a new reservation. Raises
    BudgetExceeded if the cap exceeds the remaining money for reviews.
    """
    key, repeat = f"review/{stage}.{attempt}", 1
    while _find_reservation(trail, key):
        settle(trail, key, None)
        repeat += 1
        key = f"review/{stage}.{attempt}/{repeat}"
    reserve(trail, budget, "reviewer", stage, key, cap)
    return key


@_at_once
def reserve_turn(
    trail: Trail,
    budget: Budget,
    stage: Stage,
    attempt: int,
    cap: float,
    party: Literal["builder", "helper"] = "builder",
    task: str = "",
    task_usd: float | None = None,
) -> str:
    """Reserve the cap of a turn of the builder or of a helper, and return its key.

    The builder, or a helper's ``task``, takes one turn at a time: an unsettled earlier turn was lost with its process
    and counts as its whole cap. After the session's hours no turn begins; otherwise only its money would stop a builder
    that never ends. Raises BudgetExceeded for that, and if the cap is unknown or exceeds the remaining money of the
    builder, the stage or the task (``task_usd``).
    """
    of = f"{party}/{stage.name}.{attempt}/" + (f"{task}/" if task else "")
    lines = Accounts(trail.iterate(SpendEntry), budget).select(party, task=task)
    before = [line for line in lines if line.key.startswith(of)]
    for line in before:
        if not line.is_settled:
            settle(trail, line.key, None)
    key = f"{of}{len(before) + 1}"
    hours = active_hours(list(trail.iterate()))
    if hours > budget.max_hours:
        raise BudgetExceeded(f"{_has_run(hours, budget)}: {_WHO[party]} does not begin", where=key, hint=AMEND)
    reserve(trail, budget, party, stage, key, cap, task, task_usd)
    return key


def _has_run(hours: float, budget: Budget) -> str:
    return f"the session has run {hours:.2f} h of {budget.max_hours:g} h"


def is_from_outside(recorded: RecordedEntry) -> bool:
    """Return whether an entry may be recorded while no orchestrator runs."""
    body = recorded.body
    if isinstance(body, SpendEntry) and body.job.startswith(REQUESTED):
        return True
    if isinstance(body, VerdictEntry) and body.reviewer == PERSON:
        return True
    if isinstance(body, LookupEntry):
        return body.stage == LOOKS
    return body.FROM_OUTSIDE or getattr(body, "stage", None) == AMENDMENT


def ends_a_stretch(recorded: RecordedEntry) -> bool:
    """Return whether the orchestrator stops after an entry, until the session is resumed."""
    body = recorded.body
    escalates = getattr(body, "outcome", None) == "escalate" or getattr(body, "escalate", False)
    return recorded.kind in _BREAKS or escalates


def active_hours(entries: Sequence[RecordedEntry]) -> float:
    """Sum the stretches from open or resume to the pause, or to the last entry before the next resume.

    Entries from outside the orchestrator add nothing at any time: a question asked an hour after the orchestrator was
    killed is not an hour of the session.
    """
    total = 0
    last: int | None = None
    for recorded in entries:
        if is_from_outside(recorded):
            continue
        now, begins = recorded.time_ns, isinstance(recorded.body, OpenEntry | ResumeEntry)
        if last is not None and not begins:
            total += now - last
        if ends_a_stretch(recorded):
            last = None
        elif last is not None or begins:
            last = now
    return total / 3600e9
