"""Defects come in waves: where a check failed at one stage, its family has to pass at every other one.

A checkpoint that one tool cannot use is rarely whole for the next: each tool downstream finds a fault of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from reviews.trail.envelope import Recorded
from reviews.trail.store import Store

SHIP_CHECKS = ("checkpoint.", "package.", "export.")
"""What the ids of the checks of the ship gate begin with."""


class Defect(NamedTuple):
    """A check that failed at a gate, and would have kept it closed."""

    check: str
    stage: str
    attempt: int

    @property
    def told(self) -> str:
        """Return check and place."""
        return f"{self.check} at {self.stage}.{self.attempt}"


def family_of(check: str) -> str:
    """Return the family of a check: the first part of its id, or the ship gate."""
    return "ship" if check.startswith(SHIP_CHECKS) else check.partition(".")[0]


def defects_in(entries: Sequence[Recorded], store: Store) -> Iterator[Defect]:
    """Yield every defect on record, the oldest first; raises as :meth:`Store.get`."""
    for one in entries:
        if one.entry.kind != "checks" or one.body["stage"] is None or "FAIL" not in one.body["summary"].values():
            continue
        for each in store.get_value(one.body["checks"]):
            if each["status"] == "FAIL" and each["blocking"]:
                yield Defect(each["id"], one.body["stage"], one.body["attempt"])


def due_at(entries: Sequence[Recorded], store: Store, stage: str) -> dict[str, str]:
    """Return the families whose checks have to pass at a stage, with the first defect at another stage that says so."""
    found: dict[str, str] = {}
    for one in defects_in(entries, store):
        if one.stage != stage:
            found.setdefault(family_of(one.check), one.told)
    return found
