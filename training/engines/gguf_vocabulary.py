"""Writes the tokenizer of a checkpoint into a GGUF file: vocabulary, merges, pre-tokenizer, special tokens, template.

llama.cpp splits text by a name, ``tokenizer.ggml.pre``, for which it has the code. A tokenizer whose way to split is
none of those below is refused: under another name it would load, and read numbers as other tokens than in training.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from training.engines.gguf_weights import NoGguf

_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SPLITS: dict[tuple[tuple[Any, Any], ...], str] = {
    (("Digits", True), ("ByteLevel", True)): "smollm",
    (("ByteLevel", True),): "gpt-2",
    (("Split", rf"{_WORDS}\p{{N}}{_REST}"), ("ByteLevel", False)): "qwen2",
    (("Split", rf"{_WORDS}\p{{N}}{{1,3}}{_REST}"), ("ByteLevel", False)): "llama-bpe",
}
"""What a tokenizer.json does before its merges, and llama.cpp's name for it."""
_ROLES = ("bos", "eos", "unk", "pad")


def add_vocabulary(writer: Any, folder: Path, rows: int) -> None:
    """Add the tokenizer of a checkpoint with ``rows`` embeddings; raises NoGguf if llama.cpp would read otherwise."""
    import gguf
    from transformers import AutoTokenizer

    file = folder / "tokenizer.json"
    if not file.is_file():
        raise NoGguf("the checkpoint has no tokenizer.json; a sentencepiece tokenizer is not written for llama.cpp")
    described: dict[str, Any] = json.loads(file.read_bytes())
    model: dict[str, Any] = described["model"]
    if model.get("type") != "BPE" or model.get("byte_fallback"):
        raise NoGguf(f"its tokenizer is a {model.get('type')}, and only byte-level BPE is written for llama.cpp")
    pre = pre_tokenizer(described)
    ids = {str(token): int(id) for token, id in model["vocab"].items()}
    added: list[dict[str, Any]] = described.get("added_tokens") or []
    largest = max([*ids.values(), *(int(one["id"]) for one in added)])
    if largest >= rows:
        raise NoGguf(f"token {largest} is beyond the {rows} rows of the embeddings")
    # llama.cpp wants one token a row: rows that no token has, which pad the embeddings, get a name nobody writes.
    tokens = [f"[PAD{place}]" for place in range(rows)]
    types: list[Any] = [gguf.TokenType.UNUSED] * rows
    for token, id in ids.items():
        tokens[id], types[id] = token, gguf.TokenType.NORMAL
    for one in added:
        kind = gguf.TokenType.CONTROL if one.get("special") else gguf.TokenType.USER_DEFINED
        tokens[one["id"]], types[one["id"]] = one["content"], kind
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    merges = [one if isinstance(one, str) else " ".join(one) for one in model["merges"]]
    if not merges:
        raise NoGguf("its tokenizer has no merges, without which llama.cpp opens no byte-level BPE")
    writer.add_token_merges(merges)
    for role in _ROLES:
        id = getattr(tokenizer, f"{role}_token_id")
        if id is not None:
            getattr(writer, f"add_{role}_token_id")(id)
    first = list(tokenizer("a")["input_ids"])[:1]
    writer.add_add_bos_token(tokenizer.bos_token_id is not None and first == [tokenizer.bos_token_id])
    if isinstance(tokenizer.chat_template, str):
        writer.add_chat_template(tokenizer.chat_template)


def pre_tokenizer(described: dict[str, Any]) -> str:
    """Return llama.cpp's name for how a tokenizer.json splits text; raises NoGguf if it has none."""
    normalizer = described.get("normalizer")
    if normalizer is not None and normalizer.get("type") != "NFC":
        raise NoGguf(f"its tokenizer normalises text ({normalizer.get('type')}), which llama.cpp does not")
    given: dict[str, Any] = described.get("pre_tokenizer") or {}
    steps = given["pretokenizers"] if given.get("type") == "Sequence" else [given]
    found = tuple(_step(one) for one in steps)
    if found not in _SPLITS:
        raise NoGguf(
            f"its tokenizer splits text by {', '.join(str(one[0]) for one in found)}, for which llama.cpp has no name "
            f"that is known here; known are {', '.join(_SPLITS.values())}"
        )
    return _SPLITS[found]


def _step(given: dict[str, Any]) -> tuple[Any, Any]:
    kind = given.get("type")
    if kind == "ByteLevel":
        return ("ByteLevel with a space before", None) if given.get("add_prefix_space") else (kind, given["use_regex"])
    if kind == "Digits":
        return kind, given.get("individual_digits")
    if kind == "Split" and given.get("behavior") == "Isolated" and not given.get("invert"):
        return kind, given["pattern"].get("Regex")
    return kind, None
