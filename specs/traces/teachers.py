"""The form of a file of teachers: who is asked what they would have done, and whose outputs they are."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from specs.stages.base.artifacts import Taught
from specs.stages.traces.family import Family
from specs.system.digests import Contract, Count, omit_default
from specs.system.vendors.parties import Address, TokenPrice


class Teacher(Contract):
    """A model that is asked what it would do in a state."""

    id: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,39}$")]
    vendor: Literal["openai", "anthropic"] = "openai"
    model: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    family: Family
    """What it descends from. Teachers of one family are one voice."""
    license: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    """Under which terms its outputs may be trained on, in your words; it travels with every pair."""
    base_url: Address | None = None
    """An endpoint that speaks chat completions, such as OpenRouter or a local server; with ``vendor: anthropic``
    one that speaks Anthropic's API."""
    key_variable: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]{0,57}_(KEY|TOKEN)$")] | None = None
    """The environment variable of an endpoint's key."""
    usd_per_million_tokens: TokenPrice | None = None
    """Its price; needed with ``base_url`` and for models no price is known of."""
    max_output_tokens: Annotated[int, Field(ge=256, le=32_000)] = 2_000
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = 120.0


class TeacherFile(Contract):
    """Teachers, and the family of the model that will learn from them."""

    schema_version: Literal[1] = 1
    student: Family
    teachers: Annotated[tuple[Teacher, ...], Field(min_length=1, max_length=20)]
    prompt_characters: Annotated[int, Field(ge=500, le=400_000)] = 24_000
    """How much of a history is shown: its newest turns."""


class QuestionRecord(Contract):
    """Before a call: if nothing follows, it may have been billed all the same."""

    type: Literal["asked"] = "asked"
    key: str
    usd: Annotated[float, Field(ge=0)]
    """The most it can cost."""


class FailureRecord(Contract):
    """A call came to nothing."""

    type: Literal["unanswered"] = "unanswered"
    key: str
    usd: Annotated[float, Field(ge=0)]
    """What it may have cost: all of its cap, if it may have been billed."""
    why: str


class ReplyRecord(Contract):
    """What a teacher answered in a state."""

    type: Literal["replied"] = "replied"
    key: str
    state: str
    teacher: str
    model: str
    text: str
    stop: Literal["end", "length", "refusal"]
    usd: Annotated[float, Field(ge=0)]
    usd_is_measured: bool


class TeacherPair(Contract):
    """One pair to learn from, with where both sides come from: ``trace``, or the id of a teacher."""

    id: str
    group: str
    """The conversation: no split divides it."""
    prompt: Annotated[str, Field(min_length=1)]
    chosen: Annotated[str, Field(min_length=3)]
    rejected: Annotated[str, Field(min_length=3)]
    state: str
    chosen_by: tuple[str, ...]
    """All who did the same."""
    rejected_by: tuple[str, ...]
    taught: Taught | None = omit_default()
    """Whose outputs the chosen side is; None in pairs that were made before it was kept."""


class Agreement(Contract):
    """How far teachers did the same in the same states."""

    states: Count
    """States in which every teacher answered with a whole step; of a local one, in which two answers are whole."""
    agreed: Count
    """Of these, states in which teachers of two families or more called the same tools."""
    split: Count
    """States in which no two families did the same: no pair comes of them."""
    unanimous: Count
    """States in which everybody did what the trace did: there is nothing to reject."""
    with_trace: Count
    """Pairs whose chosen side is what the trace did."""
    between: dict[str, Annotated[float, Field(ge=0, le=1)]]
    """By two families, the share of states in which they did the same."""


class Card(Contract):
    """Where a set of pairs comes from; it belongs next to them wherever they go."""

    traces: str
    """Digest of the turns."""
    authors: tuple[str, ...]
    """Families of the models that wrote the traces."""
    student: str
    teachers: tuple[Teacher, ...]
    circular: tuple[str, ...]
    """Why this imitates in a circle; empty if it does not."""
    override: str
    """Why a person accepted that."""
    states: Count
    replies: Count
    cut_off: Count
    refused: Count
    pairs: Count
    agreement: Agreement
    usd: Annotated[float, Field(ge=0)]
    pairs_digest: str
