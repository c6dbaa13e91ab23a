"""What llama.cpp calls the settings and tensors of a checkpoint, and the numbers that it gets of them.

Format and names: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md and the package gguf.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from specs.system.regular_files import open_regular

ARCHITECTURES = {"LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3"}
"""Models that were compared with transformers, greedy answers token for token, and their name in llama.cpp."""


class NoGguf(Exception):
    """A checkpoint cannot be written for llama.cpp; the message says why."""


def require_plain(config: Any) -> None:
    """Refuse settings that llama.cpp would not read from this file."""
    rope = config.rope_parameters or {}
    plain = {
        "rope_type": (rope.get("rope_type", "default"), "default"),
        "partial_rotary_factor": (rope.get("partial_rotary_factor", 1.0), 1.0),
        "hidden_act": (config.hidden_act, "silu"),
        **{
            name: (getattr(config, name, False), False) for name in ("mlp_bias", "attention_bias", "use_sliding_window")
        },
    }
    other = {name: flag for name, (flag, known) in plain.items() if flag != known}
    if other:
        message = ", ".join(f"{name} {flag}" for name, flag in other.items())
        raise NoGguf(f"the checkpoint has {message}, which cannot be converted for llama.cpp")


def describe(writer: Any, config: Any) -> None:
    """Write the settings that decide what the weights compute."""
    heads = config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.num_key_value_heads or heads)
    writer.add_key_length(width)
    writer.add_value_length(width)
    writer.add_rope_dimension_count(width)
    writer.add_rope_freq_base(float(config.rope_parameters["rope_theta"]))
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)


def tensors_in(folder: Path, config: Any) -> Iterator[tuple[Path, str, tuple[int, ...]]]:
    """Yield file, name and shape of every tensor, but a tied output embedding."""
    from safetensors import safe_open

    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise NoGguf(f"no weights (*.safetensors) in {folder}")
    for file in files:
        open_regular(file).close()
        with safe_open(file, framework="pt") as opened:
            for name in sorted(opened.keys()):
                if name == "lm_head.weight" and config.tie_word_embeddings:
                    continue
                yield file, name, tuple(opened.get_slice(name).get_shape())


def values_in(file: Path, tensor: str, config: Any, name: str) -> Any:
    """Return a tensor in float32, with the rows of queries and keys in the order of llama.cpp's rotation."""
    from safetensors import safe_open

    with safe_open(file, framework="pt") as opened:
        values: Any = opened.get_tensor(tensor).float().numpy()
    if name == "llama" and tensor.endswith("q_proj.weight"):
        return _interleave_heads(values, config.num_attention_heads)
    if name == "llama" and tensor.endswith("k_proj.weight"):
        return _interleave_heads(values, config.num_key_value_heads or config.num_attention_heads)
    return values


def _interleave_heads(values: Any, heads: int) -> Any:
    """Return rows with the two halves of each head interleaved. [heads * width, hidden] in and out.

    Transformers turns the first half of a head against the second; llama.cpp's ``llama`` turns neighbours.
    """
    import numpy

    rows, *rest = values.shape
    halves = values.reshape(heads, 2, rows // heads // 2, *rest)
    return numpy.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))
