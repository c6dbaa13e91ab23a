"""A request to a model and its reply, in a form that no vendor prescribes: builders and reviewers send the same."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, NamedTuple, Protocol

from pydantic import Field

from specs.system.digests import Contract
from specs.system.vendors.parties import Depth
from specs.system.vendors.prices import TokenUsage
from specs.system.vendors.tool_calls import sendable_arguments, sendable_name, sendable_text

Stop = Literal["tool_use", "end", "length", "refusal"]
"""Why a whole answer ended."""
ReplyStop = Stop | Literal["failed"]


class ToolCall(Contract):
    """One call as the model wrote it, untrusted: the name may be unknown, the arguments malformed."""

    id: str
    name: str
    arguments: str
    """JSON text, exactly as it came."""


class ToolResult(Contract):
    """The answer to one call. The text may hold untrusted data, never instructions of ours."""

    call: str
    """The id of the call it answers."""
    text: str
    is_error: bool = False
    image: str = Field(default="", exclude_if=lambda arguments: not arguments)
    """A PNG in base64, next to the text."""


class ConversationMessage(NamedTuple):
    """One message of a conversation. Calls and verbatim belong to the assistant, results and head to the user."""

    role: Literal["user", "assistant"]
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    verbatim: str = ""
    """An answer in the vendor's form, as JSON, where it has to go back as it came."""
    results: tuple[ToolResult, ...] = ()
    """Come before the text."""
    head: str = ""
    """Comes before the text, and is the same in every request of a session, so that a prompt cache can hold it."""

    def without_images(self) -> ConversationMessage:
        """Return the message for a model that does not see."""
        if not any(result.image for result in self.results):
            return self
        return self._replace(results=tuple(result.model_copy(update={"image": ""}) for result in self.results))


class OfferedTool(Protocol):
    """A tool that a model may call."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def description(self) -> str:
        """What the model reads about it."""
        ...

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of its arguments."""
        ...

    def __hash__(self) -> int: ...


class AnswerForm(NamedTuple):
    """The form of an answer: a name and a JSON Schema, every field required and nothing else allowed."""

    name: str
    schema: dict[str, Any]
    as_json_object: bool = False
    """Chat completions: send the schema next to the type ``json_object``, the form of llama-cpp-python's server."""


class ModelRequest(NamedTuple):
    """One request. The same request gives the same bytes; a longer conversation begins with the same bytes."""

    model: str
    system: str
    messages: tuple[ConversationMessage, ...]
    max_output_tokens: int
    timeout_s: float
    tools: tuple[OfferedTool, ...] = ()
    reasoning: Depth | None = None
    """How hard to think; None leaves it to the model."""
    form: AnswerForm | None = None
    """The form of the answer; None for free text."""
    may_call: bool = True
    """Whether the tools may still be called; they stay named, because earlier calls are part of the conversation."""
    hour: bool = False
    """Keep tools and instructions in the prompt cache for an hour: the next request is expected to come late."""
    shortened: int = 0
    """By how many steps the messages were shortened; recorded with the turn."""


class ModelReply(NamedTuple):
    """An answer as a vendor's API gave it, whole or not."""

    model: str
    text: str
    calls: tuple[ToolCall, ...]
    """Empty unless ``stop`` is ``tool_use``: calls of an answer that ended early are not whole."""
    stop: ReplyStop
    reason: str
    """Why it ended, in the vendor's words."""
    usage: TokenUsage | None
    written_tokens: int = 0
    """Input tokens written into the prompt cache, if the vendor charges for that."""
    hour_tokens: int | None = None
    """Written for an hour; None where the API does not tell the two apart."""
    verbatim: str = ""
    """The answer as JSON in the vendor's form, where the vendor wants more back than text and calls."""
    can_repeat: bool = True
    """Whether asking again can help where it failed."""
    is_fault: bool = False
    """Whether it failed by a fault that the API reports."""


@cache
def schema_of(tool: OfferedTool) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments, made once: every request sends it."""
    return tool.schema()


def sendable_function(call: ToolCall) -> dict[str, str]:
    """Return name and arguments of a call in a form that OpenAI's APIs take back."""
    return {"name": sendable_name(call.name), "arguments": sendable_arguments(call.arguments)}


def call_of(id: str, name: str, arguments: str) -> ToolCall:
    """Return a call as the model wrote it, without lone surrogates."""
    return ToolCall(id=id, name=sendable_text([name]), arguments=sendable_text([arguments]))
