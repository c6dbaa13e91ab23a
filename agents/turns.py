"""What passes between a builder's model and its tools, the same for every vendor."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field

from specs.digests import Contract


class ToolCall(Contract):
    """One call as the model wrote it. Nothing of it is trusted: the name may be unknown, the arguments malformed."""

    id: str
    name: str
    arguments: str
    """JSON text, exactly as it came."""


class ToolResult(Contract):
    """The answer to one call. The text may hold untrusted data; it never carries instructions of ours."""

    call: str
    """The id of the call it answers."""
    text: str
    is_error: bool = False


class Usage(Contract):
    """Tokens as the API counted them. ``input_tokens`` holds the cached and the written ones too."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    """Read from the prompt cache."""
    written_tokens: int = 0
    """Written into the prompt cache, where a vendor charges for that."""


Stop = Literal["tool_use", "end", "length", "refusal"]


class Turn(Contract):
    """One whole answer of the model. An answer that was cut off on the wire is none."""

    text: str
    calls: tuple[ToolCall, ...]
    """Empty unless ``stop`` is ``tool_use``: calls of an answer that ended early are not whole."""
    stop: Stop
    model: str
    usage: Usage | None
    usd: float
    usd_is_measured: bool
    """False: the API did not say what it counted, so the cap counts as the price."""
    verbatim: str = Field(default="", exclude_if=lambda given: not given)
    """The answer as JSON in the vendor's own form, where the vendor wants more of it back than text and calls."""


class Message(NamedTuple):
    """One message of a conversation. Calls and verbatim belong to the assistant, results to the user."""

    role: Literal["user", "assistant"]
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    verbatim: str = ""
    results: tuple[ToolResult, ...] = ()
    """Come before the text."""
