"""The tokenizer of the embedded model against llama.cpp itself, over thousands of texts."""

from __future__ import annotations

import json

import pytest

from testing.fixtures.llama_server import MISSING, weights
from testing.fixtures.llama_vocabulary import GOLDEN, llama_ids
from testing.fixtures.tokenizer_texts import BY_HAND, corpus
from training.jobs.base_model import gguf_tokenizer

pytestmark = [
    pytest.mark.integration,
    pytest.mark.llama,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (make -f more.mk test-llama)"),
]


def test_every_text_of_the_corpus_has_the_same_ids() -> None:
    texts = corpus()
    assert len(texts) >= 10_000
    assert sum(any(letter.isdigit() for letter in text) for text in texts) >= 4_000
    tokenizer = gguf_tokenizer(weights())
    ours = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
    differ = [text for text, item, other in zip(texts, ours, llama_ids(texts), strict=True) if item != other]
    assert differ == []


def test_the_golden_file_is_what_llama_cpp_says() -> None:
    rows = json.loads(GOLDEN.read_text(encoding="utf-8"))["rows"]
    assert [row["ids"] for row in rows] == llama_ids(BY_HAND)
