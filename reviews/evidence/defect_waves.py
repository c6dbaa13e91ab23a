"""Defects come in waves: where a check failed at one stage, its family has to pass at every other one.

A checkpoint that one tool cannot use is rarely usable by the next: each tool downstream finds another fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from reviews.history.recorded_history import RecordedHistory
from specs.trail.gate_bodies import ChecksEntry

SHIP_CHECKS = ("checkpoint.", "package.", "export.")
"""What the ids of the checks of the ship gate begin with."""


class Defect(NamedTuple):
    """A check that failed at a gate, and would have kept it closed."""

    check: str
    stage: str
    attempt: int

    @property
    def description(self) -> str:
        """Return check and place."""
        return f"{self.check} at {self.stage}.{self.attempt}"


def family_of(check: str) -> str:
    """Return the family of a check: the first part of its id, or the ship gate."""
    return "ship" if check.startswith(SHIP_CHECKS) else check.partition(".")[0]


def defects_in(history: RecordedHistory) -> Iterator[Defect]:
    """Yield every defect on record, the oldest first; raises as :meth:`Store.get`."""
    for checks in (entry.body for entry in history.of(ChecksEntry) if "FAIL" in entry.body.summary.values()):
        for result in history.attempt_of(checks).check_results:
            if result.status == "FAIL" and result.blocking:
                yield Defect(result.id, checks.stage, checks.attempt)


def due_at(history: RecordedHistory, stage: str) -> dict[str, str]:
    """Return the families whose checks have to pass at a stage, with the first defect at another stage that says so."""
    results: dict[str, str] = {}
    for defect in defects_in(history):
        if defect.stage != stage:
            results.setdefault(family_of(defect.check), defect.description)
    return results
