"""Find training texts that are held-out texts: equal, equal up to form, or near (Jaccard of word 3-shingles).

MinHash proposes candidates, the true Jaccard index decides, so there are no false alarms. Not found: paraphrases in
other words, and small changes of short texts, because a few shingles are a large share of a short text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

SHINGLE_WORDS = 3
PERMUTATIONS = 128
CANDIDATE_THRESHOLD = 0.5
"""Well below what counts as near: MinHash with these permutations misses about none at 0.8."""

How = Literal["exact", "normalised", "near"]


@dataclass(frozen=True)
class Overlap:
    """A training text and the held-out text it is, the strongest way first; ``similarity`` is the Jaccard index."""

    how: How
    train: str
    heldout: str
    train_text: str
    heldout_text: str
    similarity: float


def find_overlaps(
    train: Iterable[tuple[str, str]], heldout: Iterable[tuple[str, str]], *, threshold: float = 0.8
) -> tuple[Overlap, ...]:
    """Return every overlapping pair, in the order of ``train`` and then of ``heldout``.

    Args:
        train: pairs of id and text.
        heldout: pairs of id and text.
        threshold: Jaccard index from which on two texts are near (Broder 1997).
    """
    from datasketch import MinHashLSH

    kept = [(id, text, normalise(text)) for id, text in heldout]
    index: Any = MinHashLSH(threshold=CANDIDATE_THRESHOLD, num_perm=PERMUTATIONS)
    by_text: dict[str, list[int]] = {}
    by_form: dict[str, list[int]] = {}
    for place, (_, text, form) in enumerate(kept):
        by_text.setdefault(text, []).append(place)
        if form:
            by_form.setdefault(form, []).append(place)
            index.insert(place, _signature(form))
    found: list[Overlap] = []
    for id, text in train:
        form = normalise(text)
        hits: dict[int, tuple[How, float]] = {}
        if form:
            for place in index.query(_signature(form)):
                similarity = jaccard(form, kept[place][2])
                if similarity >= threshold:
                    hits[place] = ("near", similarity)
            hits |= dict.fromkeys(by_form.get(form, ()), ("normalised", 1.0))
        hits |= dict.fromkeys(by_text.get(text, ()), ("exact", 1.0))
        for place in sorted(hits):
            how, similarity = hits[place]
            found.append(Overlap(how, id, kept[place][0], text, kept[place][1], similarity))
    return tuple(found)


def normalise(text: str) -> str:
    """Return the words of a text in small letters: without punctuation, width variants and extra white space."""
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold()))


def jaccard(one: str, other: str) -> float:
    """Return the Jaccard index of the shingles of two normalised texts."""
    first, second = _shingles(one), _shingles(other)
    return len(first & second) / len(first | second)


def _shingles(form: str) -> set[str]:
    words = form.split()
    count = max(1, len(words) - SHINGLE_WORDS + 1)
    return {" ".join(words[start : start + SHINGLE_WORDS]) for start in range(count)}


def _signature(form: str) -> Any:
    from datasketch import MinHash

    signature = MinHash(num_perm=PERMUTATIONS, seed=1)
    signature.update_batch([shingle.encode() for shingle in sorted(_shingles(form))])
    return signature
