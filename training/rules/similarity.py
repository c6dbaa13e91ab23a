"""Which texts repeat each other, or nearly so: by words and their 3-shingles.

Paraphrases may be missed; a pair of texts whose similarity reaches the threshold is not.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain, combinations
from typing import Any, NamedTuple

from training.rules.disguise import Words, count_letters, normalise_lookalikes, stems_of

Shingles = frozenset[Words]

_SHINGLE = 3
_APOSTROPHES = frozenset("'\u2018\u2019")


class NearRepeat(NamedTuple):
    """A text that repeats an earlier one, or nearly so."""

    place: int
    of: int
    similarity: float


class Near(NamedTuple):
    """The earlier text that a text repeats: 1 for the same words."""

    of: int
    similarity: float


class ShingleIndex:
    """Sets of shingles under numbers, to be asked which of them are near another one.

    Sets of ``n`` and ``m`` shingles whose Jaccard similarity is at least ``t`` share at least
    ``c = t / (1 + t) * (n + m)`` of them, so any ``n - c + 1`` of the first include a shared one. Only sets that have
    one of the rarest ``n - c + 1`` are compared: none is missed (prefix filtering, Chaudhuri, Ganti and Kaushik 2006,
    doi:10.1109/ICDE.2006.9).
    Raises ValueError as :func:`check_threshold`.
    """

    def __init__(self, threshold: float) -> None:
        check_threshold(threshold)
        self._threshold = threshold
        self._sets: dict[int, Shingles] = {}
        self._counts = Counter[Words]()
        self._holders: dict[Words, dict[int, list[int]]] = {}
        """The numbers of the sets that have a shingle, by the size of the set."""

    def add(self, number: int, shingles: Shingles) -> None:
        """Add a set."""
        self._sets[number] = shingles
        self._counts.update(shingles)
        for shingle in shingles:
            self._holders.setdefault(shingle, {}).setdefault(len(shingles), []).append(number)

    def near(self, shingles: Shingles) -> list[tuple[int, float]]:
        """Return the numbers of the sets whose similarity reaches the threshold, in order, each with it."""
        candidates, count = set[int](), len(shingles)
        share = self._threshold / (1 + self._threshold)
        for place, shingle in enumerate(sorted(shingles, key=self._counts.__getitem__)):
            for size, numbers in self._holders.get(shingle, {}).items():
                least = math.ceil(share * (count + size) - _ROUNDING)
                if least <= min(size, count - place):
                    candidates.update(numbers)
        pairs = ((candidate, jaccard(shingles, self._sets[candidate])) for candidate in sorted(candidates))
        return [(candidate, similarity) for candidate, similarity in pairs if similarity >= self._threshold]


class NearIndex:
    """Texts one after the other, each compared with the earlier ones that were not repeats; no words repeat nothing.

    That keeps the search short where thousands are alike. Raises ValueError as :func:`check_threshold`.
    """

    def __init__(self, threshold: float) -> None:
        self._shelf = ShingleIndex(threshold)
        self._first: dict[Words, Near] = {}
        self._count = 0

    def add(self, text: str) -> Near | None:
        """Add a text; return the earlier one it repeats, if it repeats one."""
        words = words_of(text)
        place = self._count
        self._count += 1
        if not words:
            return None
        if words in self._first:
            return self._first[words]
        shingles = shingles_of(words)
        if near := self._shelf.near(shingles):
            self._first[words] = Near(*max(near, key=lambda pair: (pair[1], -pair[0])))
            return self._first[words]
        self._first[words] = Near(place, 1.0)
        self._shelf.add(place, shingles)
        return None


def near_repeats(texts: Iterable[str], *, threshold: float = 0.8) -> tuple[NearRepeat, ...]:
    """Return the texts that repeat an earlier one, or nearly so, each once; raises as :class:`NearIndex`."""
    index = NearIndex(threshold)
    pairs = ((place, index.add(text)) for place, text in enumerate(texts))
    return tuple(NearRepeat(place, *near) for place, near in pairs if near is not None)


def has_words(text: str, wanted: str) -> bool:
    """Return whether a text holds the words of another one in a row."""
    words = " ".join(words_of(wanted))
    return bool(words) and f" {words} " in f" {' '.join(words_of(text))} "


def words_of(text: str) -> Words:
    """Return the words of a text as they are compared: a symbol is one, and so is a letter of a script without spaces.

    Where such scripts part their words needs a dictionary; three letters in a row say as much as three words do.
    """
    if text.isascii():
        return tuple(text.lower().translate(_ascii_table()).split())
    # Case folding can undo NFKC (of some Greek letters, for example), so it is applied again.
    plain = normalise_lookalikes(unicodedata.normalize("NFKC", text))
    folded = unicodedata.normalize("NFKC", plain.casefold())
    spaced = "".join(map(_comparable, folded))
    if spaced.isascii():
        return tuple(spaced.split())
    # Where a word ends depends on the white space before a mark: it counts as one space, at the beginning too.
    spaced = " ".join(("", *spaced.split()))
    return tuple(chain.from_iterable(map(str.split, _boundary().split(spaced))))


@cache
def _ascii_table() -> dict[int, str]:
    """Return what each character counts as of a text that other scripts have no part in: most texts, and quickly."""
    return {code: _comparable(chr(code)) for code in range(128)}


@cache
def _boundary() -> Any:
    """Return the pattern of the boundaries of words, after Unicode's annex 29."""
    import regex

    return regex.compile(r"(?V1w)\b")


@lru_cache(65536)
def _comparable(character: str) -> str:
    """Return what a character counts as: nothing inside a word, a space between words, itself, or a word alone."""
    category = unicodedata.category(character)
    # Invisible characters would otherwise hide a copy; an apostrophe does not part "don't" into two words.
    if category == "Cf" or character in _APOSTROPHES:
        return ""
    if category.startswith("P") or character == "`":
        return " "
    return f" {character} " if category.startswith("S") else character


def shingles_of(words: Words) -> Shingles:
    """Return the word 3-shingles; fewer words are one shingle."""
    return frozenset(words[start : start + _SHINGLE] for start in range(max(1, len(words) - _SHINGLE + 1)))


def jaccard(shingles: Shingles, other: Shingles) -> float:
    """Return the share of the shingles of both that both have."""
    shared = len(shingles & other)
    return shared / (len(shingles) + len(other) - shared)


def check_threshold(threshold: float) -> None:
    """Refuse a similarity that no pair or every pair would reach: raises ValueError outside of 0 < t <= 1."""
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must be above 0 and at most 1, got {threshold}")


SAME = 0.6
"""Cosine of what is rare in two held-out texts, from which on they ask about the same."""
_ROWS_AT_ONCE = 64
"""Held-out texts compared at once: with 100,000 training texts their table takes 50 MB."""
_ROUNDING = 1e-9
"""More than a cosine is off by, so that no near pair is taken for one apart."""
_FEW_PAIRS = 100_000
"""Pairs up to which comparing each takes less time than loading what multiplies sparse tables."""


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
    nearests: dict[int, Nearest] = {}
    for number, (place, similarity, usual) in enumerate(_nearest_rows(train, heldout, groups)):
        nearest = Nearest(place, number, similarity, similarity - usual)
        if place not in nearests or nearest.apart > nearests[place].apart:
            nearests[place] = nearest
    return tuple(sorted(nearests.values(), key=lambda nearest: (-nearest.apart, nearest.train)))


def _nearest_rows(
    train: Sequence[str], heldout: Sequence[str], groups: Sequence[str]
) -> Iterator[tuple[int, float, float]]:
    """Yield for each held-out text the place of the nearest training text, the cosine, and that of another group."""
    stems, weights = _weigh_stems(train, heldout, groups)
    if len(heldout) * len(stems) <= _FEW_PAIRS:
        ours, theirs = (_plain_rows(part, weights) for part in (stems[: len(train)], stems[len(train) :]))
        for row, group in zip(theirs, groups, strict=True):
            cosines = [_product(row, other) for other in ours]
            others = (_product(row, other) for other, name in zip(theirs, groups, strict=True) if name != group)
            yield cosines.index(max(cosines)), max(cosines), max(others, default=0.0)
        return
    table = _unit_rows(stems, weights)
    first, last = table[: len(train)], table[len(train) :]
    for start in range(0, len(heldout), _ROWS_AT_ONCE):
        chunk = last[start : start + _ROWS_AT_ONCE]
        usual = _without_own((chunk @ last.T).toarray(), groups, start).max(axis=1)
        cosines = (chunk @ first.T).toarray()
        yield from zip(cosines.argmax(axis=1).tolist(), cosines.max(axis=1).tolist(), usual.tolist(), strict=True)


def _without_own(table: Any, groups: Sequence[str], start: int) -> Any:
    """Set the similarity to texts of the same group to 0."""
    import numpy as np

    every = np.unique(groups, return_inverse=True)[1]
    table[every[start : start + len(table), None] == every[None, :]] = 0
    return table


def cluster_groups(texts: Sequence[str], kinds: Sequence[str], groups: Sequence[str]) -> dict[str, int]:
    """Return a number for each group of texts, the same for groups that ask about the same: these are not independent.

    Their texts have in common most of what is rare in them, on average over a cluster (:data:`SAME`, the cosine of
    :func:`nearest_of`; average linkage, Sokal and Michener 1958). What most texts of a kind have is its instruction,
    and numbers are values: neither counts.
    """
    stems = list(map(_features, texts))
    of_kind: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for own, kind in zip(stems, kinds, strict=True):
        of_kind[kind].update(own)
    sizes = Counter(kinds)
    rare = [
        frozenset(
            stem for stem in own if not (2 * of_kind[kind][stem] > sizes[kind] > 1 or any(map(str.isdigit, stem)))
        )
        for own, kind in zip(stems, kinds, strict=True)
    ]
    frequency, members = Counter(chain(*rare)), Counter(groups)
    number = {group: place for place, group in enumerate(members)}
    if not frequency or len(members) == 1:
        return number
    weights = _weights(frequency, len(texts))
    if len(members) ** 2 <= _FEW_PAIRS and not _any_near(rare, groups, weights):
        return number
    import numpy as np  # Here, because most splits have few groups, of which none are near.
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.sparse import csr_matrix

    table = _unit_rows(rare, weights)
    shares = [1 / members[group] for group in groups]
    means: Any = csr_matrix((shares, ([number[group] for group in groups], range(len(groups))))) @ table
    names, clusters, last = list(members), dict[str, int](), 0
    for places in _split_apart(means):
        labels = [1]
        if len(places) > 1:
            near = means[places]
            apart = 1 - (near @ near.T).toarray()[np.triu_indices(len(places), 1)].clip(0, 1)
            labels = fcluster(linkage(apart, "average"), 1 - SAME, "distance").tolist()
        clusters |= {names[place]: last + label for place, label in zip(places, labels, strict=True)}
        last += max(labels)
    return clusters


def _any_near(stems: Sequence[frozenset[str]], groups: Sequence[str], weights: Mapping[str, float]) -> bool:
    """Return whether the mean rows of any two groups are near."""
    members = Counter(groups)
    means: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for row, group in zip(_plain_rows(stems, weights), groups, strict=True):
        for stem, weight in row.items():
            means[group][stem] += weight / members[group]
    return any(_product(row, other) >= SAME - _ROUNDING for row, other in combinations(means.values(), 2))


def _plain_rows(stems: Sequence[frozenset[str]], weights: Mapping[str, float]) -> list[dict[str, float]]:
    """Return the rows of :func:`_unit_rows` as tables of what is not 0, in an order that is the same each time."""
    lengths = (math.hypot(*(weights[stem] for stem in own)) or 1.0 for own in stems)
    return [{stem: weights[stem] / length for stem in sorted(own)} for own, length in zip(stems, lengths, strict=True)]


def _product(row: Mapping[str, float], other: Mapping[str, float]) -> float:
    return sum(weight * other[stem] for stem, weight in row.items() if stem in other)


def _split_apart(rows: Any) -> Iterator[list[int]]:
    """Yield the places of rows that a chain of near rows connects: no cluster reaches beyond, as it joins at a mean."""
    import numpy as np
    from scipy.sparse import vstack
    from scipy.sparse.csgraph import connected_components

    starts = range(0, rows.shape[0], _ROWS_AT_ONCE)
    near = vstack([(rows[start : start + _ROWS_AT_ONCE] @ rows.T) >= SAME - _ROUNDING for start in starts])
    labels = connected_components(near, directed=False)[1]
    order = np.argsort(labels, kind="stable")
    for places in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1):
        yield places.tolist()


def _features(text: str) -> frozenset[str]:
    """Return the stems of a text; of scripts without spaces, the letters next to each other."""
    words = words_of(text)
    pairs = {
        first + second for first, second in zip(words, words[1:], strict=False) if count_letters((first, second)) == 2
    }
    return frozenset(stem for stem in stems_of(words) if not count_letters((stem,))) | pairs


def _weights(frequency: Counter[str], texts: int) -> dict[str, float]:
    return {stem: math.log(texts / count) ** 2 for stem, count in frequency.items()}


def _unit_rows(stems: Sequence[frozenset[str]], weights: dict[str, float]) -> Any:
    """Return a sparse table with a row of unit length for each text and a column for each stem."""
    import numpy as np
    from scipy.sparse import csr_matrix, diags

    columns = {stem: place for place, stem in enumerate(sorted(weights))}
    weight = np.array([weights[stem] for stem in columns])
    places = [np.array(sorted(columns[stem] for stem in own), dtype=int) for own in stems]
    ends = np.cumsum([0, *map(len, places)])
    every = np.concatenate(places)
    table: Any = csr_matrix((weight[every], every, ends), shape=(len(stems), len(columns)))
    lengths = np.sqrt(np.asarray(table.multiply(table).sum(axis=1)).ravel())
    return csr_matrix(diags(1 / np.where(lengths > 0, lengths, 1)) @ table)


def _weigh_stems(
    train: Sequence[str], heldout: Sequence[str], groups: Sequence[str]
) -> tuple[list[frozenset[str]], dict[str, float]]:
    """Return the stems of each text, of the training first, and the weight of each stem."""
    stems = list(map(_features, (*train, *heldout)))
    of_group: defaultdict[str, set[str]] = defaultdict(set)
    for own, group in zip(stems[len(train) :], groups, strict=True):
        of_group[group] |= own
    frequency = Counter(chain(*stems[: len(train)], *of_group.values()))
    return stems, _weights(frequency, len(train) + len(of_group))
