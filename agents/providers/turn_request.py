"""What a model is asked for one turn, and what comes back, in a form that no vendor prescribes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from agents.turns import ConversationMessage, Stop, ToolCall
from specs.system.vendors.parties import Depth
from specs.system.vendors.prices import TokenUsage
from specs.system.vendors.tool_calls import NO_TEXT as NO_TEXT
from specs.system.vendors.tool_calls import SENDABLE, sendable_arguments
from specs.system.vendors.tool_calls import UNREADABLE as UNREADABLE
from specs.system.vendors.tool_calls import readable as readable
from specs.system.vendors.tool_calls import sendable_name as sendable_name
from specs.system.vendors.tool_calls import sendable_text as sendable_text
from specs.trail.tool_arguments import Tool


class Asking(NamedTuple):
    """One request for one turn."""

    model: str
    system: str
    tools: tuple[Tool, ...]
    messages: tuple[ConversationMessage, ...]
    max_output_tokens: int
    timeout_s: float
    reasoning: Depth | None = None
    hour: bool = False
    """Keep tools and instructions in the prompt cache for an hour: the next request is expected to come late."""
    shortened: int = 0
    """Which of the sizes of ``agents/conversation.py`` the messages have."""


class VendorReply(NamedTuple):
    """A whole answer, as a vendor's API gave it."""

    model: str
    text: str
    calls: tuple[ToolCall, ...]
    stop: Stop
    usage: TokenUsage | None
    written_tokens: int = 0
    verbatim: str = ""
    hour_tokens: int | None = None
    """Written for an hour; None where the API does not tell the two apart."""


@cache
def schema_of(tool: Tool) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments, made once: every turn sends it."""
    return tool.schema()


def sendable_function(call: ToolCall) -> dict[str, str]:
    """Return name and arguments of a call in a form that OpenAI's APIs take back."""
    return {"name": sendable_name(call.name), "arguments": sendable_arguments(call.arguments)}


def call_of(id: str, name: str, arguments: str) -> ToolCall:
    """Return a call as the model wrote it, without lone surrogates."""
    return ToolCall(id=id, name=sendable_text([name]), arguments=sendable_text([arguments]))


def with_ids(calls: Iterable[ToolCall], texts: Iterable[str]) -> tuple[ToolCall, ...]:
    """Return the calls with ids that are unique in the conversation and that every vendor takes back.

    Some endpoints count from 0 in every answer or leave the id empty.
    """
    seen_texts = set(texts)
    tool_calls: list[ToolCall] = []
    for call in calls:
        id, number = call.id, len(seen_texts)
        while not SENDABLE.fullmatch(id) or id in seen_texts:
            id = f"call_{number}"
            number += 1
        seen_texts.add(id)
        tool_calls.append(call if id == call.id else call.model_copy(update={"id": id}))
    return tuple(tool_calls)
