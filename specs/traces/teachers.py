"""The form of a file of teachers: who is asked what they would have done, and whose outputs they are."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from specs.stages.traces.parameters import Family
from specs.system.digests import Contract, Count
from specs.system.vendors.parties import Address, TokenPrice
from specs.traces.turn import Agreement


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
    an address that speaks Anthropic's API."""
    key_variable: Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]{0,57}_(KEY|TOKEN)$")] | None = None
    """The environment variable of an endpoint's key."""
    usd_per_million_tokens: TokenPrice | None = None
    """Its price; required with ``base_url`` and for models without a known price."""
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

    type: Literal["question"] = "question"
    key: str
    usd: Annotated[float, Field(ge=0)]
    """The most it can cost."""


class FailureRecord(Contract):
    """A call came to nothing."""

    type: Literal["failure"] = "failure"
    key: str
    usd: Annotated[float, Field(ge=0)]
    """What it may have cost: all of its cap, if it may have been billed."""
    why: str


class ReplyRecord(Contract):
    """What a teacher answered in a state."""

    type: Literal["reply"] = "reply"
    key: str
    state: str
    teacher: str
    model: str
    text: str
    stop: Literal["end", "length", "refusal"]
    usd: Annotated[float, Field(ge=0)]
    usd_is_measured: bool


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
