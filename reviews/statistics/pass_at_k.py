"""pass@k: the share of problems that one of k answers solves, estimated from n answers to each."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import comb

from reviews.statistics.mcnemar import wilson


def pass_at_k(n: int, right: int, k: int) -> Fraction:
    """Return the unbiased estimate for one problem: the share of the choices of k of n answers with a right one.

    Chen et al. 2021, arXiv:2107.03374, equation 1. Raises ValueError for numbers that cannot be.
    """
    if not 1 <= k <= n or not 0 <= right <= n:
        raise ValueError(f"expected 1 <= k <= n and 0 <= right <= n, got k = {k}, n = {n}, right = {right}")
    return 1 - Fraction(comb(n - right, k), comb(n, k))


def over_problems(answers: Sequence[tuple[int, int]], k: int) -> tuple[Fraction, tuple[float, float]]:
    """Return the mean over problems, each given as (answers, right ones), with a 95 % interval.

    The interval is Wilson's of as many trials as problems: answers to one problem are not independent trials, and a
    mean of numbers from 0 to 1 spreads no more than a share does. Raises ValueError without problems.
    """
    if not answers:
        raise ValueError("no problems")
    total = sum((pass_at_k(n, right, k) for n, right in answers), Fraction(0))
    return total / len(answers), wilson(float(total), len(answers))
