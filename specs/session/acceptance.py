"""Acceptance criteria: what a session has to have shown, each with what discharges it, registered before any data."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from specs.digests import Contract, omitted
from specs.stages.stage import Criterion, Name


class AcceptanceCriterion(Contract):
    """Something that has to be shown, and the gate that shows it: nothing else discharges it, and no one's word.

    The gate of ``stage`` has to approve. ``metric``, ``check`` or ``ship`` say what it has to find as well.
    """

    id: Annotated[str, StringConstraints(pattern=r"^AC-[A-Z0-9][A-Z0-9-]{0,31}$")]
    """It never changes its meaning: no amendment touches a criterion."""
    text: Annotated[str, StringConstraints(min_length=10, max_length=500)]
    stage: Name
    """The stage whose gate discharges it."""
    metric: Criterion | None = omitted()
    """A bound on what the stage measures."""
    check: Annotated[str, StringConstraints(pattern=r"^[a-z_]+\.[a-z0-9_]+$")] | None = omitted()
    """A check that has to pass: one that warns, or does not apply, shows nothing."""
    ship: bool = omitted(False)
    """Every check of the ship gate that runs at the stage passes."""
    weight: Annotated[int, Field(ge=1, le=1000)] = omitted(1)
    """Its part of ship-%."""
    effort_hours: Annotated[float, Field(gt=0, le=10_000)] | None = omitted()
    """What is planned for it, of machines and people; not stated, the limits of the stages that lead to it."""
    applies_if: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*$")] | None = omitted()
    """``STAGE.PARAMETER``: where that is registered as ``no``, false, 0 or null, the criterion does not apply, and
    ship-% leaves it out. A session that cannot show something is never excused otherwise."""

    def needs(self) -> str:
        """Return what discharges it."""
        found = self._asked()[0]
        return f"{found + ', and ' if found else ''}the gate of '{self.stage}' approves"

    def refuted_by(self) -> str:
        """Return the observation that shows it to be false."""
        return f"{self._asked()[1]}, at '{self.stage}'"

    def _asked(self) -> tuple[str, str]:
        """Return what the gate has to find as it approves, and the opposite of all that is asked."""
        if self.metric is not None:
            return f"{self.metric}", f"not {self.metric}"
        if self.check is not None:
            return f"check {self.check} passes", f"check {self.check} not passing"
        if self.ship:
            return "every check of the ship gate passes", "a check of the ship gate not passing"
        return "", "a gate that does not approve"
