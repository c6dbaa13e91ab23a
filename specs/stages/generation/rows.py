"""Raw rows of the kinds that sample text."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from specs.stages.base.artifacts import OfSample
from specs.stages.base.sampling import Finish, Form, Ids, ended_once
from specs.system.digests import Contract, Count, omit_default


class GenerationRow(OfSample):
    """One sampled completion."""

    prompt: str
    completion: str
    completion_tokens: Count
    truncated: bool
    finish: Finish | None = omit_default()
    """None in rows that were written before it was kept."""
    stop: str | None = omit_default()
    """The stop string that ended it."""
    answer_ids: Ids | None = omit_default()
    """None in rows that were written before they were kept."""
    _ended_once = model_validator(mode="after")(ended_once)


class BaseModelCheckRow(Contract):
    """One sentinel given to one model in one way, with what the tokenizer made of it."""

    sentinel: str
    model: Literal["declared", "control"]
    form: Form
    prompt: str
    """What was to be encoded; for the form ``chat`` the text of the template with the prompt inside."""
    ids: tuple[Count, ...]
    """The token ids as the stages encode it."""
    ids_with_special: tuple[Count, ...]
    """The token ids if the tokenizer may add special tokens."""
    decoded: str
    """The text of the ids."""
    template_ids: tuple[Count, ...]
    """Positions in ``ids`` that hold a special token or one of the chat template."""
    has_chat_template: bool
    output: str
    output_tokens: Count
    finish: Finish
    stop: str | None = None
    answer_ids: Ids | None = omit_default()
    """None in rows that were written before they were kept."""


class SelfInstructRow(Contract):
    """One call for new instructions: the examples shown, the request and the response."""

    unique_by = ("shard", "round", "call", "probe")

    shard: Count
    round: Count
    call: Count
    """Within the round, from 0."""
    probe: Annotated[int, Field(ge=0, le=3)]
    """0 for the work itself; 1 and 2 repeat the same calls with the same seed, 3 with another."""
    seed: Count
    form: Form
    topic: str
    examples: tuple[str, ...]
    """Ids of the instructions that stood in the prompt, in order."""
    first: Count
    """The number the model had to continue with."""
    prompt: str
    prompt_tokens: Count
    raw: str
    tokens: Count
    finish: Finish
    stop: str | None
    answer_ids: Ids | None = omit_default()
    """None in rows that were written before they were kept."""


class SampleResponsesRow(OfSample):
    """One answer to one instruction, before and after cleaning."""

    shard: Count
    seed: Count
    form: Form
    instruction: str
    prompt: str
    """All of what the model read, examples included."""
    prompt_tokens: Count
    raw: str
    """The raw text, up to the stop string."""
    tokens: Count
    finish: Finish
    stop: str | None
    answer_ids: Ids | None = omit_default()
    """None in rows that were written before they were kept."""
    completion: str
    """After cleaning."""
    completion_tokens: Count
    """Tokens of the cleaned text, by the tokenizer of the checkpoint that wrote it."""
    cleaned_by: tuple[str, ...]
    """The steps that changed something, in order."""
    marks: tuple[str, ...]
    """What speaks against keeping it; none for an answer that is kept."""
