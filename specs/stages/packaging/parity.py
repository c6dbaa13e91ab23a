"""How near llama.cpp has to come to transformers, by the format of the export.

Measured on SmolLM2-135M, 8 chat prompts, 150 steps, cache in float32: f32 every token, logits within 6e-5; 16 bits 149
tokens, a divergence of 4e-6 nats. Elsewhere, 322 steps: 8 bits 309 tokens, 4.3e-3 nats. A flipped token is a near tie,
so the divergence tells more than the share of tokens, which a few dozen steps give coarsely.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal, NamedTuple

GgufFormat = Literal["f32", "f16", "q8_0"]


class Bar(NamedTuple):
    """What an export has to reach."""

    same_tokens: float
    """Share of the steps at which the most likely token is the same."""
    largest_distance: float
    """Of two logits."""
    mean_divergence: float
    """Kullback-Leibler divergence of the next token, in nats, on average."""


BARS: dict[GgufFormat, Bar] = {
    "f32": Bar(1.0, 1e-3, 1e-6),
    "f16": Bar(0.97, 0.5, 1e-4),
    "q8_0": Bar(0.9, 10.0, 2e-2),
}


PACKAGE = "cyllama"


def is_installed() -> bool:
    """Return whether the packages that write and read GGUF files are installed here."""
    return find_spec("gguf") is not None and find_spec(PACKAGE) is not None
