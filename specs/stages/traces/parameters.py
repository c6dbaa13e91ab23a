"""Parameters of ``replay_traces``."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, StringConstraints

from specs.stages.base.sampling import BatchSize, Seed, Stop, Writing

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


class ReplayTracesParameters(Writing):
    """Show a local model the states of transcripts, and make pairs of what its answers do alike.

    Answers of one model agree with each other more than they are right, and it may be the student: the reason to learn
    from them all the same is part of the registration.
    """

    teacher: Family
    """The family of the model that answers, such as ``smollm``."""
    student: Family
    """The family of the model that is to learn from the pairs."""
    license: Annotated[str, StringConstraints(min_length=1, max_length=200)]
    """Under which terms the teacher's outputs may be trained on, in your words; it travels with every pair."""
    circular: Annotated[str, StringConstraints(strip_whitespace=True, min_length=10, max_length=400)]
    """Why it is accepted that one model agrees with itself. ``peergate traces replay`` asks several families."""
    answers: Annotated[int, Field(ge=2, le=16)] = 2
    """Answers to each state. A pair needs two complete answers that call the same tools and another that does not."""
    max_states: Annotated[int, Field(ge=1)] | None = None
    """How many states are shown, drawn by the seed; all where it is left out."""
    prompt_characters: Annotated[int, Field(ge=500, le=400_000)] = 6_000
    """How much of a history is shown: its newest turns."""
    stops: tuple[Stop, ...] = ()
    """Strings that end an answer, such as an empty line, for a model that does not produce its end token."""
    temperature: Annotated[float, Field(gt=0, le=2)] = 0.7
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    repetition_penalty: Annotated[float, Field(ge=1, le=2)] = 1.0
    max_new_tokens: Annotated[int, Field(ge=1, le=32_768)] = 256
    batch_size: BatchSize = 8
    seed: Seed = 0
