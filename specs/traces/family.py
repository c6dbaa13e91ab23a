"""The families that models descend from, as their names show them."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import StringConstraints

Family = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,39}$")]
_FAMILIES = (
    (r"claude", "claude"),
    (r"gpt-oss", "gpt-oss"),
    (r"(chat)?gpt-|o[1-9](-|$)|codex", "gpt"),
    (r"gemini", "gemini"),
    (r"gemma", "gemma"),
    (r"(code)?llama", "llama"),
    (r"qwen|qwq", "qwen"),
    (r"(open-)?mi[sx]tral|magistral|codestral|devstral|ministral", "mistral"),
    (r"deepseek", "deepseek"),
    (r"smollm", "smollm"),
    (r"kimi", "kimi"),
    (r"glm", "glm"),
    (r"grok", "grok"),
    (r"phi-", "phi"),
)


def family_of(model: str) -> str | None:
    """Return the family that a model's name shows, such as ``claude``; None if it shows none."""
    name = model.lower().rpartition("/")[2]
    return next((family for pattern, family in _FAMILIES if re.match(pattern, name)), None)
