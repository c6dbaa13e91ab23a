"""Losses in closed form, from log-probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Response(NamedTuple):
    """A response: the sum of its log-probabilities in nats, and its tokens."""

    total: float
    tokens: int

    @property
    def mean(self) -> float:
        """Return nats per token."""
        return self.total / self.tokens


Responses = Sequence[Response]
Floats = Sequence[float]


def sft_loss(responses: Responses) -> float:
    """Return the mean negative log-probability of a token."""
    return -sum(response.total for response in responses) / sum(response.tokens for response in responses)


def dpo_loss(chosen: Responses, rejected: Responses, chosen_ref: Floats, rejected_ref: Floats, beta: float) -> float:
    """Return the mean loss of DPO; the log-probabilities of the reference come third and fourth."""
    sides = zip(chosen, rejected, chosen_ref, rejected_ref, strict=True)
    return _mean([-_log_logistic(beta * ((c.total - c0) - (r.total - r0))) for c, r, c0, r0 in sides])


def ipo_loss(chosen: Responses, rejected: Responses, chosen_ref: Floats, rejected_ref: Floats, beta: float) -> float:
    """Return the mean loss of IPO, by length; the log-probabilities of the reference come third and fourth."""
    sides = zip(chosen, rejected, chosen_ref, rejected_ref, strict=True)
    return _mean(
        [((c.total - c0) / c.tokens - (r.total - r0) / r.tokens - 1 / (2 * beta)) ** 2 for c, r, c0, r0 in sides]
    )


def kto_loss(responses: Responses, reference: Floats, good: Sequence[bool], drift: float, beta: float) -> float:
    """Return the mean loss of KTO; ``drift`` is the mean difference of mismatched responses."""
    k = max(0.0, drift)
    losses: list[float] = []
    for response, before, is_good in zip(responses, reference, good, strict=True):
        ratio = response.total - before
        losses.append(1 - _logistic(beta * (ratio - k if is_good else k - ratio)))
    return _mean(losses)


def orpo_loss(chosen: Responses, rejected: Responses, beta: float) -> float:
    """Return the loss of ORPO: that of supervised training on the chosen responses, and the odds."""
    odds = [
        (c.mean - _log_one_minus_exp(c.mean)) - (r.mean - _log_one_minus_exp(r.mean))
        for c, r in zip(chosen, rejected, strict=True)
    ]
    return sft_loss(chosen) - beta * _mean([_log_logistic(odd) for odd in odds])


def simpo_loss(chosen: Responses, rejected: Responses, beta: float, gamma: float) -> float:
    """Return the mean loss of SimPO."""
    margins = [beta * (c.mean - r.mean) - gamma for c, r in zip(chosen, rejected, strict=True)]
    return _mean([-_log_logistic(margin) for margin in margins])


def most_difference(precision: str) -> float:
    """Return how far the trainer's loss may be from the closed form, as a share of it."""
    return 1e-4 if precision == "float32" else 0.02


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def _log_logistic(x: float) -> float:
    return -math.log1p(math.exp(-x)) if x >= 0 else x - math.log1p(math.exp(x))


def _log_one_minus_exp(x: float) -> float:
    """Return log(1 - exp(x)) for x below 0 (Maechler 2012)."""
    x = min(x, -1e-300)
    return math.log(-math.expm1(x)) if x > -math.log(2) else math.log1p(-math.exp(x))
