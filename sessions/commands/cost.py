"""`peergate cost`: what is spent, reserved and left, by party and stage."""

from __future__ import annotations

from typing import Any

import typer

from reviews.history.history import History
from reviews.history.people import waits_for_budget
from reviews.trail.chain.envelope import as_entry_of
from sessions.commands.named_place import session_at
from sessions.commands.options import DEFAULT_RUNS, Json, Run, Runs
from sessions.commands.output import print_json, print_line, print_table
from sessions.run.money.accounts import PARTIES, Accounts
from sessions.run.money.ledger import active_hours
from sessions.run.terminal import masked_line
from specs.session.operations import attempt_usd, held_hours
from specs.stages.registry import Stage
from specs.trail.session_bodies import BudgetEntry

app = typer.Typer()


@app.command()
def cost(run: Run = None, runs: Runs = DEFAULT_RUNS, as_json: Json = False) -> None:
    """Show what is spent, reserved and left, and what the next stage may take.

    Amounts are listed by party and by stage. Can be called while the session runs.
    """
    place = session_at(run, runs)
    costs = cost_report_of(place.folder.resolve().name, place.history())
    if as_json:
        print_json(costs)
    else:
        _print(costs)


def cost_report_of(name: str, history: History) -> dict[str, Any]:
    """Return everything the command prints, in the form of its JSON."""
    spec = history.resolved.spec
    budget = spec.budget
    now = Accounts(history, budget)
    hours = active_hours(history)
    coming = _next(history, now, budget.max_hours - hours)
    stage: Stage | str = spec.stage(coming["stage"]) if coming else "none"
    short = waits_for_budget(history)
    by_name: dict[str, Stage] = {stage.name: stage for stage in spec.stages}
    # The design gate, amendments and requests cost too.
    places = list(dict.fromkeys([*by_name, *(line.stage for line in now.lines.values())]))
    return {
        "name": name,
        "max_cost_usd": budget.max_cost_usd,
        "spent_usd": round(now.sum_spent(), 6),
        "reserved_usd": round(now.sum_reserved(), 6),
        "left_usd": round(now.left_usd, 6),
        "parties": [
            {
                "party": party,
                "spent_usd": round(now.sum_spent(party), 6),
                "reserved_usd": round(now.sum_reserved(party), 6),
                "may_take_usd": _positive(min(now.limits(party, stage)).usd),
            }
            for party in PARTIES
        ],
        "stages": [_stage(now, place, by_name.get(place)) for place in places],
        "held_back": _held_back(now),
        "hours": round(hours, 4),
        "max_hours": budget.max_hours,
        "left_hours": round(budget.max_hours - hours, 4),
        "storage_usd_per_gb": budget.storage_usd_per_gb,
        "next": coming,
        "waits": list(as_entry_of(short, BudgetEntry).body.reasons) if short else [],
    }


def _stage(now: Accounts, name: str, stage: Stage | None) -> dict[str, Any]:
    limit = stage.max_cost_usd if stage else None
    return {
        "stage": name,
        "spent_usd": round(now.sum_spent(stage=name), 6),
        "reserved_usd": round(now.sum_reserved(stage=name), 6),
        "reviews_usd": round(now.sum_committed("reviewer", stage=name), 6),
        "max_cost_usd": limit,
        "left_usd": None if limit is None else _positive(limit - now.sum_stage_committed(name)),
    }


def _held_back(now: Accounts) -> list[dict[str, Any]]:
    budget, review, teardown = now.budget, now.review_left_usd, now.teardown_left_usd
    # Evaluation's share is whole while there is money for it.
    evaluation = min(budget.evaluation_usd, _positive(now.left_usd - review - teardown))
    remaining = {"evaluation": evaluation, "review": review, "teardown": teardown}
    usd = {name: getattr(budget, f"{name}_usd") for name in remaining}
    return [{"share": name, "usd": round(usd[name], 6), "left_usd": round(remaining[name], 6)} for name in remaining]


def _next(history: History, now: Accounts, left_hours: float) -> dict[str, Any] | None:
    """Return the open attempt that is not launched, and what it may take, if there is one."""
    opens = history.opens
    if opens is None or history.attempt(opens.stage, opens.attempt).launch is not None:
        return None
    stage, budget = history.resolved.spec.stage(opens.stage), now.budget
    least = min(now.limits("job", stage)).usd
    cap = attempt_usd(budget, stage)
    return opens.model_dump() | {
        "attempt_may_cost_usd": cap,
        "may_take_usd": _positive(least),
        "may_take_hours": round(held_hours(stage), 4),
        "fits": cap <= least + 1e-9 and held_hours(stage) <= left_hours + 1e-9,
    }


def _print(messages: dict[str, Any]) -> None:
    print_line(
        f"{messages['name']}: {messages['spent_usd']:.4f} USD spent, {messages['reserved_usd']:.4f} reserved, "
        f"{messages['left_usd']:.4f} of {messages['max_cost_usd']:g} left; "
        f"{messages['hours']:.2f} h of {messages['max_hours']:g} h"
    )
    print_line()
    tables = {
        "parties": ("party", "spent", "reserved", "may still take"),
        "stages": ("stage", "spent", "reserved", "of it reviews", "its limit", "left of it"),
        "held_back": ("held back for", "share", "left of it"),
    }
    for number, (name, heads) in enumerate(tables.items()):
        if number:
            print_line()
        rows = [tuple(value.values()) for value in messages[name]]
        print_table(heads, [(row[0], *("-" if usd is None else f"{usd:.4f}" for usd in row[1:])) for row in rows])
    if messages["storage_usd_per_gb"] is None:
        print_line()
        print_line("keeping outputs: the spec states no rate, so it is not counted")
    if (coming := messages["next"]) is not None:
        fits = "fits" if coming["fits"] else "does not fit"
        print_line()
        print_line(
            f"next: {coming['stage']}, attempt {coming['attempt']}: "
            f"may cost {coming['attempt_may_cost_usd']:.4f} USD and take {coming['may_take_hours']:.2f} h, "
            f"{coming['may_take_usd']:.4f} USD are left for it: {fits}"
        )
    for reason in messages["waits"]:
        print_line()
        print_line(f"waits for a larger budget: {masked_line(reason, 500)}")


def _positive(usd: float) -> float:
    return round(max(usd, 0.0), 6)
