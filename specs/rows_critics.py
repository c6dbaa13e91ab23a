"""Rows of critics, and the pairs that preference training reads."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from specs.digests import Contract


class Preference(Contract):
    """One pair: a line of a ``preferences`` artifact. ``group`` never spans training and validation."""

    prompt: str
    chosen: Annotated[str, Field(min_length=3)]
    rejected: Annotated[str, Field(min_length=3)]
    group: str
    source: str
    """What made the pair, for example ``best_of_n``, ``revision`` or the type of a hard negative."""
    margin: float | None = None
    """How sure the judge was, in nats; None where nothing judged."""
