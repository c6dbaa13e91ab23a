"""Rows that stages hand to each other: items, examples, preferences."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from specs.system.digests import Contract, Count, omit_default

As = Literal["items", "examples", "preferences", "texts", "transcripts"]
"""What the rows of a data file are."""
Learned = Literal["last", "all"]
"""Which of the assistant's turns in ``messages`` are learned: the last, or each, as a separate example."""


class DialogueTurn(Contract):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: Annotated[str, Field(min_length=1)]


class Item(Contract):
    """One instruction whose answer code can verify. ``group`` never spans training and held-out."""

    id: str
    group: str
    kind: str
    prompt: str
    constraint: dict[str, str | int]
    before: tuple[DialogueTurn, ...] = omit_default(())
    """The turns before ``prompt``, which is the user's last one: a system's, then user and assistant by turns."""


class OfSample(Contract):
    """What belongs to one of the samples of an item."""

    item: str
    group: str
    kind: str
    sample: Count


class Example(OfSample):
    """One training example: an accepted completion with the prompt it will be trained on."""

    prompt: str
    completion: str
    before: tuple[DialogueTurn, ...] = omit_default(())
    """As in an item."""


NegativeType = Literal[
    "unwarranted_refusal", "wrong_fact", "off_topic", "format_violation", "verbosity", "under_explanation"
]


class Taught(Contract):
    """Whose outputs a chosen response is, where other models wrote it, and who is to learn from them."""

    families: Annotated[tuple[str, ...], Field(min_length=1)]
    """The families of all that did the same."""
    licenses: tuple[str, ...] = ()
    """Under which terms their outputs may be trained on, in the words of a person."""
    student: str
    """The family of the model that is to learn."""
    circular: tuple[str, ...] = ()
    """Why it imitates in a circle; empty if it does not."""
    override: str = ""
    """Why a person accepted that."""


class Preference(Contract):
    """One pair to learn from: a line of a ``preferences`` artifact.

    No split divides a ``group``. Pairs of the user have the first four fields and ``source: given``.
    """

    prompt: Annotated[str, Field(min_length=1)]
    chosen: Annotated[str, Field(min_length=1)]
    rejected: Annotated[str, Field(min_length=1)]
    group: str
    source: Literal["revision", "best_of_n", "verified", "hard_negative", "given"]
    margin: Annotated[float, Field(ge=0)] | None = None
    """The judge's margin for the chosen response, in nats: the smaller of both orders. None: no judge compared them."""
    item: str | None = None
    """The instruction it belongs to."""
    split: Literal["train", "validation"] | None = None
    """None: the stage that trains on it divides it, by group."""
    negative_type: NegativeType | None = None
    """What is wrong with the rejected response, where it was made wrong on purpose."""
    made_by: Literal["sample", "rule", "model"] | None = None
    """How the rejected response came to be: sampled like the chosen one, built by a rule, or written on request."""
    principles: tuple[str, ...] = ()
    """Ids of the principles a revision followed."""
    taught: Taught | None = omit_default()
    """None if it is not stated that another model wrote it."""
    before: tuple[DialogueTurn, ...] = omit_default(())
    """As in an item."""


def earlier_turn_texts(row: Item | Example | Preference) -> list[str]:
    """Return the texts of the turns before a row's prompt."""
    return [turn.content for turn in row.before]
