"""Reads tokenizer files without their library, and says what differs between two checkpoints.

Libraries write the same tokenizer in more than one way, so what it does is compared and not its bytes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from specs.system.regular_files import read_regular

TOKENIZER, CONFIG, TEMPLATE = "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"
MOST_BYTES = 64 << 20
"""The limit of one file: the largest vocabularies take a third of it."""


class Difference(NamedTuple):
    """One thing that is not the same."""

    what: str
    file: str


def differences(base: Path, other: Path) -> list[Difference] | None:
    """Return what differs between the tokenizers of two folders; None where the first has none.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file is too large, or not what its name says.
    """
    if not any((base / name).is_file() for name in (TOKENIZER, CONFIG)):
        return None
    matching_differences: list[Difference] = []
    for name in (TOKENIZER, CONFIG):
        if (base / name).is_file() and not (other / name).is_file():
            matching_differences.append(Difference("the file is missing", name))
    value, two = (_tokens(folder) for folder in (base, other))
    if value is not None and two is not None:
        matching_differences += [Difference(f"{part} differ", TOKENIZER) for part in value if value[part] != two[part]]
    end, its = (read_object(folder, CONFIG).get("eos_token") for folder in (base, other))
    if _text(end) != _text(its):
        matching_differences.append(Difference(f"the end token is {_text(its)!r} instead of {_text(end)!r}", CONFIG))
    if chat_template_of(base) != chat_template_of(other):
        file = TEMPLATE if (base / TEMPLATE).is_file() else CONFIG
        matching_differences.append(Difference("the chat template differs", file))
    return matching_differences


def _tokens(folder: Path) -> dict[str, Any] | None:
    if not (folder / TOKENIZER).is_file():
        return None
    statements = read_object(folder, TOKENIZER)
    model = statements.get("model")
    if not isinstance(model, dict):
        raise ValueError(f"{TOKENIZER} holds no model")
    vocabulary: Any = model.get("vocab")
    merges = [
        tuple(value.split(" ")) if isinstance(value, str) else tuple(value) for value in model.get("merges") or ()
    ]
    added = {
        (value.get("id"), value.get("content"), value.get("special")) for value in statements.get("added_tokens") or ()
    }
    return {"vocabularies": vocabulary, "merges": merges, "added tokens": added}


def read_object(folder: Path, name: str) -> dict[str, Any]:
    """Return the object in a JSON file of a checkpoint; an empty one without the file; raises OSError or ValueError."""
    path = folder / name
    if not path.is_file():
        return {}
    result = json.loads(_read(path))
    if not isinstance(result, dict):
        raise ValueError(f"{name} is not an object")
    return result


def chat_template_of(folder: Path) -> str:
    """Return a checkpoint's chat template, the default one of several; empty without one; errors as `read_object`."""
    if (folder / TEMPLATE).is_file():
        return _read(folder / TEMPLATE).strip()
    named = read_object(folder, CONFIG).get("chat_template") or ""
    if isinstance(named, list):
        named = next((value.get("template") for value in named if value.get("name") == "default"), "")
    return str(named).strip()


def _read(path: Path) -> str:
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"{path.name} has more than {MOST_BYTES} bytes")
    return read_regular(path).decode("utf-8")


def _text(token: Any) -> Any:
    """Return the text of a token, which libraries write alone or with its properties."""
    return token.get("content") if isinstance(token, dict) else token
