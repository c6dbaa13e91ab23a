"""Notices of a session: read from its trail, in names and numbers alone.

Reasons of gates and words of models may quote held-out items, so none is in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from sessions.pages.overview import is_waiting
from sessions.pages.report.next_steps import waiting_for
from sessions.run.money import ledger
from specs.notices.notify import NoticeEvent
from specs.session.session_spec import ResolvedSpec
from specs.trail.entry import DESIGN

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


def news_of(run: Path, entries: list[RecordedEntry], store: Store, resolved: ResolvedSpec) -> list[News]:
    """Return all notices of a trail, in the order of its entries."""
    news = [*_of_entries(entries), *_of_money(entries, resolved)]
    if is_waiting(entries):
        news.append(_waiting(run, entries, store, resolved))
    return news


def _of_entries(entries: Sequence[RecordedEntry]) -> Iterator[News]:
    for entry in entries:
        at = f"{entry.raw.get('stage') or DESIGN}.{entry.raw.get('attempt')}"
        if entry.kind == "lost":
            yield News("lost", entry.key, f"the job of {at} is lost: nothing says how it ended")
        elif entry.kind == "decision" and entry.raw["outcome"] == "reject":
            yield News("rejected", entry.key, f"the gate of {at} rejects")
        elif entry.kind == "close":
            yield News("closed", entry.key, f"closed: {entry.raw['decision']}")


def _of_money(entries: Sequence[RecordedEntry], resolved: ResolvedSpec) -> Iterator[News]:
    budget = resolved.spec.budget
    spent = ledger.balance_of(entries, budget).spent_usd
    reached = next((share for share in SHARES if spent >= budget.max_cost_usd * share / 100), None)
    if reached is not None:
        text = f"{reached} % of the budget is spent: {spent:.4f} of {budget.max_cost_usd:g} USD"
        # A larger budget has shares of its own.
        yield News("budget", f"budget/{reached} of {budget.max_cost_usd:g}", text)


def _waiting(run: Path, entries: list[RecordedEntry], store: Store, resolved: ResolvedSpec) -> News:
    requests = waiting_for(entries, run, store, resolved)
    commands = tuple(command for way in requests["answers"] for command in way.commands)
    return News("waiting", f"waiting/{requests['since']}", f"waits for {requests['whom']}", commands)
