"""What llama.cpp calls the ways in which a tokenizer.json splits text before its merges."""

from __future__ import annotations

from typing import Any

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
    given: dict[str, Any] = described.get("pre_tokenizer") or {}
    steps = given["pretokenizers"] if given.get("type") == "Sequence" else [given]
    found = tuple(_step(one) for one in steps)
    if found not in SPLITS:
        raise ValueError(
            f"its tokenizer splits text by {', '.join(str(one[0]) for one in found)}, for which llama.cpp has no name "
            f"that is known here; known are {', '.join(SPLITS.values())}"
        )
    return SPLITS[found]


def _step(given: dict[str, Any]) -> tuple[Any, Any]:
    kind = given.get("type")
    if kind == "ByteLevel":
        return ("ByteLevel with a space before", None) if given.get("add_prefix_space") else (kind, given["use_regex"])
    if kind == "Digits":
        return kind, given.get("individual_digits")
    if kind == "Split" and given.get("behavior") == "Isolated" and not given.get("invert"):
        return kind, given["pattern"].get("Regex")
    return kind, None
