"""Can llama.cpp read a GGUF file as it was meant? Some of what is wrong it loads without a word."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from training.rules.packaging.bounded_json import WrongFile
from training.rules.packaging.checkpoint_folder import CheckpointFolder, ends_of
from training.rules.packaging.flaw import Flaw
from training.rules.packaging.gguf_header import GgufHeader, GgufTensor, read_header
from training.rules.packaging.gguf_settings import settings
from training.rules.weight_files import quote_name

_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPLITS: dict[tuple[tuple[Any, Any], ...], str] = {
    (("Digits", True), ("ByteLevel", True)): "smollm",
    (("ByteLevel", True),): "gpt-2",
    (("Split", rf"{_WORDS}\p{{N}}{_REST}"), ("ByteLevel", False)): "qwen2",
    (("Split", rf"{_WORDS}\p{{N}}{{1,3}}{_REST}"), ("ByteLevel", False)): "llama-bpe",
}
"""What a tokenizer.json does before its merges, and llama.cpp's name for it."""


def split_name(described: dict[str, Any]) -> str:
    """Return llama.cpp's name for how a tokenizer.json splits text; raises ValueError if it has none."""
    normalizer = described.get("normalizer")
    if normalizer is not None and normalizer.get("type") != "NFC":
        raise ValueError(f"its tokenizer normalises text ({normalizer.get('type')}), which llama.cpp does not")
    arguments: dict[str, Any] = described.get("pre_tokenizer") or {}
    steps = arguments["pretokenizers"] if arguments.get("type") == "Sequence" else [arguments]
    pairs = tuple(_step(step) for step in steps)
    if pairs not in SPLITS:
        raise ValueError(
            f"its tokenizer splits text by {', '.join(str(pair[0]) for pair in pairs)}, for which llama.cpp has "
            f"no known name; known: {', '.join(SPLITS.values())}"
        )
    return SPLITS[pairs]


def _step(arguments: dict[str, Any]) -> tuple[Any, Any]:
    kind = arguments.get("type")
    if kind == "ByteLevel":
        return (
            ("ByteLevel with a space before", None)
            if arguments.get("add_prefix_space")
            else (kind, arguments["use_regex"])
        )
    if kind == "Digits":
        return kind, arguments.get("individual_digits")
    if kind == "Split" and arguments.get("behavior") == "Isolated" and not arguments.get("invert"):
        return kind, arguments["pattern"].get("Regex")
    return kind, None


ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
"""What llama.cpp calls the models that are written here."""
_AGAIN = "export the checkpoint again"
_WIDTH = {"F32": "<f4", "F16": "<f2"}
_LAYER = ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")
_NORMS = {"qwen3": ("attn_q_norm", "attn_k_norm")}
"""Tensors of each layer that only some architectures have."""


def architecture_of(config: dict[str, Any]) -> str | None:
    """Return what llama.cpp calls the model that config.json names; None for others."""
    named: Any = config.get("architectures")
    first = named[0] if isinstance(named, list) and named else None
    return ARCHITECTURES.get(first) if isinstance(first, str) else None


def gguf(folder: CheckpointFolder, path: Path) -> Iterator[Flaw]:
    """Yield what is wrong with a GGUF file of this checkpoint; raises NotRun where a setting is not known here."""
    try:
        header = read_header(path)
    except WrongFile as error:
        yield Flaw("gguf", "unreadable", path.name, error.why, _AGAIN)
        return
    try:
        config = folder.config
    except WrongFile:
        config = dict[str, Any]()
    metadata = header.metadata
    named = metadata.get("general.architecture")
    text = architecture_of(config)
    known = sorted({*ARCHITECTURES.values()})
    if named not in known or (text is not None and named != text):
        why = f"general.architecture is {quote_name(str(named))}, llama.cpp calls it {text or ' or '.join(known)}"
        yield Flaw("gguf", "architecture", path.name, why, _AGAIN)
        return
    yield from _vocabulary(path.name, header, folder)
    yield from _tensors(path, header, metadata.get(f"{named}.block_count"), (*_LAYER, *_NORMS.get(str(named), ())))
    yield from settings(folder, path.name, header, str(named))


def _vocabulary(file: str, header: GgufHeader, folder: CheckpointFolder) -> Iterator[Flaw]:
    metadata = header.metadata
    tokens: Any = metadata.get("tokenizer.ggml.tokens")
    if not isinstance(tokens, list) or not tokens:
        yield Flaw("gguf", "no_vocabulary", file, "has no vocabulary: llama.cpp could encode no text", _AGAIN)
        return
    embedding = header.tensors.get("token_embd.weight")
    if embedding is not None and embedding.shape[-1] != len(tokens):
        why = f"lists {len(tokens)} tokens, token_embd.weight has {embedding.shape[-1]} rows"
        yield Flaw("gguf", "vocab_size", file, why, _AGAIN)
    if not metadata.get("tokenizer.ggml.model"):
        yield Flaw("gguf", "missing_key", file, "has no tokenizer.ggml.model: llama.cpp would refuse it", _AGAIN)
    if metadata.get("tokenizer.ggml.model") == "gpt2":
        for key in ("tokenizer.ggml.pre", "tokenizer.ggml.merges"):
            if not metadata.get(key):
                yield Flaw("gguf", "missing_key", file, f"has no {key}: text would be split differently", _AGAIN)
    try:
        ids, end, template = folder.token_ids, folder.named_token("eos_token"), folder.template
        stops = ends_of(folder.generation) or ends_of(folder.config)
    except WrongFile:
        return
    yield from _split(file, metadata.get("tokenizer.ggml.pre"), folder.tokenizer)
    wrong = next((text for text, id in ids.items() if id >= len(tokens) or tokens[id] != text), None)
    if wrong is not None:
        yield Flaw("gguf", "vocabulary", file, f"has another token for {quote_name(wrong)} than tokenizer.json", _AGAIN)
    ended = metadata.get("tokenizer.ggml.eos_token_id")
    if ended is None or (end in ids and ended != ids[end] and ended not in stops):
        count = ids.get(end) if end is not None else None
        yield Flaw("gguf", "end_token", file, f"tokenizer.ggml.eos_token_id is {ended}, it is {count}", _AGAIN)
    if template and metadata.get("tokenizer.chat_template") != template:
        yield Flaw("gguf", "template", file, "has another chat template than the checkpoint", _AGAIN)


def _split(file: str, named: Any, described: dict[str, Any]) -> Iterator[Flaw]:
    """Compare the way to split text where both are known; llama.cpp has further names for some of them."""
    try:
        name = split_name(described)
    except (ValueError, LookupError, TypeError, AttributeError):
        return
    if named in SPLITS.values() and named != name:
        why = f"tokenizer.ggml.pre is {quote_name(str(named))}, the checkpoint's tokenizer splits text as '{name}'"
        yield Flaw("gguf", "pre_tokenizer", file, why, _AGAIN)


def _tensors(path: Path, header: GgufHeader, layers: Any, layer_tensors: tuple[str, ...]) -> Iterator[Flaw]:
    texts = {"token_embd.weight", "output_norm.weight"}
    if isinstance(layers, int) and 0 < layers < 10_000:
        texts |= {f"blk.{layer}.{name}.weight" for layer in range(layers) for name in layer_tensors}
    for name in sorted(texts - header.tensors.keys())[:5]:
        yield Flaw("gguf", "missing_tensor", path.name, f"has no tensor {name}", _AGAIN)
    for name in sorted(
        tensor for tensor in header.tensors if tensor.startswith("blk.") and f"{_stem(tensor)}.weight" not in texts
    )[:5]:
        yield Flaw("gguf", "unexpected_tensor", path.name, f"has a tensor {quote_name(name)} of no layer", _AGAIN)
    for name, tensor in sorted(header.tensors.items()):
        if wrong := _not_finite(path, tensor):
            why = f"tensor {quote_name(name)} holds {wrong} values that are not finite"
            yield Flaw("gguf", "not_finite", path.name, why, _AGAIN)


def _stem(name: str) -> str:
    return name.rpartition(".")[0]


def _not_finite(path: Path, tensor: GgufTensor) -> int:
    """Return how many values, or scales of blocks of 8 bits, are not finite; other types are not looked into."""
    import numpy

    if tensor.end == tensor.start:
        return 0
    every: Any = numpy.memmap(path, "u1", "r", tensor.start, (tensor.end - tensor.start,))
    if tensor.dtype == "Q8_0":
        values = numpy.ascontiguousarray(every.reshape(-1, 34)[:, :2]).view("<f2")
    elif tensor.dtype in _WIDTH:
        values = every.view(_WIDTH[tensor.dtype])
    else:
        return 0
    return int((~numpy.isfinite(values)).sum())
