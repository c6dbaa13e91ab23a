"""Question and reply of a model, the same for every vendor and every kind of question. Answers are read strictly."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from specs.system.errors import NoVerdictCause, ReviewerUnavailable
from specs.system.vendors.parties import Depth
from specs.system.vendors.prices import TokenUsage
from specs.trail.tool_arguments import Tool


class AnswerPart(BaseModel):
    """Part of an answer. No field has a default or a limit: neither vendor's schemas allow both."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


PartT = TypeVar("PartT", bound=AnswerPart)


class AnswerForm(NamedTuple):
    """The form of an answer: a name and a JSON Schema, every field required and nothing else allowed."""

    name: str
    schema: dict[str, Any]


class RejectedAnswer(NamedTuple):
    """A model's answer outside of the form, and the error that it is sent."""

    answer: str
    complaint: str


class ModelToolCall(NamedTuple):
    """A model's call of a tool, as it wrote it."""

    id: str
    name: str
    arguments: str


class ModelToolResult(NamedTuple):
    """The answer to a call, as the model is sent it."""

    call: str
    text: str
    is_error: bool


class ToolRound(NamedTuple):
    """An answer with calls in the vendor's form, as JSON, and what the calls were answered."""

    vendor_json: str
    results: tuple[ModelToolResult, ...]


class ModelQuestion(NamedTuple):
    """One request, before a vendor gives it its form."""

    model: str
    instructions: str
    text: str
    form: AnswerForm
    max_output_tokens: int
    timeout_s: float
    reasoning: Depth | None = None
    """How hard to think; None leaves it to the model."""
    again: tuple[RejectedAnswer, ...] = ()
    """What follows, each time the model is asked once more."""
    head: str = ""
    """What precedes the text and is the same in every question of a session."""
    tools: tuple[Tool, ...] = ()
    may_call: bool = True
    """Whether the tools may still be called; they stay named, because earlier calls are part of the conversation."""
    rounds: tuple[ToolRound, ...] = ()
    """Earlier answers with calls."""

    def once_more(self) -> list[tuple[Literal["user", "assistant"], str]]:
        """Return what follows when the model is asked once more: each answer, and what is wrong with it."""
        pairs: list[tuple[Literal["user", "assistant"], str]] = []
        for again in self.again:
            pairs.append(("assistant", again.answer))
            pairs.append(("user", again.complaint))
        return pairs

    def turns(self) -> list[tuple[Literal["user", "assistant"], str]]:
        """Return the conversation without calls: the text, and what follows when the model is asked once more."""
        return [("user", self.head + self.text), *self.once_more()]


class ModelReply(NamedTuple):
    """What a vendor's API returned, before it is read as an answer."""

    model: str
    usage: TokenUsage | None
    text: str
    unusable: str = ""
    """Why the text cannot be a whole answer (refused, cut off, filtered); empty when it can."""
    cause: NoVerdictCause = "incomplete"
    """The same in a word."""
    written_tokens: int = 0
    """Of the input: what was written into the prompt cache, where a vendor charges for that."""
    calls: tuple[ModelToolCall, ...] = ()
    """The answer calls tools and is continued after their results."""
    vendor_json: str = ""
    """An answer with calls in the vendor's form, as JSON."""


def read_part(text: str, part: type[PartT], who: str) -> PartT:
    """Read the text of an answer strictly; raises ReviewerUnavailable if it is empty or not wholly in the form."""
    if not text.strip():
        raise ReviewerUnavailable("the answer is empty", where=who, cause="out_of_schema")
    try:
        return part.model_validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        detail = f"{place}{': ' if place else ''}{first['msg']}"
        what = "the answer does not fit the schema"
        raise ReviewerUnavailable(what, where=who, cause="out_of_schema", detail=detail) from error
