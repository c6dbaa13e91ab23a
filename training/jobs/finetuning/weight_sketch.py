"""A few numbers that stand for all trained weights: after every step, and of what was saved in the end."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from typing import Any

POINTS = 32
"""Single weights in a sketch."""
_PART = 1 << 20
"""Weights that are squared at a time, on a CPU."""


def collect_trained_weights(model: Any) -> dict[str, Any]:
    """Return the weights that training changes, by the names under which they are saved."""
    results = {name: value.detach() for name, value in model.named_parameters() if value.requires_grad}
    return {_saved_name(name): value for name, value in results.items()}


def sketch(weights: Mapping[str, Any]) -> tuple[float, ...]:
    """Return the L2 norm of all weights, then :data:`POINTS` of them, with nine digits, which hold a float32.

    Which weights, follows from names and shapes: a tensor first, then a place in it, so that small ones are seen.
    """
    import torch

    names = sorted(weights)
    squares = torch.stack([_square(weights[name]) for name in names])
    picked = torch.stack([_point(weights[name], place).double() for name, place in _places(names, weights)])
    parts = [math.sqrt(float(squares.sum())), *picked.tolist()]
    return tuple(float(f"{part:.9g}") for part in parts)


def _places(names: list[str], weights: Mapping[str, Any]) -> Iterable[tuple[str, int]]:
    for number in range(POINTS):
        lot = hashlib.sha256(f"{number}".encode()).digest()
        name = names[int.from_bytes(lot[:8]) % len(names)]
        yield name, int.from_bytes(lot[8:16]) % weights[name].numel()


def _square(tensor: Any) -> Any:
    """Return the sum of the squares of a tensor, on a CPU and on a GPU the same but for the last digits.

    A norm of 28 million weights at once is off by 0.2 % on a CPU, where torch adds millions of float32 in a row; its
    sum adds in pairs. A product of vectors would depend on where they lie in memory.
    """
    import torch

    size = _PART if tensor.device.type == "cpu" else 16 * _PART
    return torch.stack([part.float().square().sum().double() for part in tensor.reshape(-1).split(size)]).sum()


def _point(tensor: Any, place: int) -> Any:
    return tensor.reshape(-1)[place]


def _saved_name(name: str) -> str:
    """Return a parameter's name without the adapter's name, as peft saves it."""
    return name.replace(".default.", ".")
