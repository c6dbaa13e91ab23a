"""Several seeds: items and seeds are both samples, so an interval over items alone is too narrow.

With fewer than about five seeds the spread between seeds is hardly known, which is why two intervals are given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from reviews.statistics.paired_binary import LIFT_RESAMPLES


class OverSeeds(NamedTuple):
    """A mean gain over items and seeds (candidate - reference)."""

    difference: float
    per_seed: tuple[float, ...]
    interval: tuple[float, float]
    """95 %, items and seeds both drawn with replacement."""
    seed_interval: tuple[float, float] | None
    """95 %, by Student's t on the seeds' means alone; None with one seed."""
    variance_items: float
    variance_seeds: float
    variance_rest: float
    """Components of the variance of a single gain; negative estimates are 0."""


def over_seeds(
    reference: Sequence[Sequence[float]],
    candidate: Sequence[Sequence[float]],
    *,
    resamples: int = LIFT_RESAMPLES,
    seed: int = 42,
) -> OverSeeds:
    """Compare scores of the same items over several seeds: rows are seeds, columns items.

    The reference may have one row for all (greedy, untrained). The interval is the bootstrap of a crossed design: seeds
    and items are drawn independently (McCullagh 2000, Bernoulli 6:285-301; Owen 2007, Ann. Appl. Stat. 1:386-411),
    which errs on the wide side. The components come from the two-way analysis of variance without replication: expected
    mean squares are ``rest``, ``rest + seeds * items`` and ``rest + items * seeds``.

    Raises:
        ValueError: the rows differ in length, there are fewer than two items, or the numbers of seeds do not fit.
    """
    import numpy as np
    from scipy.stats import t as student

    items = {len(row) for row in (*reference, *candidate)}
    if not candidate or len(reference) not in (1, len(candidate)) or len(items) != 1 or items == {1} or items == {0}:
        counts = f"{len(reference)} and {len(candidate)} with {sorted(items)} items"
        raise ValueError(
            f"expected one reference seed or as many as candidates, each with the same items, got {counts}"
        )
    gains = np.asarray(candidate, float) - np.asarray(reference, float)
    seeds, n = gains.shape
    means = gains.mean(axis=1)
    rng = np.random.default_rng(seed)
    drawn = np.empty(resamples)
    for place in range(resamples):
        of_seeds = np.bincount(rng.integers(seeds, size=seeds), minlength=seeds)
        of_items = np.bincount(rng.integers(n, size=n), minlength=n)
        drawn[place] = of_seeds @ gains @ of_items / (seeds * n)
    low, high = np.percentile(drawn, [2.5, 97.5])
    interval = None
    if seeds > 1:
        half = float(student.isf(0.025, seeds - 1)) * float(means.std(ddof=1)) / math.sqrt(seeds)
        interval = (float(means.mean()) - half, float(means.mean()) + half)
    mean, ends = float(gains.mean()), (float(low), float(high))
    return OverSeeds(mean, tuple(means.tolist()), ends, interval, *_components(gains))


def _components(table: Any) -> tuple[float, float, float]:
    """Return the variance components (items, seeds, rest); with one seed everything but items is unknown and 0."""
    seeds, n = table.shape
    if seeds == 1:
        return float(table.var(ddof=1)), 0.0, 0.0
    grand, rows, columns = table.mean(), table.mean(axis=1), table.mean(axis=0)
    between_seeds = n * float(((rows - grand) ** 2).sum()) / (seeds - 1)
    between_items = seeds * float(((columns - grand) ** 2).sum()) / (n - 1)
    remaining = table - rows[:, None] - columns[None, :] + grand
    rest = float((remaining**2).sum()) / ((seeds - 1) * (n - 1))
    return max(0.0, (between_items - rest) / seeds), max(0.0, (between_seeds - rest) / n), rest
