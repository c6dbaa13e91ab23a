"""How an answer ended, and in which form it was asked."""

from __future__ import annotations

from typing import Literal

Form = Literal["completion", "chat"]
"""How a model is prompted: bare text that it continues, or its chat template."""

Finish = Literal["eos", "stop", "length"]
"""How an answer ended: by the end token, before a stop string, or at the limit of tokens."""


def require_ending(truncated: bool, finish: Finish | None, stop: str | None) -> None:
    """Raise a ValueError where what a row says of its end contradicts itself; early rows say nothing."""
    if finish is not None and truncated != (finish == "length"):
        raise ValueError(f"truncated is {truncated}, and finish is '{finish}'")
    if (stop is not None) != (finish == "stop"):
        raise ValueError(f"finish is '{finish}', and stop is {stop!r}")
