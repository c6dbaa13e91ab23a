"""A turn of a builder's model, as it is recorded."""

from __future__ import annotations

from pydantic import Field

from specs.system.digests import Contract
from specs.system.vendors.conversation import Stop, ToolCall


class TurnUsage(Contract):
    """Tokens as the API counted them. ``input_tokens`` includes those read from and written into the cache."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    written_tokens: int = 0
    """Where a vendor charges for writing into the prompt cache."""
    hour_tokens: int = Field(default=0, exclude_if=lambda arguments: not arguments)
    """The cached tokens that are kept for an hour, which costs more."""


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
    """The step by which its conversation was shortened if it was too long (``agents/conversation.py``)."""
