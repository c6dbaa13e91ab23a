"""Acceptance criteria: what a session has to have shown, each with what discharges it, registered before any data."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, StringConstraints, model_validator

from specs.stages.base.stage import Criterion
from specs.system.digests import Contract, Digest, Name

Link = Annotated[str, StringConstraints(pattern=r"^https://[^\s<>()\[\]\"'`|\\]+$", max_length=500)]
"""An address on the web. It is shown, and never fetched."""


class Companion(Contract):
    """A document that belongs to the experiment: an analysis plan, the spec of a sibling, a discussion."""

    path: str | None = None
    """A file, relative to the spec; its digest is registered, so that everyone can see which text was meant."""
    link: Link | None = None
    digest: Digest | None = None

    @model_validator(mode="after")
    def _check_place(self) -> Self:
        if (self.path is None) == (self.link is None):
            raise ValueError("needs either a path or a link")
        return self


class AcceptanceCriterion(Contract):
    """Something that must be shown. Only its gate can discharge it.

    The gate of ``stage`` has to approve. ``metric``, ``check`` or ``ship`` say what it has to find as well.
    """

    id: Annotated[str, StringConstraints(pattern=r"^AC-[A-Z0-9][A-Z0-9-]{0,31}$")]
    """Its meaning never changes: criteria cannot be amended."""
    text: Annotated[str, StringConstraints(min_length=10, max_length=500)]
    stage: Name
    """The stage whose gate discharges it."""
    metric: Criterion | None = None
    """A bound on what the stage measures."""
    check: Annotated[str, StringConstraints(pattern=r"^[a-z_]+\.[a-z0-9_]+$")] | None = None
    """A check that has to pass. A check that warns or does not apply proves nothing."""
    ship: bool = False
    """Every check of the ship gate that runs at the stage passes."""
    weight: Annotated[int, Field(ge=1, le=1000)] = 1
    """Its share of ship-%."""
    effort_hours: Annotated[float, Field(gt=0, le=10_000)] | None = None
    """Planned hours of machines and people; by default the limits of the stages that lead to it."""
    model: Annotated[str, StringConstraints(pattern=r"^(model|[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*)$")] | None = None
    """The model that it is about, if there are several: ``model``, or a checkpoint (``STAGE.OUTPUT``) that its stage
    reads or leaves. ship-% is then shown for each model as well."""
    issue: Link | None = None
    """Where it is discussed."""
    applies_if: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*$")] | None = None
    """``STAGE.PARAMETER``: where that is registered as ``no``, false, 0 or null, the criterion does not apply, and
    ship-% leaves it out. A session that cannot show something is never excused otherwise."""

    def needs(self) -> str:
        """Return what discharges it."""
        text = self._describe_expectation()[0]
        return f"{text + ', and ' if text else ''}the gate of '{self.stage}' approves"

    def refuted_by(self) -> str:
        """Return the observation that shows it to be false."""
        return f"{self._describe_expectation()[1]}, at '{self.stage}'"

    def _describe_expectation(self) -> tuple[str, str]:
        """Return what the gate has to find as it approves, and the opposite of all that is asked."""
        if self.metric is not None:
            return f"{self.metric}", f"not {self.metric}"
        if self.check is not None:
            return f"check {self.check} passes", f"check {self.check} not passing"
        if self.ship:
            return "every check of the ship gate passes", "a check of the ship gate not passing"
        return "", "a gate that does not approve"
