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
    arguments: dict[str, Any] = described.get("pre_tokenizer") or {}
    steps = arguments["pretokenizers"] if arguments.get("type") == "Sequence" else [arguments]
    pairs = tuple(_step(step) for step in steps)
    if pairs not in SPLITS:
        raise ValueError(
            f"its tokenizer splits text by {', '.join(str(pair[0]) for pair in pairs)}, for which llama.cpp has "
            f"no name that is known here; known are {', '.join(SPLITS.values())}"
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
