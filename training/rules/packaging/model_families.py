"""Which tensors a configuration declares, name and shape, for the decoders whose layout is known here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


class Family(NamedTuple):
    """How a family of decoders departs from the common layout."""

    architecture: str
    attention_biases: tuple[str, ...] = ()
    """Projections with a bias, whatever the configuration says."""
    head_norms: bool = False


FAMILIES = {
    "llama": Family("LlamaForCausalLM"),
    "mistral": Family("MistralForCausalLM"),
    "qwen2": Family("Qwen2ForCausalLM", attention_biases=("q_proj", "k_proj", "v_proj")),
    "qwen3": Family("Qwen3ForCausalLM", head_norms=True),
}
"""The families by ``model_type``."""

REQUIRED = (
    *("model_type", "architectures", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "vocab_size", "max_position_embeddings", "rms_norm_eps"),
)
"""Keys whose default would be that of another model."""

_SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
_MOST_LAYERS = 10_000


def family_of(config: dict[str, Any]) -> Family | None:
    """Return the family that ``model_type`` names; None if that family is not known here."""
    named = config.get("model_type")
    return FAMILIES.get(named) if isinstance(named, str) else None


def wrong_sizes(config: dict[str, Any]) -> tuple[str, ...]:
    """Return the keys of sizes that are not positive numbers."""
    return tuple(name for name in (*_SIZES, "vocab_size") if not _is_size(config.get(name)))


def declared_tensors(config: dict[str, Any]) -> dict[str, tuple[int, ...]] | None:
    """Return the tensors a configuration declares; None for another family, or sizes that are missing or impossible."""
    family = family_of(config)
    if family is None or wrong_sizes(config) or config["num_hidden_layers"] > _MOST_LAYERS:
        return None
    head_dim: Any = config.get("head_dim")
    width: int = head_dim if _is_size(head_dim) else config["hidden_size"] // config["num_attention_heads"]
    return dict(_tensors(config, family, width))


def _tensors(config: dict[str, Any], family: Family, width: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, inner, rows = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    queries, keys = config["num_attention_heads"] * width, config["num_key_value_heads"] * width
    attention = {"q_proj": (queries, hidden), "k_proj": (keys, hidden), "v_proj": (keys, hidden)}
    attention["o_proj"] = (hidden, queries)
    forward = {"gate_proj": (inner, hidden), "up_proj": (inner, hidden), "down_proj": (hidden, inner)}
    biased = tuple(attention) if config.get("attention_bias") is True else family.attention_biases
    yield EMBEDDING, (rows, hidden)
    for layer in range(config["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        for name, shape in attention.items():
            yield f"{at}.self_attn.{name}.weight", shape
            if name in biased:
                yield f"{at}.self_attn.{name}.bias", shape[:1]
        for name, shape in forward.items():
            yield f"{at}.mlp.{name}.weight", shape
            if config.get("mlp_bias") is True:
                yield f"{at}.mlp.{name}.bias", shape[:1]
        if family.head_norms:
            yield f"{at}.self_attn.q_norm.weight", (width,)
            yield f"{at}.self_attn.k_norm.weight", (width,)
        yield f"{at}.input_layernorm.weight", (hidden,)
        yield f"{at}.post_attention_layernorm.weight", (hidden,)
    yield "model.norm.weight", (hidden,)
    yield HEAD, (rows, hidden)


def _is_size(arguments: Any) -> bool:
    return isinstance(arguments, int) and not isinstance(arguments, bool) and 0 < arguments < 2**31
