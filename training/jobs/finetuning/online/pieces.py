"""Functions of the logits of many tokens, computed from hidden states a piece at a time.

A sum over tokens computes the gradient of a piece while its logits are there. What has another gradient for each token
computes the logits again in the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

MOST_TOKENS, LEAST_TOKENS = 256, 16
"""The tokens of a piece, whose logits are in memory at once, in up to ten tensors."""
LOGITS = 3 * 2**19
"""The logits of a piece: with a larger vocabulary it has fewer tokens, so that it takes no more memory."""

Tensor = Any
Head = Callable[[Tensor], Tensor]
"""Returns logits [tokens, vocabulary] after hidden states [tokens, width]; ``layer`` may name what it is made of."""
ValuesAndGradient = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Returns values [tokens] and their gradient by logits, after the logits and what they are compared with."""


def tokens_of_a_piece(head: Head, hidden: Tensor) -> int:
    """Return how many tokens are held at once with the vocabulary of a head."""
    import torch

    with torch.no_grad():
        vocabulary = head(hidden[:1]).shape[-1]
    return max(LEAST_TOKENS, min(MOST_TOKENS, LOGITS // vocabulary))


def sum_over_pieces(both: ValuesAndGradient, head: Head, tensor: Tensor, other: Tensor, piece: int) -> Tensor:
    """Return the sum of a function of logits over pieces, whose gradient by ``tensor`` is known by then.

    That by weights of the head is computed after all other gradients: it is as large as the head, and the activations
    of the model are gone then.
    """
    import torch

    pieces = list(zip(tensor.detach().split(piece), other.split(piece), strict=True))
    if not torch.is_grad_enabled():
        return torch.stack([both(head(states), others)[0].sum() for states, others in pieces]).sum()
    values: list[Tensor] = []
    row_gradients: list[Tensor] = []
    weights: list[Tensor] = []
    for states, others in pieces:
        value, gradient, weights = _by_states(both, head, states.requires_grad_(), others)
        values.append(value)
        row_gradients.append(gradient)
    value = torch.stack(values).sum()
    result = _make_known_gradients().apply(value, _once(torch.cat(row_gradients)), tensor)
    if weights:
        kind = tensor.device.type
        autocast = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)

        def due() -> list[Tensor]:
            # As in the forward pass: a backward pass runs outside of it.
            with torch.autocast(kind, enabled=autocast[0], dtype=autocast[1]):
                return _by_weights(both, head, pieces, weights)

        last = _make_known_gradients().apply(torch.zeros_like(value), due, *weights)
        # Nodes that are ready run from the highest number to the lowest.
        last.grad_fn._set_sequence_nr(0)
        result = result + last
    return result


def checkpoint_pieces(function: Callable[..., Tensor], tensor: Tensor, other: Tensor, piece: int) -> Iterator[Tensor]:
    """Yield a function of each piece, which the backward pass computes again."""
    from torch.utils.checkpoint import checkpoint

    for tensor_piece, others in zip(tensor.split(piece), other.split(piece), strict=True):
        yield checkpoint(function, tensor_piece, others, use_reentrant=False)


def _by_states(
    both: ValuesAndGradient, head: Head, states: Tensor, others: Tensor
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """Return the sum over a piece, its gradient by hidden states, and the weights that it has others by."""
    import torch

    logits = head(states)
    values, by_logits = both(logits.detach(), others)
    (gradient,) = torch.autograd.grad(logits, states, by_logits)
    return values.sum(), gradient, [leaf for leaf in _leaves(logits) if leaf is not states]


def _by_weights(
    both: ValuesAndGradient, head: Head, pieces: list[tuple[Tensor, Tensor]], weights: list[Tensor]
) -> list[Tensor]:
    """Return the gradients by weights of the sum over pieces."""
    import torch

    totals = [torch.zeros_like(leaf) for leaf in weights]
    layer = getattr(head, "layer", None)
    plain = type(layer) is torch.nn.Linear and len(weights) == 1 and weights[0] is layer.weight
    for states, others in pieces:
        with torch.set_grad_enabled(not plain):
            logits = head(states)
        by_logits = both(logits.detach(), others)[1]
        if plain:
            # Autograd would make a tensor as large as the layer for each piece.
            totals[0].addmm_(by_logits.T.to(totals[0].dtype), states.detach().to(totals[0].dtype))
            continue
        for total, part in zip(totals, torch.autograd.grad(logits, weights, by_logits), strict=True):
            total.add_(part)
    return totals


def _leaves(value: Tensor) -> list[Tensor]:
    """Return the tensors that a gradient of a value reaches."""
    tensors: dict[int, Tensor] = {}
    seen_values: set[Any] = set()
    due_tensors = [value.grad_fn]
    while due_tensors:
        node = due_tensors.pop()
        if node is not None and node not in seen_values:
            seen_values.add(node)
            due_tensors += [before for before, _ in node.next_functions]
            if (leaf := getattr(node, "variable", None)) is not None:
                tensors[id(leaf)] = leaf
    return list(tensors.values())


def _once(gradient: Tensor) -> Callable[[], list[Tensor]]:
    tensors = [gradient]

    def read() -> list[Tensor]:
        if not tensors:
            raise RuntimeError("the gradient of a loss in pieces can be read only once")
        return [tensors.pop()]

    return read


@cache
def _make_known_gradients() -> Any:
    """Return a function of a value, what returns its gradients, and the tensors that they are by."""
    import torch

    class KnownGradients(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, value: Tensor, gradients: Callable[[], list[Tensor]], *_: Tensor) -> Tensor:
            ctx.gradients = gradients
            return value.clone()

        @staticmethod
        def backward(ctx: Any, *grad_outputs: Tensor) -> Any:
            return (None, None, *(gradient.mul_(grad_outputs[0]) for gradient in ctx.gradients()))

    return KnownGradients
