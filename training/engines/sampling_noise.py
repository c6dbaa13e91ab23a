"""The noise of every draw: a function of the stage's seed, the answer, the place in it and the token.

A token is drawn as the argmax of ``logit + temperature * noise`` with noise of Gumbel's distribution, which draws it
with its probability under the softmax of ``logit / temperature`` (Gumbel 1954; Maddison et al. 2014, arXiv:1411.0030).
Since the noise does not depend on other draws, on batches or on the machine, a witness adds the same one and looks for
the argmax, as in a greedy answer. The numbers are those of SplitMix64 (Steele, Lea and Flood 2014), by counter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

MOST_NOISE = 23.0
"""No token has more noise: the least of the uniform numbers is half of 2**-32."""
_STEP, _FIRST, _SECOND = (
    value - 2**64 for value in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)  # fmt: skip
"""The constants of SplitMix64, as signed integers."""


def stream_of(seed: int, *parts: object) -> int:
    """Return the stream of one answer: a signed integer of 64 bits, the same on every machine."""
    text = "/".join(str(part) for part in ("stream", seed, *parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], signed=True)


def streams_of(seed: int, part: str, answers: Iterable[str], samples: int) -> list[list[int]]:
    """Return the stream of every sample of these answers, of a part of a stage's work."""
    return [[stream_of(seed, part, answer, sample) for sample in range(samples)] for answer in answers]


def noise_keys(streams: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return the key of each draw, from the answer's stream and the place of the token in it. [draws] each, int64."""
    return _mix(streams + (places + 1) * _STEP)


def noise(keys: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Return the noise of tokens in draws, as float64; ``keys`` and ``tokens`` are int64 of one shape."""
    high = (_mix(keys + (tokens + 1) * _STEP) >> 32) & (2**32 - 1)
    return -(-((high.double() + 0.5) / 2**32).log()).log()


def _mix(value: torch.Tensor) -> torch.Tensor:
    """Return SplitMix64's output for a state. Shifts of int64 keep the sign, which the masks remove."""
    value = (value ^ ((value >> 30) & (2**34 - 1))) * _FIRST
    value = (value ^ ((value >> 27) & (2**37 - 1))) * _SECOND
    return value ^ ((value >> 31) & (2**33 - 1))


def draw(logits: torch.Tensor, temperature: float, keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the token of each draw and its value, ``logit + temperature * noise``.

    ``logits``: [draws, vocabulary], -inf for tokens that may not be drawn; ``keys``, and both results: [draws].
    """
    import torch

    rows = torch.arange(len(logits), device=logits.device)
    logits = logits.float()
    likeliest = logits.argmax(-1)
    value = logits[rows, likeliest].double() + temperature * noise(keys, likeliest)
    # Only what the largest noise would lift above this value can have the largest one.
    able = logits > (value - temperature * MOST_NOISE)[:, None]
    places, tokens = able.nonzero(as_tuple=True)
    values = logits[places, tokens].double() + temperature * noise(keys[places], tokens)
    best = torch.full_like(value, -torch.inf).scatter_reduce(0, places, values, "amax")
    best = torch.maximum(best, value)
    chosen = likeliest.clone()
    largest = values == best[places]
    chosen[places[largest]] = tokens[largest]
    return chosen, best


def within_nucleus(logits: torch.Tensor, temperature: float, top_p: float) -> torch.Tensor:
    """Return logits with -inf outside the nucleus: the fewest likeliest tokens whose probabilities reach ``top_p``.

    [draws, vocabulary] in and out.
    """
    import torch

    if top_p >= 1:
        return logits
    probabilities = torch.softmax(logits.float() / temperature, -1)
    ranked, order = probabilities.topk(min(RANKED, probabilities.shape[-1]))
    if float(ranked.sum(-1).min()) < top_p:
        ranked, order = probabilities.sort(-1, descending=True)
    outside = ranked.cumsum(-1) - ranked >= top_p
    inside = torch.full_like(logits, -torch.inf)
    return inside.scatter(-1, order, logits.gather(-1, order).masked_fill(outside, -torch.inf))


RANKED = 1024
"""Tokens that mostly hold the nucleus: sorting a whole vocabulary takes longer than a pass through a small model."""
