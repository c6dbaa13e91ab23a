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
    *("use_sliding_window", "layer_types", "max_window_layers", "eos_token_id"),
    *("quantization_config", "auto_map", *SIZES),
}
"""Keys of config.json that a rule compares, in this module or elsewhere."""
NEUTRAL = {
    *("transformers_version", "torch_dtype", "dtype", "use_cache", "initializer_range"),
    *("attention_dropout", "pretraining_tp", "bos_token_id", "pad_token_id", "name_or_path", "tokenizer_class"),
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
FORCED: dict[str, Any] = {
    **{"forced_bos_token_id": None, "forced_eos_token_id": None, "suppress_tokens": [], "begin_suppress_tokens": []},
    **{"bad_words_ids": [], "sequence_bias": {}, "force_words_ids": [], "constraints": [], "stop_strings": []},
    **{"repetition_penalty": 1, "encoder_repetition_penalty": 1, "no_repeat_ngram_size": 0, "min_length": 0},
    **{"encoder_no_repeat_ngram_size": 0, "min_new_tokens": 0, "exponential_decay_length_penalty": None},
    **{"num_beams": 1, "num_beam_groups": 1, "diversity_penalty": 0, "penalty_alpha": 0, "guidance_scale": 1},
    **{"dola_layers": None, "token_healing": False, "watermarking_config": None},
}
"""Keys of generation_config.json that change greedy answers, and the values at which they do not."""
SAMPLING = {
    *("do_sample", "temperature", "top_k", "top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff"),
    *("renormalize_logits", "num_return_sequences", "max_length", "max_new_tokens", "max_time", "early_stopping"),
    *("length_penalty", "bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"),
    *("use_cache", "cache_implementation", "cache_config", "max_cache_len", "low_memory", "remove_invalid_values"),
    *("output_attentions", "output_hidden_states", "output_scores", "output_logits", "return_dict_in_generate"),
    *("is_assistant", "num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold"),
    *("prompt_lookup_num_tokens", "max_matching_ngram_size", "assistant_early_exit", "assistant_lookbehind"),
    *("target_lookbehind", "assistant_ensemble_weight", "speculation_type", "use_mtp", "compile_config"),
    *("disable_compile", "continuous_batching_config", "prefill_chunk_size", "transformers_version"),
}
"""Keys of generation_config.json that are the caller's choice, belong to beams, change only the speed, or are compared
with the tokenizer."""
PENALTY = "general.sampling.penalty_repeat"
_ROPE: dict[str, dict[str, Any]] = {
    **{"default": {}, "linear": {}},
    "llama3": {"low_freq_factor": None, "high_freq_factor": None},
    "yarn": {"beta_fast": 32, "beta_slow": 1, "truncate": True},
}
"""Ways to scale positions: their own settings, with the only value that llama.cpp computes if there is just one."""
_ROPE_KEYS = {"rope_type", "rope_theta", "factor", "original_max_position_embeddings", "partial_rotary_factor"}
_MOST_FACTORS = 1 << 16
_SELF_ENDING = {
    *("<|im_end|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>", "</s>", "<EOT>", "_<EOT>"),
    *("<|end_of_text|>", "<|return|>", "<|call|>", "<｜end▁of▁sentence｜>", "<eos>"),
}
"""Tokens at which llama.cpp ends an answer by their text."""
ROPE_TENSORS = {
    "llama3": ("rope_freqs.weight",),
    "longrope": ("rope_factors_long.weight", "rope_factors_short.weight"),
}
"""Tensors without which llama.cpp does not scale positions in this way."""
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
    for key, neutral in FORCED.items():
        value = generation.get(key)
        carried = key == "repetition_penalty" and PENALTY in metadata and not _differs(metadata[PENALTY], value)
        if value not in (None, False, neutral) and not carried:
            why = f"does not carry {key} of generation_config.json"
            yield Flaw("gguf", "forced", file, why, "set it where the export is used, or generate without it")
    if unknown := next(_unknown(config, generation), None):
        raise NotRun(unknown)


def _unknown(config: dict[str, Any], generation: dict[str, Any]) -> Iterator[str]:
    """Yield what changes the computation and cannot be compared."""
    for key in unknown_settings(config):
        yield f"whether the export carries {quote_name(key)} of config.json is unknown"
    set_keys = {key for key, value in generation.items() if value not in (None, False) and not key.startswith("_")}
    for key in sorted(set_keys - FORCED.keys() - SAMPLING):
        yield f"whether the export carries {quote_name(key)} of generation_config.json is unknown"
    rope = rope_of(config)
    kind = str(rope["rope_type"])
    own = _ROPE.get(kind)
    if own is None:
        yield f"positions scaled by {quote_name(kind)} were not compared: this scaling is unknown"
        return
    for key, value in rope.items():
        if key not in _ROPE_KEYS and value is not None and (key not in own or own[key] not in (None, value)):
            yield f"whether the export scales positions with {quote_name(key)} is unknown"
    kinds = _layer_kinds(config)
    if kinds - {"full_attention", "sliding_attention"} or (len(kinds) > 1 and _has_window(config)):
        yield f"whether the layers of the export attend by {quote_name(', '.join(sorted(kinds)))} is unknown"


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
    kind, scaling = str(rope["rope_type"]), f"{name}.rope.scaling"
    stated = metadata.get(f"{scaling}.type", "none")
    tensors = {name for name in header.tensors if name.startswith("rope_f")}
    fix = "export it with a converter that writes rope scaling; llama.cpp computes another model without a warning"
    for tensor in ROPE_TENSORS.get(kind, ()):
        if tensor not in tensors:
            why = f"has no {tensor}: config.json scales positions by {kind}"
            yield Flaw("gguf", "rope_scaling", file, why, fix)
    if kind in ("default", "linear", "yarn"):
        text = {"default": "none"}.get(kind, kind)
        if stated != text or tensors:
            matching_text = quote_name(min(tensors, default=str(stated)))
            why = f"scales positions by {matching_text}, config.json by {text}"
            yield Flaw("gguf", "rope_scaling", file, why, fix)
        elif kind != "default":
            yield from _key(file, metadata, f"{scaling}.factor", rope.get("factor"))
        if kind == "yarn" and stated == text:
            original = rope.get("original_max_position_embeddings")
            yield from _key(file, metadata, f"{scaling}.original_context_length", original)


def rope_factors(config: dict[str, Any]) -> list[float]:
    """Return the numbers by which llama.cpp divides the frequencies of positions, of llama3; empty for other models.

    Raises:
        NotRun: they cannot be computed from config.json.
    """
    rope = rope_of(config)
    try:
        return list(_llama3_factors(config, rope)) if rope["rope_type"] == "llama3" else []
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise NotRun(f"the factors of llama3 cannot be computed from config.json: {error!r}") from error


def _llama3_factors(config: dict[str, Any], rope: dict[str, Any]) -> Iterator[float]:
    """Yield the factor of each frequency, as transformers computes it."""
    width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    size = int(width * (rope.get("partial_rotary_factor") or 1.0))
    if not 0 < size <= _MOST_FACTORS:
        raise ValueError(f"{size} dimensions")
    low, high, original = (
        rope[key] for key in ("low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    )
    for place in range(0, size, 2):
        turns = original / (2 * math.pi * rope["rope_theta"] ** (place / size))
        share = min(max((turns - low) / (high - low), 0.0), 1.0)
        yield 1 / ((1 - share) / rope["factor"] + share)


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
    if _has_window(config) and _layer_kinds(config) != {"full_attention"}:
        yield from _key(file, statements, f"{name}.attention.sliding_window", config["sliding_window"])
    if config.get("hidden_act", "silu") != "silu":
        why = f"llama.cpp computes {name} with silu, config.json says {quote_name(str(config['hidden_act']))}"
        yield Flaw("gguf", "activation", file, why, "keep the checkpoint; llama.cpp has no such model")


def _has_window(config: dict[str, Any]) -> bool:
    """Return whether some layer may attend to fewer tokens than the longest text."""
    window, longest = config.get("sliding_window"), config.get("max_position_embeddings")
    return (
        config.get("use_sliding_window") is not False
        and isinstance(window, int)
        and not (isinstance(longest, int) and window >= longest)
    )


def _layer_kinds(config: dict[str, Any]) -> set[str]:
    """Return the kinds of attention of the layers; empty where every layer has the same, by the other settings."""
    kinds, first = config.get("layer_types"), config.get("max_window_layers")
    if isinstance(kinds, list):
        return set(map(str, kinds))
    # Models of the kind Qwen attend to all tokens in the layers before this.
    windowed = config.get("use_sliding_window") is True and isinstance(first, int) and first > 0
    return {"full_attention", "sliding_attention"} if windowed else set()


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
