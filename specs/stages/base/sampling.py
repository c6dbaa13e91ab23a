"""What all kinds that sample text have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from specs.stages.base.engine_choice import Writing
from specs.system.digests import Contract, omit_default

Seed = Annotated[int, Field(ge=0, lt=2**31)]
BatchSize = Annotated[int, Field(ge=1, le=1024)]
Share = Annotated[float, Field(ge=0, le=1)]
Stop = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Wrapper = Annotated[str, Field(max_length=2000)]
"""A text that holds ``{prompt}`` once."""

QUESTION = "Question: {prompt}\nAnswer:"
WRAPPER = "Instruction: {prompt}\nResponse:"


def require_prompt(wrapper: str | None) -> None:
    """Raise a ValueError where a wrapper does not hold ``{prompt}`` once."""
    if wrapper is not None and wrapper.count("{prompt}") != 1:
        raise ValueError("wrapper holds {prompt} once")


Text = Annotated[str, StringConstraints(min_length=1, max_length=4000)]
END_MARK = "###END###"
ROLE_STOPS = ("\nInstruction", "\nQ:", "\n###", "\nUser:", "\nResponse:")


class Quality(Contract):
    """When a stage that samples stops early: limits of rates over all its rows. A limit of 1 never stops it."""

    first: Annotated[int, Field(ge=1, le=1_000_000)] = 60
    """Rows before anything is broken off. Groups are not larger, so that the stage looks as soon as they are there."""
    empty: Share = 0.3
    """Share of rows without a visible character; of calls, without an instruction."""
    runaway: Share = 0.3
    """Share of rows that continue past their end: another turn, or more than 500 characters. Not of calls."""
    truncated: Share = 0.5
    """Share of rows that hit the token limit."""
    leaked: Share = 0.2
    """Share of rows with a delimiter: a stop string of the stage, or what such strings are by default."""
    repeated: Share = 0.5
    """Share of rows with the words of an earlier one."""


class SamplingParameters(Writing):
    """What all parameters of stages that sample data share."""

    quality: Quality | None = omit_default()
    """When the stage is broken off. None: for nothing that is counted over all of its rows."""


class Shot(Contract):
    """One worked pair, shown before every instruction."""

    instruction: Text
    response: Text


SHOTS = (
    Shot(instruction="Name the largest ocean.", response="The Pacific Ocean is the largest ocean on Earth."),
    Shot(
        instruction="Explain in one sentence why leaves are green.",
        response="Leaves are green because they hold chlorophyll, which reflects green light.",
    ),
    Shot(
        instruction="Suggest a quiet hobby for a rainy afternoon.",
        response="You could put together a jigsaw puzzle by the window.",
    ),
)
