"""Puts the pieces of a vendor's stream together. Builders and reviewers read the result in their own way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # The SDKs are imported by anyone who asks.
    from anthropic.types import RawMessageStreamEvent
    from openai.types.responses import Response, ResponseOutputItem, ResponseStreamEvent

PASSING = ("server_error", "rate_limit_exceeded")
"""Codes of a failed response of OpenAI that may not come again; the others blame the request."""


class IncompleteStream(Exception):
    """The stream ended without a whole answer."""

    def __init__(self, message: str, *, passes: bool = True) -> None:
        super().__init__(message)
        self.passes = passes
        """Whether asking again can help."""


class StreamedMessage(NamedTuple):
    """A whole message of Anthropic's API."""

    model: str
    stop: str | None
    blocks: list[dict[str, Any]]
    """In order: the fields a block began with, its later texts as ``pieces``, and its ``signature``."""
    counts: dict[str, int | None]
    """Tokens by the names of the API."""


def anthropic_message(events: Iterable[RawMessageStreamEvent]) -> StreamedMessage:
    """Return the message of a stream; raises IncompleteStream if the stream ends before the message does."""
    model, stop, ended = "", None, False
    counts: dict[str, int | None] = {}
    blocks: dict[int, dict[str, Any]] = {}
    for event in events:
        if event.type == "message_start":
            model = event.message.model
            counts |= vars(event.message.usage)
        elif event.type == "content_block_start":
            blocks[event.index] = {**vars(event.content_block), "pieces": [], "signature": ""}
        elif event.type == "content_block_delta":
            block, delta = blocks[event.index], event.delta
            if delta.type == "text_delta":
                block["pieces"].append(delta.text)
            elif delta.type == "input_json_delta":
                block["pieces"].append(delta.partial_json)
            elif delta.type == "thinking_delta":
                block["pieces"].append(delta.thinking)
            elif delta.type == "signature_delta":
                block["signature"] += delta.signature
        elif event.type == "message_delta":
            stop = event.delta.stop_reason
            # Cumulative; a count that a later event leaves out keeps its value.
            counts |= {name: count for name, count in vars(event.usage).items() if count is not None}
        elif event.type == "message_stop":
            ended = True
    if not ended:
        raise IncompleteStream(f"the stream ended before the message did, with stop reason '{stop}'")
    return StreamedMessage(model, stop, [blocks[index] for index in sorted(blocks)], counts)


def openai_response(events: Iterable[ResponseStreamEvent]) -> tuple[Response, list[ResponseOutputItem]]:
    """Return the response of a stream, failed or not, and its finished items; raises IncompleteStream if it is cut."""
    items: dict[int, ResponseOutputItem] = {}
    for event in events:
        if event.type == "response.output_item.done":
            items[event.output_index] = event.item
        elif event.type == "error":
            raise IncompleteStream(
                f"the stream reports {event.code}: {event.message}", passes=event.code in (None, *PASSING)
            )
        elif (
            event.type == "response.completed" or event.type == "response.incomplete" or event.type == "response.failed"
        ):
            return event.response, [items[index] for index in sorted(items)]
    raise IncompleteStream("the stream ended before the response did")
