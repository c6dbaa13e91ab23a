"""Passes of a witness: what texts begin with is read once, where the model's cache allows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testing.fixtures.small_text import small_model
from training.engines.checkpoint import load
from training.jobs.witness.passes import Context, read_through

HEAD = tuple(range(7, 31))
CONTEXTS = [Context((*HEAD, 30 + n, *range(8, 10 + n)), 24 + n % 2) for n in range(3)]


def with_convolutions() -> Any:
    """Return a model whose cache holds a state next to keys and values."""
    import torch
    from transformers import Lfm2Config, Lfm2ForCausalLM

    torch.manual_seed(0)
    arguments: dict[str, Any] = {
        "vocab_size": 64,
        "hidden_size": 16,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
    }
    layers: dict[str, Any] = {
        "num_hidden_layers": 2,
        "layer_types": ["conv", "full_attention"],
        "intermediate_size": 32,
    }
    return Lfm2ForCausalLM(Lfm2Config(**arguments, **layers)).eval()


@pytest.mark.parametrize("kind", ["of tokens", "with a state"])
def test_texts_that_begin_alike_are_read_as_each_of_them_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    model = load(small_model(tmp_path / "model"))[0] if kind == "of tokens" else with_convolutions()
    widths, forward = list[int](), model.forward

    def watched(*values: Any, **named: Any) -> Any:
        widths.append(named["input_ids"].shape[1])
        return forward(*values, **named)

    monkeypatch.setattr(model, "forward", watched)
    together = dict(read_through(model, CONTEXTS))
    assert widths == ([24, 5] if kind == "of tokens" else [24, 29])
    for context in CONTEXTS:
        ((_, alone),) = read_through(model, [context])
        assert together[context].shape == alone.shape == (len(context.ids) - context.first, alone.shape[-1])
        assert float((together[context] - alone).abs().max()) < 1e-4


def test_what_another_text_begins_with_is_read_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    model = load(small_model(tmp_path / "model"))[0]
    ids = tuple(range(5, 25))
    # A critique and its revision, the same text with more places wanted, and one that only begins alike.
    contexts = [Context(ids[:12], 8), Context(ids, 14), Context(ids, 16), Context((*ids[:11], 40), 9)]
    texts, forward = list[int](), model.forward

    def watched(*arguments: Any, **named: Any) -> Any:
        texts.extend(named["attention_mask"].sum(-1).tolist())
        return forward(*arguments, **named)

    monkeypatch.setattr(model, "forward", watched)
    together = dict(read_through(model, contexts))
    assert sorted(texts) == [12, 20]
    assert together.keys() == set(contexts)
    for context in contexts:
        with torch.no_grad():
            alone = forward(input_ids=torch.tensor([context.ids]), use_cache=False).logits
        assert float((together[context] - alone[0, context.first :]).abs().max()) < 1e-4
