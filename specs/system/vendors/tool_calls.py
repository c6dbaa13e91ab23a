"""A model's calls of tools in the forms in which vendors want them back. Names and arguments are untrusted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:  # The SDKs are imported by anyone who asks.
    from openai.types.responses import ResponseOutputItem

NO_TEXT = "(no text)"
"""Replaces an empty answer: no vendor takes one back."""
UNREADABLE = "malformed_json"
SENDABLE = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The name of a tool, or an id."""
NO_REASONING = re.compile(r"(ft:)?(gpt-3|gpt-4|chatgpt-|gpt-[\d.]+-chat|gpt-chat)")
"""Models of OpenAI without reasoning: they refuse a request for its encrypted form."""


def readable(arguments: str) -> dict[str, Any]:
    """Return arguments as the JSON object that vendors want back; anything else becomes a text in one.

    The call itself is carried out with what the model wrote, never with this.
    """
    try:
        value = json.loads(arguments)
        # Refuses NaN, and a lone surrogate: it passes the parser and cannot be sent.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return {UNREADABLE: arguments}
    return cast(dict[str, Any], value) if isinstance(value, dict) else {UNREADABLE: arguments}


def sendable_arguments(arguments: str) -> str:
    """Return arguments as the model wrote them, or, where they are not JSON object, as the text of one."""
    value = readable(arguments)
    try:
        return arguments if json.loads(arguments) == value else json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return json.dumps(value, ensure_ascii=False)


def sendable_name(name: str) -> str:
    """Return the name of a called tool in a form that every vendor takes back."""
    return name if SENDABLE.fullmatch(name) else "unknown_tool"


def sendable_text(pieces: Iterable[str]) -> str:
    """Join the pieces of a text; lone surrogates, which cannot be written in UTF-8, are replaced."""
    return "".join(pieces).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def anthropic_arguments(block: dict[str, Any]) -> str:
    """Return the arguments of a streamed ``tool_use`` block as the model wrote them."""
    return sendable_text(["".join(block["pieces"]) or json.dumps(block["input"] or {})])


def anthropic_content(blocks: Iterable[dict[str, Any]]) -> str:
    """Return a streamed answer of Anthropic as it has to go back, as JSON: thinking signed and in its place."""
    arguments: list[dict[str, Any]] = []
    for block in blocks:
        joined = "".join(block["pieces"])
        if block["type"] == "thinking":
            text = block["thinking"] + joined
            arguments.append({"type": "thinking", "thinking": text, "signature": block["signature"]})
        elif block["type"] == "redacted_thinking":
            arguments.append({"type": "redacted_thinking", "data": block["data"]})
        elif block["type"] == "text" and (block["text"] + joined).strip():
            arguments.append({"type": "text", "text": block["text"] + joined})
        elif block["type"] == "tool_use":
            name, value = sendable_name(sendable_text([block["name"]])), readable(anthropic_arguments(block))
            arguments.append({"type": "tool_use", "id": block["id"], "name": name, "input": value})
    return sendable_text([json.dumps(arguments, ensure_ascii=False)])


def openai_content(items: Iterable[ResponseOutputItem]) -> str:
    """Return the items of a response as they have to go back, as JSON; a field without a value is refused.

    OpenAI refuses a call without the reasoning that led to it, and reasoning without what it led to. Empty if nothing
    is left.
    """
    arguments = [item.to_dict(mode="json", exclude_none=True) for item in items]
    while arguments and arguments[-1]["type"] == "reasoning":
        arguments.pop()
    for value in arguments:
        if value["type"] == "function_call":
            value["name"] = sendable_name(str(value["name"]))
            value["arguments"] = sendable_arguments(str(value["arguments"]))
    return sendable_text([json.dumps(arguments, ensure_ascii=False)]) if arguments else ""
