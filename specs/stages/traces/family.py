"""The families that models descend from, as their names show them in the spelling of any provider."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import StringConstraints

Family = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,39}$")]
_FAMILIES = (
    (r"claude", "claude"),
    (r"gpt-oss", "gpt-oss"),
    (r"(?:chat)?gpt|o[1-9](?!\d)|codex|davinci", "gpt"),
    (r"gemini", "gemini"),
    (r"(?:code|shield|pali|med)?gemma", "gemma"),
    (r"(?:code|meta-)?llama(?:-v)?", "llama"),
    (r"qwen|qwq|qvq", "qwen"),
    (r"(?:open-)?mi[sx]tral|magistral|codestral|devstral|ministral|pixtral|voxtral", "mistral"),
    (r"deepseek", "deepseek"),
    (r"smollm|smolvlm", "smollm"),
    (r"kimi|moonshot", "kimi"),
    (r"(?:chat)?glm", "glm"),
    (r"grok", "grok"),
    (r"phi", "phi"),
    (r"nova", "nova"),
    (r"command(?:-r)?|c4ai", "command"),
    (r"jamba", "jamba"),
    (r"granite", "granite"),
    (r"olmo", "olmo"),
    (r"minimax|abab", "minimax"),
    (r"nemotron", "nemotron"),
)
_WHOLE = tuple((re.compile(rf"(?:{pattern})(?![a-z])"), family) for pattern, family in _FAMILIES)
"""A family is the whole first word of a name: "phi-3" and "phi3", not "philosopher"."""


def family_of(model: str) -> str | None:
    """Return the family that a model's name shows, such as ``claude``; None if it shows none.

    A name may be a path ("meta-llama/Llama-3.1-8B"), one of Bedrock ("us.anthropic.claude-sonnet-4-v1:0", or its ARN),
    of Vertex ("claude-sonnet-4@20250514") or of a fine-tuned model ("ft:gpt-4o:lab::abc"): its last part that begins
    with a known name counts.
    """
    for part in reversed(model.lower().split("/")):
        for word in re.split(r"[.:@]", part):
            for pattern, family in _WHOLE:
                if pattern.match(word):
                    return family
    return None
