"""How near llama.cpp has to come to transformers, by the format of the export.

Measured on SmolLM2-135M (10 chat prompts, 322 steps, cache in float32): f32 1.2e-4 at most and every token; 16 bits
every token; 8 bits 309 of 322 tokens, a mean divergence of 4.3e-3. Text of 8 bits parts from that of the checkpoint
after a few tokens, so its tokens are compared one by one after the checkpoint's own.
"""

from __future__ import annotations

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
    "f16": Bar(0.995, 0.5, 1e-3),
    "q8_0": Bar(0.94, 10.0, 1e-2),
}
