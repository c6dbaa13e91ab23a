"""Pieces of logits: how large one is, how often it is computed, and when the gradient of the last layer is."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from training.jobs.finetuning.online import losses, pieces
from training.jobs.finetuning.online.hidden_states import LastLayer

TOKENS, WIDTH, WORDS = 23, 8, 61
MASK = [place % 3 != 0 for place in range(TOKENS)]


def _states(seed: int) -> Any:
    import torch

    return torch.randn(TOKENS, WIDTH, generator=torch.Generator().manual_seed(seed))


def _layer(bias: bool = False) -> Any:
    import torch

    torch.manual_seed(5)
    return torch.nn.Linear(WIDTH, WORDS, bias=bias)


def _record(order: list[str], name: str, _: Any) -> None:
    order.append(name)


def _loss(hidden: Any, head: Any, theirs: Any) -> Any:
    import torch

    return losses.divergence_in_pieces(hidden, head, theirs, head, torch.tensor(MASK), beta=0.3, piece=4)


@pytest.mark.parametrize(("vocabulary", "tokens"), [(1000, 256), (8192, 192), (49_152, 32), (151_936, 16)])
def test_a_piece_has_fewer_tokens_of_a_larger_vocabulary(vocabulary: int, tokens: int) -> None:
    import torch

    def head(hidden: Any) -> Any:
        return torch.zeros(len(hidden), vocabulary)

    assert pieces.tokens_of_a_piece(head, torch.zeros(3, 2)) == tokens


@pytest.mark.parametrize("trained", [False, True])
def test_the_logits_of_a_piece_are_computed_again_only_for_the_weights_of_the_last_layer(trained: bool) -> None:
    import torch

    layer = torch.nn.Sequential(torch.nn.Linear(WIDTH, 3, bias=False), torch.nn.Linear(3, WORDS))
    layer[0].requires_grad_(False)
    layer[1].requires_grad_(trained)
    read: list[int] = []

    def head(hidden: Any) -> Any:
        read.append(len(hidden))
        return layer(hidden)

    hidden, teacher, mask = _states(0).requires_grad_(), _states(1).requires_grad_(), torch.tensor(MASK)
    with torch.no_grad():
        theirs = layer(teacher)
    leaves = hidden, *(layer[1].parameters() if trained else ())
    plain = torch.autograd.grad(losses.divergence(layer(hidden), theirs, mask, beta=0.3), leaves)
    tensor = losses.divergence_in_pieces(hidden, head, teacher, layer, mask, beta=0.3, piece=4)
    assert read == [4, 4, 4, 3]
    (3 * tensor).backward(retain_graph=True)
    assert read == [4, 4, 4, 3] * (2 if trained else 1)
    for item, leaf in zip(plain, leaves, strict=True):
        assert leaf.grad is not None and float(item.abs().max()) > 0
        assert torch.allclose(3 * item, leaf.grad, rtol=1e-5, atol=1e-8)
    assert teacher.grad is None and layer[0].weight.grad is None
    # What was handed on is not there again: it must not be taken for a gradient of 0, or for one that is scaled twice.
    with pytest.raises(RuntimeError, match="once"):
        tensor.backward()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "mixed"])
def test_a_last_layer_has_the_gradient_of_whole_logits(dtype: str, bias: bool) -> None:
    import torch

    layer = _layer(bias).to(torch.bfloat16 if dtype == "bfloat16" else torch.float32)
    # With mixed precision a model hands on bfloat16.
    hidden, theirs = (_states(seed).to(torch.float32 if dtype == "float32" else torch.bfloat16) for seed in (0, 1))
    hidden.requires_grad_()
    head, mask, leaves = LastLayer(layer), torch.tensor(MASK), (hidden, *layer.parameters())
    with torch.autocast("cpu", enabled=dtype == "mixed"):
        plain = losses.divergence(head(hidden), head(theirs).detach(), mask, beta=0.3)
        result = _loss(hidden, head, theirs)
    near = 1e-5 if dtype == "float32" else 0.02
    assert result.item() == pytest.approx(plain.item(), rel=near)
    for tensor, other in zip(torch.autograd.grad(plain, leaves), torch.autograd.grad(result, leaves), strict=True):
        assert tensor.dtype == other.dtype and float(tensor.abs().max()) > 0
        assert float((tensor - other).abs().max()) <= near * float(tensor.abs().max())


def test_the_gradient_of_the_last_layer_is_computed_after_all_others() -> None:
    import torch

    body, layer = torch.nn.Linear(WIDTH, WIDTH), _layer()
    order: list[str] = []
    for name, linear in (("body", body), ("last layer", layer)):
        linear.weight.register_post_accumulate_grad_hook(partial(_record, order, name))

    class RecordingLayer(LastLayer):
        def __call__(self, hidden: Any) -> Any:
            order.append("logits")
            return super().__call__(hidden)

    loss = _loss(body(_states(0)).tanh(), RecordingLayer(layer), _states(1))
    order.clear()
    loss.backward()
    # Both the student's and the teacher's of four pieces.
    assert order == ["body", *["logits"] * 8, "last layer"]


def test_a_layer_that_also_reads_words_gets_both_of_its_gradients() -> None:
    import torch

    words = torch.nn.Embedding(WORDS, WIDTH)
    layer = _layer()
    layer.weight = words.weight
    ids, mask = torch.arange(TOKENS) % WORDS, torch.tensor(MASK)
    theirs = _states(1)
    with torch.no_grad():
        taught = layer(theirs)
    plain = torch.autograd.grad(losses.divergence(layer(words(ids)), taught, mask, beta=0.3), words.weight)[0]
    tensor = torch.autograd.grad(_loss(words(ids), LastLayer(layer), theirs), words.weight)[0]
    assert torch.allclose(plain, tensor, rtol=1e-4, atol=1e-7) and float(plain.abs().max()) > 0
