"""The comparison by parts: constraint kinds one at a time, all but one, and groups of items that belong together.

Pure functions of pairs. The kinds are those of the registered split; nothing here chooses them after the fact.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

from reviews.statistics import mcnemar


class Pair(NamedTuple):
    """One held-out item that both arms answered."""

    kind: str
    group: str
    before: bool
    after: bool


class Part(NamedTuple):
    """Some of the pairs, counted."""

    kind: str
    """The kind they are of, or the one they are not of."""
    n: int
    gained: int
    lost: int

    @property
    def gain(self) -> Fraction:
        """Treatment accuracy minus baseline accuracy."""
        return Fraction(self.gained - self.lost, self.n)


class Tested(NamedTuple):
    """A kind with its exact McNemar test; ``adjusted`` takes into account how many kinds were tested."""

    part: Part
    p: float
    adjusted: float


def each_kind(pairs: Iterable[Pair]) -> tuple[Tested, ...]:
    """Test every kind by itself, adjusted over the kinds (Benjamini and Hochberg 1995), in the order of the split."""
    parts = [counted(some, kind) for kind, some in _by_kind(pairs).items()]
    p_values = [mcnemar.exact_mcnemar(part.gained, part.lost) for part in parts]
    adjusted = mcnemar.benjamini_hochberg(p_values)
    return tuple(map(Tested, parts, p_values, adjusted))


def without_each_kind(pairs: Iterable[Pair]) -> tuple[Part, ...]:
    """Count the pairs that remain when one kind is left out, for every kind; none when there is only one."""
    by_kind = _by_kind(pairs)
    if len(by_kind) < 2:
        return ()
    return tuple(
        counted((pair for kind, some in by_kind.items() if kind != left_out for pair in some), left_out)
        for left_out in by_kind
    )


def interval_over_groups(pairs: Iterable[Pair]) -> tuple[float, float] | None:
    """Return the 95 % interval of the gain that comes from drawing groups; None with one group."""
    gains: defaultdict[str, int] = defaultdict(int)
    sizes: defaultdict[str, int] = defaultdict(int)
    for pair in pairs:
        gains[pair.group] += pair.after - pair.before
        sizes[pair.group] += 1
    return mcnemar.grouped_difference_interval(list(gains.values()), list(sizes.values()))


def _by_kind(pairs: Iterable[Pair]) -> dict[str, list[Pair]]:
    found: defaultdict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        found[pair.kind].append(pair)
    return dict(found)


def counted(pairs: Iterable[Pair], kind: str = "") -> Part:
    """Count pairs that were gained and lost."""
    pairs = list(pairs)
    gained = sum(pair.after and not pair.before for pair in pairs)
    lost = sum(pair.before and not pair.after for pair in pairs)
    return Part(kind, len(pairs), gained, lost)
