"""Two tokenizers are compared by what they do, however their libraries wrote them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testing.factories.flaws import tokenizer
from training.rules import tokenizer_files
from training.rules.tokenizer_files import CONFIG, TEMPLATE, TOKENIZER, differences


def two(folder: Path, **changes: Any) -> tuple[Path, Path]:
    for name in ("base", "other"):
        (folder / name).mkdir()
    return tokenizer(folder / "base"), tokenizer(folder / "other", **changes)


def list_differences(folder: Path, **changes: Any) -> list[tuple[str, str]]:
    return [(difference.what, difference.file) for difference in differences(*two(folder, **changes)) or ()]


def test_the_same_tokenizer_in_another_spelling_is_the_same(tmp_path: Path) -> None:
    base, other = two(tmp_path, merges=["a b"])
    config = {"eos_token": {"content": "<end>", "lstrip": False}, "chat_template": "{{ messages }}\n"}
    (other / CONFIG).write_text(json.dumps(config), encoding="utf-8")
    (other / TEMPLATE).unlink()
    answer = json.loads((other / TOKENIZER).read_text(encoding="utf-8")) | {"padding": {"length": 9}}
    (other / TOKENIZER).write_text(json.dumps(answer), encoding="utf-8")
    assert differences(base, other) == []


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({"vocab": {"a": 0, "b": 1, "ba": 2}}, [("vocabularies differ", TOKENIZER)]),
        ({"merges": [["b", "a"]]}, [("merges differ", TOKENIZER)]),
        (
            {"eos_token": "<stop>"},
            [("added tokens differ", TOKENIZER), ("the end token is '<stop>' instead of '<end>'", CONFIG)],
        ),
        ({"chat_template": ""}, [("the chat template differs", TEMPLATE)]),
    ],
)
def test_each_difference_is_named_with_its_file(
    tmp_path: Path, changes: dict[str, Any], lines: list[tuple[str, str]]
) -> None:
    assert list_differences(tmp_path, **changes) == lines


@pytest.mark.parametrize("name", [TOKENIZER, CONFIG])
def test_a_file_that_is_missing_is_a_difference(tmp_path: Path, name: str) -> None:
    base, other = two(tmp_path)
    (other / name).unlink()
    assert ("the file is missing", name) in [tuple(difference) for difference in differences(base, other) or ()]


def test_a_model_without_a_tokenizer_says_nothing(tmp_path: Path) -> None:
    base, other = two(tmp_path)
    for name in (TOKENIZER, CONFIG):
        (base / name).unlink()
    assert differences(base, other) is None


@pytest.mark.parametrize("text", ["", "[1]", '{"model": 3}', "{"])
def test_what_is_no_tokenizer_is_an_error(tmp_path: Path, text: str) -> None:
    base, other = two(tmp_path)
    (other / TOKENIZER).write_text(text, encoding="utf-8")
    with pytest.raises(ValueError):
        differences(base, other)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer_files, "MOST_BYTES", 10)
    with pytest.raises(ValueError, match="more than 10 bytes"):
        differences(*two(tmp_path))
