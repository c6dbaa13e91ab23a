"""Notices of a session: read from its trail, in names and numbers alone.

Reasons of gates and words of models may quote held-out items, so none is in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from reviews.history.history import History
from sessions.pages.overview import is_waiting
from sessions.pages.report.next_steps import waiting_for
from sessions.run.money import ledger
from specs.notices.notify import NoticeEvent
from specs.trail.entry import DESIGN
from specs.trail.gate_bodies import DecisionEntry
from specs.trail.session_bodies import CloseEntry, LostJobEntry

SHARES = (100, 80, 50)
"""Per cent of the budget, the highest first."""


class News(NamedTuple):
    """One thing that happened."""

    event: NoticeEvent
    key: str
    """The key under which it is sent once."""
    text: str
    commands: tuple[str, ...] = ()
    """What a person can do about it."""


def news_of(run: Path, history: History) -> list[News]:
    """Return all notices of a trail, in the order of its entries."""
    news = [*_of_entries(history), *_of_money(history)]
    if is_waiting(history):
        news.append(_waiting(run, history))
    return news


def _of_entries(history: History) -> Iterator[News]:
    for entry in history.of(LostJobEntry, DecisionEntry, CloseEntry):
        match entry.body:
            case LostJobEntry(stage=stage, attempt=attempt):
                yield News("lost", entry.key, f"the job of {stage}.{attempt} is lost: how it ended is unknown")
            case DecisionEntry(outcome="reject", stage=stage, attempt=attempt):
                yield News("rejected", entry.key, f"the gate of {stage or DESIGN}.{attempt} rejects")
            case CloseEntry(decision=decision):
                yield News("closed", entry.key, f"closed: {decision}")
            case _:
                pass


def _of_money(history: History) -> Iterator[News]:
    budget = history.resolved.spec.budget
    spent = ledger.balance_of(history, budget).spent_usd
    reached = next((share for share in SHARES if spent >= budget.max_cost_usd * share / 100), None)
    if reached is not None:
        text = f"{reached} % of the budget is spent: {spent:.4f} of {budget.max_cost_usd:g} USD"
        # A larger budget has its own shares.
        yield News("budget", f"budget/{reached} of {budget.max_cost_usd:g}", text)


def _waiting(run: Path, history: History) -> News:
    requests = waiting_for(history, run)
    commands = tuple(command for way in requests["answers"] for command in way.commands)
    return News("waiting", f"waiting/{requests['since']}", f"waits for {requests['whom']}", commands)
