"""Does a GGUF file carry every setting of its checkpoint that changes what is computed?

llama.cpp takes a default where a key is absent, without a word: a model whose positions are scaled becomes another one.
Each key of config.json and generation_config.json is carried by a rule here, changes nothing, or is named as unknown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from training.rules.packaging.bounded_json import WrongFile
from training.rules.packaging.checkpoint_folder import CheckpointFolder, ends_of
from training.rules.packaging.flaw import Flaw, NotRun
from training.rules.packaging.gguf_header import GgufHeader
from training.rules.weight_files import quote_name

_AGAIN = "export the checkpoint again, with a converter that writes it"

SIZES = {
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
}
"""Key of config.json -> that of the file, below its architecture."""
COMPARED = {
    *("architectures", "model_type", "vocab_size", "head_dim", "rope_theta", "rope_scaling", "rope_parameters"),
    *("partial_rotary_factor", "tie_word_embeddings", "attention_bias", "mlp_bias", "sliding_window", "hidden_act"),
    *("use_sliding_window", "layer_types", "bos_token_id", "eos_token_id", "quantization_config", "auto_map"),
    *SIZES,
}
"""Keys of config.json that a rule compares, in this module or elsewhere."""
NEUTRAL = {
    *("transformers_version", "torch_dtype", "dtype", "use_cache", "initializer_range"),
    *("attention_dropout", "pretraining_tp", "pad_token_id", "max_window_layers", "name_or_path", "tokenizer_class"),
    *("return_dict", "output_attentions", "output_hidden_states", "id2label", "label2id", "problem_type"),
    *("finetuning_task", "chunk_size_feed_forward", "is_encoder_decoder", "is_llama_config", "rope_interleaved"),
    *(
        "attn_implementation",
        "unsloth_version",
        "unsloth_fixed",
        "model_name",
        "task_specific_params",
    ),
    *(
        "transformers.js_config",
        "cross_attention_hidden_size",
        "add_cross_attention",
        "is_decoder",
        "tie_encoder_decoder",
    ),
}
"""Keys of config.json that change nothing of what these architectures compute for a prompt."""
_FORCED = ("forced_bos_token_id", "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens", "bad_words_ids")
"""Keys of generation_config.json that change every answer, and that no GGUF file carries. Those of sampling are the
caller's choice."""
_SELF_ENDING = {
    *("<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>", "</s>", "<EOT>", "_<EOT>"),
    *("<|end_of_text|>", "<|return|>", "<|call|>", "<｜end▁of▁sentence｜>", "<eos>"),
}
"""Tokens at which llama.cpp ends an answer by their text."""
_BEGINNING = ("llama-bpe", "llama3", "llama-v3")
"""Ways to split text with which llama.cpp puts the first token before a text by default."""
_ENDS = ("eos", "eot", "eom")


def settings(folder: CheckpointFolder, file: str, header: GgufHeader, name: str) -> Iterator[Flaw]:
    """Yield settings of a checkpoint that its export lacks or states otherwise.

    Args:
        folder: the checkpoint.
        file: the name of the export.
        header: what it states.
        name: of its architecture in llama.cpp.

    Raises:
        NotRun: a setting is not known here.
    """
    try:
        config = folder.config
    except WrongFile:
        return
    metadata = header.metadata
    for key, of in SIZES.items():
        yield from _key(file, metadata, f"{name}.{of}", config.get(key))
    yield from _positions(file, header, name, config)
    yield from _attention(file, metadata, name, config)
    try:
        yield from _ends(folder, file, metadata)
        yield from _begin(folder, file, metadata)
        generation = folder.generation
    except WrongFile:
        generation = dict[str, Any]()
    for key in _FORCED:
        if generation.get(key):
            yield Flaw("gguf", "forced", file, f"does not carry {key} of generation_config.json", "generate without it")
    if unknown := unknown_settings(config):
        raise NotRun(f"whether the export carries {quote_name(unknown[0])} of config.json is unknown")


def unknown_settings(config: dict[str, Any]) -> list[str]:
    """Return the keys of a config.json that are set and that no rule here knows, sorted.

    Keys that begin with an underscore are notes of the library that wrote the file, such as where weights came from.
    """
    set_keys = {key for key, value in config.items() if value not in (None, False) and not key.startswith("_")}
    return sorted(set_keys - COMPARED - NEUTRAL)


def rope_of(config: dict[str, Any]) -> dict[str, Any]:
    """Return how positions are turned, as transformers 5 writes it; older versions have keys of their own."""
    arguments: Any = config.get("rope_parameters") or config.get("rope_scaling")
    rope: dict[str, Any] = {"rope_type": "default", **(arguments if isinstance(arguments, dict) else {})}
    if isinstance(rope.get("type"), str) and not (isinstance(arguments, dict) and "rope_type" in arguments):
        rope["rope_type"] = rope["type"]
    rope.pop("type", None)
    rope.setdefault("rope_theta", config.get("rope_theta"))
    theta = rope["rope_theta"]
    rope["rope_theta"] = float(theta) if isinstance(theta, int | float) else theta
    return rope


def _key(file: str, statements: dict[str, Any], key: str, pending: Any) -> Iterator[Flaw]:
    value = statements.get(key)
    if value is None:
        why = f"has no {key}: llama.cpp would refuse it or take its own default"
        yield Flaw("gguf", "missing_key", file, why, _AGAIN)
    elif _differs(value, pending):
        yield Flaw(
            "gguf",
            "other_key",
            file,
            f"{key} is {quote_name(str(value))}, config.json says {quote_name(str(pending))}",
            _AGAIN,
        )


def _differs(value: Any, pending: Any) -> bool:
    if not isinstance(pending, int | float) or not isinstance(value, int | float):
        return isinstance(pending, str) and value != pending
    return not abs(value - pending) <= 1e-6 * abs(pending)


def _positions(file: str, header: GgufHeader, name: str, config: dict[str, Any]) -> Iterator[Flaw]:
    rope, metadata = rope_of(config), header.metadata
    yield from _key(file, metadata, f"{name}.rope.freq_base", rope["rope_theta"])
    kind, scaling = rope["rope_type"], f"{name}.rope.scaling"
    stated = metadata.get(f"{scaling}.type", "none")
    factors = header.tensors.get("rope_freqs.weight")
    fix = "export it with a converter that writes rope scaling; llama.cpp computes another model without a warning"
    if kind == "llama3":
        if factors is None:
            why = "has no rope_freqs.weight: config.json scales positions by llama3"
            yield Flaw("gguf", "rope_scaling", file, why, fix)
    elif kind in ("default", "linear", "yarn"):
        text = {"default": "none"}.get(kind, kind)
        if stated != text or factors is not None:
            matching_text = quote_name(str(stated if factors is None else "rope_freqs.weight"))
            why = f"scales positions by {matching_text}, config.json by {text}"
            yield Flaw("gguf", "rope_scaling", file, why, fix)
        elif kind != "default":
            yield from _key(file, metadata, f"{scaling}.factor", rope.get("factor"))
        if kind == "yarn" and stated == text:
            original = rope.get("original_max_position_embeddings")
            yield from _key(file, metadata, f"{scaling}.original_context_length", original)
    elif kind == "longrope":
        for tensor in ("rope_factors_long.weight", "rope_factors_short.weight"):
            if tensor not in header.tensors:
                yield Flaw("gguf", "rope_scaling", file, f"has no {tensor}: config.json scales by longrope", fix)
    else:
        raise NotRun(f"positions scaled by {quote_name(str(kind))} were not compared: this scaling is unknown")


def _attention(file: str, statements: dict[str, Any], name: str, config: dict[str, Any]) -> Iterator[Flaw]:
    hidden, heads = config.get("hidden_size"), config.get("num_attention_heads")
    usual = hidden // heads if isinstance(hidden, int) and isinstance(heads, int) and heads > 0 else None
    width = config.get("head_dim") or usual
    share = rope_of(config).get("partial_rotary_factor", config.get("partial_rotary_factor")) or 1.0
    if isinstance(width, int) and isinstance(share, int | float) and math.isfinite(width * share):
        for key, count in (
            ("attention.key_length", width),
            ("attention.value_length", width),
            ("rope.dimension_count", int(width * share)),
        ):
            if statements.get(f"{name}.{key}", usual) != count:
                yield from _key(file, statements, f"{name}.{key}", count)
    window, longest = config.get("sliding_window"), config.get("max_position_embeddings")
    if (
        config.get("use_sliding_window") is not False
        and isinstance(window, int)
        and not (isinstance(longest, int) and window >= longest)
    ):
        yield from _key(file, statements, f"{name}.attention.sliding_window", window)
    if config.get("hidden_act", "silu") != "silu":
        why = f"llama.cpp computes {name} with silu, config.json says {quote_name(str(config['hidden_act']))}"
        yield Flaw("gguf", "activation", file, why, "keep the checkpoint; llama.cpp has no such model")


def _ends(folder: CheckpointFolder, file: str, statements: dict[str, Any]) -> Iterator[Flaw]:
    """Yield ends of turn at which an answer of the export would run on."""
    stops = ends_of(folder.generation) or ends_of(folder.config)
    stated = (statements.get(f"tokenizer.ggml.{role}_token_id") for role in _ENDS)
    carried = {id for id in stated if isinstance(id, int)}
    texts = {id: text for text, id in folder.token_ids.items()}
    for id in sorted(stops - carried):
        if texts.get(id) not in _SELF_ENDING:
            why = (
                f"does not end at token {id} ({quote_name(texts.get(id, 'no token'))}), at which the checkpoint ends: "
            )
            why += "answers run on"
            yield Flaw("gguf", "end_token", file, why, _AGAIN)


def _begin(folder: CheckpointFolder, file: str, statements: dict[str, Any]) -> Iterator[Flaw]:
    """Yield where the export begins texts with a token that the checkpoint's tokenizer does not, or the reverse."""
    named, ids = folder.named_token("bos_token"), folder.token_ids
    if named not in ids:
        return
    adds = folder.opening_tokens[:1] == [named]
    stated, added = statements.get("tokenizer.ggml.bos_token_id"), statements.get("tokenizer.ggml.add_bos_token")
    if (adds or stated is not None) and stated != ids[named]:
        yield Flaw("gguf", "begin_token", file, f"tokenizer.ggml.bos_token_id is {stated}, it is {ids[named]}", _AGAIN)
    if adds != (statements.get("tokenizer.ggml.pre") in _BEGINNING if added is None else bool(added)):
        why = f"tokenizer.ggml.add_bos_token is {added}, the checkpoint's tokenizer begins texts "
        why += f"{'with' if adds else 'without'} {quote_name(named)}"
        yield Flaw("gguf", "begin_token", file, why, _AGAIN)
