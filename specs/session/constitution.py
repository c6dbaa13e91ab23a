"""The constitution: principles for generation, critique and revision, with totals that must add up."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from specs.system.digests import Contract


class Principle(Contract):
    """One principle."""

    id: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]*$")]
    category: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]*$")]
    text: Annotated[str, StringConstraints(min_length=10)]


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
