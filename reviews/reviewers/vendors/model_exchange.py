"""The question a reviewer's model is asked, the same for every kind of question. Answers are read strictly."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from specs.system.errors import ReviewerUnavailable
from specs.system.vendors.conversation import AnswerForm, ConversationMessage, ModelRequest, ToolResult
from specs.system.vendors.parties import Depth
from specs.trail.tool_arguments import Tool


class AnswerPart(BaseModel):
    """Part of an answer. No field has a default or a limit: neither vendor's schemas allow both."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


PartT = TypeVar("PartT", bound=AnswerPart)


class RejectedAnswer(NamedTuple):
    """A model's answer outside of the form, and the error that it is sent."""

    answer: str
    complaint: str


class ToolRound(NamedTuple):
    """An answer with calls, and what the calls were answered."""

    answer: ConversationMessage
    results: tuple[ToolResult, ...]


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

    def request(self) -> ModelRequest:
        """Return the request that a vendor gives its form."""
        messages = [ConversationMessage("user", self.text, head=self.head)]
        for tool_round in self.rounds:
            messages += [tool_round.answer, ConversationMessage("user", results=tool_round.results)]
        for again in self.again:
            messages += [ConversationMessage("assistant", again.answer), ConversationMessage("user", again.complaint)]
        return ModelRequest(
            self.model,
            self.instructions,
            tuple(messages),
            self.max_output_tokens,
            self.timeout_s,
            self.tools,
            self.reasoning,
            self.form,
            self.may_call,
        )


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
