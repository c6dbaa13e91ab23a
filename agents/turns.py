"""What passes between a builder's model and its tools, the same for every vendor."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field

from specs.system.digests import Contract


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


class TurnUsage(Contract):
    """Tokens as the API counted them. ``input_tokens`` includes those read from and written into the cache."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    written_tokens: int = 0
    """Where a vendor charges for writing into the prompt cache."""
    hour_tokens: int = Field(default=0, exclude_if=lambda arguments: not arguments)
    """Those of them that the cache keeps for an hour, which costs more."""


Stop = Literal["tool_use", "end", "length", "refusal"]


class ModelTurn(Contract):
    """One complete answer of the model; answers cut off on the wire are never stored here."""

    text: str
    calls: tuple[ToolCall, ...]
    """Empty unless ``stop`` is ``tool_use``: calls of an answer that ended early are not whole."""
    stop: Stop
    model: str
    usage: TurnUsage | None
    usd: float
    usd_is_measured: bool
    """False: the API reported no counts, so the cap is the price."""
    verbatim: str = Field(default="", exclude_if=lambda arguments: not arguments)
    """The answer as JSON in the vendor's form, where the vendor wants more back than text and calls."""
    shortened: int = Field(default=0, exclude_if=lambda arguments: not arguments)
    """By which step its conversation was shortened, for a model that found it too long (``agents/conversation.py``)."""


class ConversationMessage(NamedTuple):
    """One message of a conversation. Calls and verbatim belong to the assistant, results to the user."""

    role: Literal["user", "assistant"]
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    verbatim: str = ""
    results: tuple[ToolResult, ...] = ()
    """Come before the text."""

    def without_images(self) -> ConversationMessage:
        """Return the message for a model that does not see."""
        if not any(result.image for result in self.results):
            return self
        return self._replace(results=tuple(result.model_copy(update={"image": ""}) for result in self.results))
