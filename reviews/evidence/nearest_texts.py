"""Finds the training text that is nearest to what each held-out text asks, as far as rare words in common show it.

A similarity proves nothing: it chooses the pairs that a reader should look at, and fails no check.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

from training.rules.disguise import stems_of
from training.rules.similarity import words_of

_ROWS_AT_ONCE = 64
"""Held-out texts compared at once: with 100,000 training texts their table takes 50 MB."""


class Nearest(NamedTuple):
    """A training text and the held-out text that it is nearest to, by their places."""

    train: int
    heldout: int
    similarity: float
    """Cosine of the weighted stems: 0 without any in common, 1 for the same ones."""
    apart: float
    """How much nearer this is than any held-out text of another group."""


def nearest_of(train: Sequence[str], heldout: Sequence[str], groups: Sequence[str]) -> tuple[Nearest, ...]:
    """Return pairs of near texts, those first that stand out most from what is usual inside the held-out split.

    A stem weighs ``ln(N / df)`` squared, where ``df`` of the ``N`` training texts and held-out groups have it: words of
    a template weigh next to nothing, those of a single topic the most. The texts are compared by the cosine of their
    stems' weights (Salton and Buckley 1988, doi:10.1016/0306-4573(88)90021-0). Prompts of one template are alike
    without asking the same, so pairs are ranked by how much nearer they are than two held-out texts of different
    groups. Each training text comes once at most, with the held-out text whose nearest it is.

    Args:
        train: training texts.
        heldout: held-out texts.
        groups: the group of each held-out text.
    """
    if not train or not heldout:
        return ()
    ours, theirs = _weigh_stems(train, heldout, groups)
    nearests: dict[int, Nearest] = {}
    for start in range(0, len(heldout), _ROWS_AT_ONCE):
        some = theirs[start : start + _ROWS_AT_ONCE]
        usual = _without_own((some @ theirs.T).toarray(), groups, start).max(axis=1)
        table = (some @ ours.T).toarray()
        for row, place in enumerate(table.argmax(axis=1).tolist()):
            similarity = float(table[row, place])
            nearest = Nearest(place, start + row, similarity, similarity - float(usual[row]))
            if place not in nearests or nearest.apart > nearests[place].apart:
                nearests[place] = nearest
    return tuple(sorted(nearests.values(), key=lambda nearest: (-nearest.apart, nearest.train)))


def _without_own(table: Any, groups: Sequence[str], start: int) -> Any:
    """Set the similarity to texts of the same group to 0."""
    import numpy as np

    every = np.unique(groups, return_inverse=True)[1]
    table[every[start : start + len(table), None] == every[None, :]] = 0
    return table


def _weigh_stems(train: Sequence[str], heldout: Sequence[str], groups: Sequence[str]) -> tuple[Any, Any]:
    """Return for each side a sparse table with a row of unit length for each text and a column for each stem."""
    import numpy as np
    from scipy.sparse import csr_matrix, diags

    stems = [frozenset(stems_of(words_of(text))) for text in (*train, *heldout)]
    of_group: defaultdict[str, set[str]] = defaultdict(set)
    for own, group in zip(stems[len(train) :], groups, strict=True):
        of_group[group] |= own
    frequency = Counter(chain(*stems[: len(train)], *of_group.values()))
    columns = {stem: place for place, stem in enumerate(sorted(frequency))}
    weights = np.log((len(train) + len(of_group)) / np.array([frequency[stem] for stem in columns])) ** 2
    places = [np.array(sorted(columns[stem] for stem in own), dtype=int) for own in stems]
    ends = np.cumsum([0, *map(len, places)])
    every = np.concatenate(places)
    table: Any = csr_matrix((weights[every], every, ends), shape=(len(stems), len(columns)))
    lengths = np.sqrt(np.asarray(table.multiply(table).sum(axis=1)).ravel())
    table = csr_matrix(diags(1 / np.where(lengths > 0, lengths, 1)) @ table)
    return table[: len(train)], table[len(train) :]
