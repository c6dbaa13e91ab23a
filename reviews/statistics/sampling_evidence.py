"""What speaks against answers having been drawn from the granted distribution: likelihood ratios against others.

Each alternative draws an answer from another distribution. Of honest draws, its probability divided by the granted one
has mean 1, whatever came before; so has the product over all answers, and the mean over alternatives. By Markov's
inequality it reaches 1 / a with a probability of at most a (Ville 1939; Grünwald, de Heide and Koolen 2024,
arXiv:1906.07801): no approximation, and no least number of tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from specs.stages.base.witness import TILTS, Token, WitnessRow

SHARES = (0.05, 0.2, 0.5, 0.9)
"""Shares of answers that are not drawn but greedy, or copied from another one to the same prompt."""
_LEAST = 1e-9
"""Probabilities are written with nine digits. A larger one speaks less against an answer, but of colder draws."""


def evidence(rows: Sequence[WitnessRow]) -> dict[str, float]:
    """Return for each kind of alternative the logarithm of its likelihood ratio to the granted distribution.

    Each of them, and the logarithm of their mean (:func:`average_ratios`), is that of an e-value. Rows without drawn
    tokens, and rows that must repeat another row, do not count.
    """
    sampled = [row for row in rows if row.drawn and not row.again]
    return {
        "colder draws": _mean([_compare_temperature(sampled, place) for place, tilt in enumerate(TILTS) if tilt > 1]),
        "hotter draws": _mean([_compare_temperature(sampled, place) for place, tilt in enumerate(TILTS) if tilt < 1]),
        "greedy answers": _mean([_compare_mixture([_greedy(row) for row in sampled], share) for share in SHARES]),
        "copies of each other": _mean(
            [_compare_mixture([_compare_copies(row) for row in sampled], share) for share in SHARES]
        ),
    }


def average_ratios(results: dict[str, float]) -> float:
    """Return the logarithm of the mean of likelihood ratios, from their logarithms."""
    return _mean(list(results.values()))


def _compare_temperature(rows: Sequence[WitnessRow], place: int) -> float:
    """Compare with draws from the distribution to a power: with another temperature."""
    return math.fsum(
        (TILTS[place] - 1) * _logarithm(token) - token.tilted[place] for row in rows for token in row.drawn or ()
    )


def _greedy(row: WitnessRow) -> float:
    """Return how many times as probable a row is if it is the greedy answer, as a logarithm."""
    tokens = row.drawn or ()
    return -_nats(tokens) if all(token.before == 0 for token in tokens) else -math.inf


def _compare_copies(row: WitnessRow) -> float | None:
    """Return the same if it is a copy of another answer, each as likely as the others; None without another one."""
    if row.copies is None:
        return None
    same, of = row.copies.same, row.copies.of
    return math.log(same / of) - _nats(row.drawn or ()) if same else -math.inf


def _compare_mixture(ratios: Sequence[float | None], share: float) -> float:
    """Compare with answers of which this share is of the alternative."""
    drawn = math.log1p(-share)
    return math.fsum(_sum([drawn, math.log(share) + ratio]) for ratio in ratios if ratio is not None)


def _nats(tokens: Sequence[Token]) -> float:
    return math.fsum(map(_logarithm, tokens))


def _logarithm(token: Token) -> float:
    return math.log(max(token.own, _LEAST))


def _mean(logarithms: Sequence[float]) -> float:
    return _sum(logarithms) - math.log(len(logarithms))


def _sum(logarithms: Sequence[float]) -> float:
    """Return the logarithm of the sum of numbers that are given by their logarithms."""
    largest = max(logarithms)
    return largest + math.log(math.fsum(math.exp(logarithm - largest) for logarithm in logarithms))
