"""Raw rows of the kinds that measure a model."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from specs.stages.base.sampling import Finish, Ids, PromptRead, ended_once
from specs.stages.base.witness import Arrangement
from specs.system.digests import Contract, Count, Digest, Positive, omit_default


class PromptedRow(Contract):
    """A row about one item that a model read."""

    item: str
    prompt_digest: Digest | None = omit_default()
    """The digest of the token ids that the model read; turns and requests have their own."""

    def first_prompt(self) -> PromptRead:
        """Return what the model read first, before any answer."""
        return PromptRead(self.prompt_digest, getattr(self, "prompt_tokens", 0))


class EvaluationRow(PromptedRow):
    """One answer to one held-out item."""

    sample: Count = omit_default(0)
    """Which answer to the item it is."""
    prompt_tokens: Count
    output: str
    output_tokens: Count
    truncated: bool
    finish: Finish | None = omit_default()
    """None in rows that were written before it was kept."""
    stop: str | None = omit_default()
    """The stop string that ended it."""
    answer_ids: Ids | None = omit_default()
    """None in rows that were written before they were kept."""
    _ended_once = model_validator(mode="after")(ended_once)


Nats = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""A negative log-likelihood, summed over tokens."""


class PerplexityRow(PromptedRow):
    """One text: its surprise, and by how much of it that is to be divided."""

    nats: Nats
    tokens: Positive
    """Model tokens, each scored once; the token put before the text is not one of them."""
    bytes: Positive
    """UTF-8 bytes of the text."""
    windows: Positive


class ChoiceScore(Contract):
    """One choice after its question."""

    nats: Nats
    tokens: Positive
    bytes: Positive
    """UTF-8 bytes of the choice, the space before it not counted."""


class ChoiceRow(PromptedRow):
    """One question; the choices in the order of the item. Only the item says which one is right."""

    prompt_tokens: Positive
    choices: tuple[ChoiceScore, ...] = Field(min_length=2)


class DuelRow(Contract):
    """Two answers to one item as a judge compared them; ``plain`` shows the reference first, ``swapped`` last.

    In an arrangement "good" means that the reference is preferred.
    """

    item: str
    reference: str
    candidate: str
    rubric: Digest
    plain: Arrangement
    swapped: Arrangement
    preferred: Literal["reference", "candidate"] | None
    """None: a tie."""


class ConversationTurn(Contract):
    """One turn: what the user said and what was answered."""

    user: str
    output: str
    prompt_tokens: Positive
    prompt_digest: Digest | None = omit_default()
    """The digest of the token ids that the model read."""
    output_tokens: Count
    truncated: bool
    finish: Finish | None = omit_default()
    """None in rows that were written before it was kept."""
    stop: str | None = omit_default()
    """The stop string that ended it."""
    answer_ids: Ids | None = omit_default()
    """None in rows that were written before they were kept."""
    _ended_once = model_validator(mode="after")(ended_once)


class ConversationRow(PromptedRow):
    """One conversation, all of its turns in order."""

    turns: tuple[ConversationTurn, ...] = Field(min_length=1)

    def first_prompt(self) -> PromptRead:
        """Return what the model read in the first turn."""
        return PromptRead(self.turns[0].prompt_digest, self.turns[0].prompt_tokens)


class RequestMessage(Contract):
    """One message of a request."""

    role: Literal["system", "user", "assistant"]
    content: str


class ModelCall(Contract):
    """One request of a task to the model, and the answer."""

    messages: tuple[RequestMessage, ...] = Field(min_length=1)
    prompt_tokens: Positive
    prompt_digest: Digest | None = omit_default()
    """The digest of the token ids that the model read."""
    max_new_tokens: Positive
    """The most tokens that were asked for."""
    stops: tuple[str, ...] = ()
    output: str
    output_tokens: Count
    truncated: bool
    finish: Finish
    stop: str | None = None
    """The stop string that ended it."""
    answer_ids: Ids
    draw: Count = omit_default(0)
    """How many requests of the stage had this prompt before: a sampled answer is drawn from the stream of both."""
    _ended_once = model_validator(mode="after")(ended_once)


class BenchmarkRow(PromptedRow):
    """One sample of a benchmark's task: what the model was asked for it, and what the scorers claim."""

    unique_by = ("item", "sample")

    sample: Count = omit_default(0)
    """Which answer to the item it is."""
    calls: tuple[ModelCall, ...] = Field(min_length=1)
    """In the order in which the model was asked."""
    output: str
    """The answer that was scored."""
    target: tuple[str, ...]
    """What the task held for right."""
    scores: dict[str, str | bool | float | None]
    """Scores by scorer; None for a scorer that returns several values."""
    correct: bool
    """Whether the registered scorer claims that the answer is right."""

    def first_prompt(self) -> PromptRead:
        """Return what the model read in the first request."""
        return PromptRead(self.calls[0].prompt_digest, self.calls[0].prompt_tokens)

    @property
    def truncated(self) -> bool:
        """Return whether an answer hit the token limit."""
        return any(call.truncated for call in self.calls)

    @property
    def output_tokens(self) -> int:
        """The tokens of all answers."""
        return sum(call.output_tokens for call in self.calls)
