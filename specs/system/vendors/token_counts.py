"""Asks a vendor how many tokens a request has, which costs nothing, before the request itself is paid for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specs.system.vendors.http_exchange import ADDRESSES, UNREADABLE, Api

MARGIN = 1.05
"""Vendors call their count an estimate."""
TIMEOUT_S = 20.0
MOST_BYTES = 2**16
_COUNTED = {
    "anthropic": ("messages", "model", "system", "tools", "tool_choice", "thinking", "output_config"),
    "openai": ("input", "model", "instructions", "tools", "tool_choice", "reasoning", "text"),
}
"""The parts of a request whose tokens are counted, by vendor."""


def counted_tokens(api: Api, request: Mapping[str, Any]) -> int | None:
    """Return the most input tokens of a request as the vendor's SDK takes it; None where no one counts them.

    An endpoint of the user is not asked: few of them count, and a request is not sent there twice.
    """
    # Without its first field it is a request of another API, such as Chat Completions.
    if api.address != ADDRESSES.get(api.vendor) or _COUNTED[api.vendor][0] not in request:
        return None
    body: Any = {name: request[name] for name in _COUNTED[api.vendor] if name in request}
    with api.client(TIMEOUT_S, MOST_BYTES) as http:
        try:
            if api.vendor == "anthropic":
                input_tokens = api.anthropic(http).messages.count_tokens(**body, timeout=TIMEOUT_S).input_tokens
            else:
                input_tokens = api.openai(http).responses.input_tokens.count(**body, timeout=TIMEOUT_S).input_tokens
        except (*api.errors, *UNREADABLE, KeyError):
            return None
    return int(input_tokens * MARGIN) if type(input_tokens) is int and 0 < input_tokens < 2**40 else None
