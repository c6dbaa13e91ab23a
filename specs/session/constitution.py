"""The constitution: principles for generation, critique and revision, with totals that must add up."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from specs.system.digests import Contract, omit_default


class WorkedRevision(Contract):
    """A draft that does not keep to a principle, what is wrong with it, and the draft written anew; by a person."""

    instruction: Annotated[str, StringConstraints(min_length=1)]
    draft: Annotated[str, StringConstraints(min_length=1)]
    critique: Annotated[str, StringConstraints(min_length=1)]
    revision: Annotated[str, StringConstraints(min_length=1)]


class Principle(Contract):
    """One principle."""

    id: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]*$")]
    category: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]*$")]
    text: Annotated[str, StringConstraints(min_length=10)]
    examples: Annotated[tuple[WorkedRevision, ...], Field(max_length=8)] = ()
    """Worked revisions that ``revise`` stages show before a draft, in place of Peergate's own."""
    instructions: tuple[Annotated[str, StringConstraints(min_length=1)], ...] = omit_default(())
    """Types of instructions of held-out items, all of which an answer follows where it keeps to the principle: of items
    that hold them, evaluations count how many answers keep to it."""


class Totals(Contract):
    """What the author says the file holds; checked against what it does hold."""

    principles: int
    by_category: dict[str, int]


class Constitution(Contract):
    """The whole file."""

    schema_version: Literal[1]
    title: str
    principles: tuple[Principle, ...] = Field(min_length=1)
    totals: Totals
