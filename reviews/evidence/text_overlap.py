"""Finds held-out texts among training texts, word for word, nearly, or disguised.

Every match is confirmed by comparing the texts. Not found are paraphrases, translations and short texts inside much
longer ones.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from specs.session.thresholds import Thresholds
from training.rules.disguise import (
    LEAST_STEMS,
    Bag,
    Words,
    bag_of,
    count_letters,
    count_words,
    decode_hidden_texts,
    transform_words,
)
from training.rules.similarity import ShingleIndex, Shingles, check_threshold, jaccard, shingles_of, words_of

How = Literal["exact", "normalised", "decoded", "shuffled", "reordered", "near", "contained", "split"]

DEFAULTS = Thresholds()
"""For callers without a spec."""

_STRENGTH = {
    "split": 0,
    "reordered": 0,
    "contained": 1,
    "near": 2,
    "shuffled": 3,
    "decoded": 4,
    "normalised": 5,
    "exact": 6,
}
SHARED = 0.2
"""Fraction of the held-out texts: a shingle of as many is a part of an instruction that they share, and says nothing
about whether two of them ask the same."""
FEWEST_SHARED = 5
"""Held-out texts that share a shingle at least, before it counts as a part of an instruction."""
PART = 3
"""Words of a training text, at least, that may be a part of a held-out text which others complete."""
FRAMED = 3
"""One held-out text of so many begins or ends with the same words: they are a frame, and not what it asks."""
_WHOLE = 3
"""Words that letters of a script without spaces make at least, before a text of them is sure to be more than a part."""
SHUFFLED = 0.1
"""Similarity below which the same words are in an order that no other question of these words has."""


@dataclass(frozen=True)
class Overlap:
    """A training text and a held-out text that are the same or nearly so."""

    how: How
    train: str
    heldout: str
    train_text: str
    heldout_text: str
    similarity: float
    """Jaccard similarity of the word 3-shingles; 1 for all but near, contained and split."""


def find_overlaps(
    train: Iterable[tuple[str, str]],
    heldout: Iterable[tuple[str, str]],
    *,
    threshold: float = DEFAULTS.prompt_similarity,
    contained: int = DEFAULTS.contained_words,
    reordered: bool = False,
) -> tuple[Overlap, ...]:
    """Return one overlap for each pair of a training and a held-out text that match, the strongest kind of it.

    - ``exact``: the strings are equal.
    - ``normalised``: equal after NFKC, case folding, removal of punctuation and invisible marks, collapsing of white
      space, and with letters that only look Latin taken for Latin ones.
    - ``decoded``: the held-out text, or one of ``contained`` words or more inside, once base64, hexadecimal digits,
      percent signs, rot13, or a reversal of words or characters is undone.
    - ``reordered``, where it is asked for: the same stems of six words or more in any order,
      fillers left out, numbers in the same order.
    - ``shuffled``, likewise: such a text with next to no three words in a row of the other (:data:`SHUFFLED`).
    - ``near``: the sets of word 3-shingles of the normalised texts have a Jaccard similarity (Broder 1997) of at
      least ``threshold``, and they are near without an instruction that the held-out texts share
      (:data:`SHARED`). A text of one or two words is one shingle.
    - ``contained``: a held-out text of ``contained`` words or more is in the training text, in order and together.

    A text of which nothing is left after normalising matches only exactly.

    Args:
        train: (id, text) pairs. When an id comes with several texts, the strongest match of any of them is returned.
        heldout: (id, text) pairs, likewise.
        threshold: the least Jaccard similarity of a near duplicate.
        contained: words from which a held-out text is looked for inside longer ones; short ones occur in many texts.
        reordered: look for the same words in another order too. They may ask something else ("Ana beat Ben"), so these
            are for a reader to judge.

    Returns:
        Overlaps in the order of the training ids, then of the held-out ids, as they first came.

    Raises:
        ValueError: ``threshold`` is not above 0 and at most 1.
    """
    check_threshold(threshold)
    ours, theirs = _SideTexts(train), _SideTexts(heldout)
    best: dict[tuple[str, str], Overlap] = {}
    for overlap in chain(
        _matches(ours, theirs, threshold, contained), _find_reordered_texts(ours, theirs) if reordered else ()
    ):
        pair = (overlap.train, overlap.heldout)
        if pair not in best or _strength(overlap) > _strength(best[pair]):
            best[pair] = overlap
    return tuple(best[pair] for pair in sorted(best, key=lambda pair: (ours.order[pair[0]], theirs.order[pair[1]])))


def find_split_texts(
    train: Iterable[tuple[str, str]], heldout: Iterable[tuple[str, str]], contained: int = DEFAULTS.contained_words
) -> tuple[Overlap, ...]:
    """Return the parts of held-out texts that several training texts make up together, in whatever order.

    A part is a whole training text of :data:`PART` words or more, in the held-out text as it is. Together they have to
    cover all of its words but one in ten, and the text has to have ``contained`` words.
    """
    ours, theirs = _SideTexts(train), _SideTexts(heldout)
    places: defaultdict[Words, list[tuple[Words, int]]] = defaultdict(list)
    for words in theirs.by_words:
        for start in range(len(words) - 2 if count_words(words) >= contained else 0):
            places[words[start : start + 3]].append((words, start))
    parts: defaultdict[Words, dict[Words, range]] = defaultdict(dict)
    for words in ours.by_words if places else ():
        for whole, start in places.get(words[:3], ()) if count_words(words) >= PART else ():
            if len(words) < len(whole) and whole[start : start + len(words)] == words:
                parts[whole][words] = range(start, start + len(words))
    overlaps: list[Overlap] = []
    for whole, of_whole in parts.items():
        if 10 * len(set(chain(*of_whole.values()))) >= 9 * len(whole):
            for words in of_whole:
                share = jaccard(shingles_of(words), shingles_of(whole))
                overlaps += _pairs("split", ours.by_words[words], theirs.by_words[whole], share)
    return tuple(overlaps)


class _SideTexts:
    """One side: its texts by what they look like normalised."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self.order: dict[str, int] = {}
        self.by_text: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        self.by_words: defaultdict[Words, list[tuple[str, str]]] = defaultdict(list)
        for name, text in pairs:
            self.order.setdefault(name, len(self.order))
            self.by_text[text].append((name, text))
        for text, members in self.by_text.items():
            if words := words_of(text):
                self.by_words[words].extend(members)


def _matches(ours: _SideTexts, theirs: _SideTexts, threshold: float, contained: int) -> Iterator[Overlap]:
    """Yield every match of every kind; a pair may come more than once."""
    # In the order of the dictionaries: the order of a set would differ from one process to the next.
    for text in (text for text in ours.by_text if text in theirs.by_text):
        yield from _pairs("exact", ours.by_text[text], theirs.by_text[text], 1.0)
    for words in (words for words in ours.by_words if words in theirs.by_words):
        yield from _pairs("normalised", ours.by_words[words], theirs.by_words[words], 1.0)
    frames = _Frames(list(theirs.by_words), contained)
    for words, others, similarity in _near(list(ours.by_words), list(theirs.by_words), threshold, frames):
        yield from _pairs("near", ours.by_words[words], theirs.by_words[others], similarity)
    yield from _find_disguised_texts(ours, theirs, contained)
    cores: defaultdict[Words, list[Words]] = defaultdict(list)
    for words in theirs.by_words:
        cores[words].append(words)
        if (core := frames.core_of(words)) != words:
            cores[core].append(words)
    for words, core in _find_contained_texts(list(ours.by_words), list(cores), contained):
        similarity = jaccard(shingles_of(words), shingles_of(core))
        for others in (others for others in cores[core] if others != words):
            yield from _pairs("contained", ours.by_words[words], theirs.by_words[others], similarity)


class _Frames:
    """What many held-out texts begin or end with: a preamble, a closing request. Their questions lie between."""

    def __init__(self, texts: Sequence[Words], least: int) -> None:
        many = max(FEWEST_SHARED, -(-len(texts) // FRAMED))
        self._heads = _shared_heads(texts, many, least)
        self._tails = _shared_heads([words[::-1] for words in texts], many, least)

    def core_of(self, words: Words) -> Words:
        """Return a text without its frame, the end of which stays where little else is left."""
        rest = words[max((len(part) for part in self._heads if words[: len(part)] == part), default=0) :]
        tail = max((len(part) for part in self._tails if rest[::-1][: len(part)] == part), default=0)
        core = rest[: len(rest) - tail]
        return core if count_words(core) >= LEAST_STEMS else rest or words


def _shared_heads(texts: Sequence[Words], many: int, least: int) -> set[Words]:
    """Return the longest beginnings of ``least`` words or more that so many texts share."""
    ordered = sorted(texts)
    heads = {first[: _count_common(first, last)] for first, last in zip(ordered, ordered[many - 1 :], strict=False)}
    return {head for head in heads if count_words(head) >= least}


def _count_common(words: Words, others: Words) -> int:
    pairs = enumerate(zip(words, others, strict=False))
    return next((place for place, (word, other) in pairs if word != other), min(len(words), len(others)))


def _find_reordered_texts(ours: _SideTexts, theirs: _SideTexts) -> Iterator[Overlap]:
    """Yield the texts of the same words in another order."""
    bags: defaultdict[Bag, list[Words]] = defaultdict(list)
    for words in theirs.by_words:
        if bag := bag_of(words):
            bags[bag].append(words)
    for words in ours.by_words if bags else ():
        if bag := bag_of(words):
            for stored_words in bags.get(bag, ()):
                alike = jaccard(shingles_of(words), shingles_of(stored_words))
                how: How = "shuffled" if alike < SHUFFLED else "reordered"
                yield from _pairs(how, ours.by_words[words], theirs.by_words[stored_words], 1.0)


def _find_disguised_texts(ours: _SideTexts, theirs: _SideTexts, contained: int) -> Iterator[Overlap]:
    """Yield the matches of texts that are encoded, in rot13 or reversed."""
    forms: defaultdict[Words, list[Words]] = defaultdict(list)
    for words in theirs.by_words:
        for form in transform_words(words):
            forms[form].append(words)
    for form in (words for words in forms if words in ours.by_words):
        for words in forms[form]:
            yield from _pairs("decoded", ours.by_words[form], theirs.by_words[words], 1.0)
    for words, form in _find_contained_texts(list(ours.by_words), list(forms), contained):
        for stored_words in forms[form]:
            yield from _pairs("decoded", ours.by_words[words], theirs.by_words[stored_words], 1.0)
    yield from _find_encoded_texts(ours, theirs, contained)


def _find_encoded_texts(ours: _SideTexts, theirs: _SideTexts, contained: int) -> Iterator[Overlap]:
    """Yield the matches of texts that are held-out ones, or contain one, once decoded."""
    plain: defaultdict[Words, list[tuple[str, str]]] = defaultdict(list)
    for text, members in ours.by_text.items():
        for hidden in decode_hidden_texts(text):
            if words := words_of(hidden):
                plain[words].extend(members)
    for words in (words for words in plain if words in theirs.by_words):
        yield from _pairs("decoded", plain[words], theirs.by_words[words], 1.0)
    for words, stored_words in _find_contained_texts(list(plain), list(theirs.by_words), contained):
        yield from _pairs("decoded", plain[words], theirs.by_words[stored_words], 1.0)


def _find_contained_texts(ours: list[Words], theirs: list[Words], least: int) -> Iterator[tuple[Words, Words]]:
    """Yield the pairs in which the second is whole inside the first, which is longer."""
    begin: defaultdict[Words, list[Words]] = defaultdict(list)
    for words in theirs:
        if count_words(words) >= least:
            begin[words[:least]].append(words)
    for words in ours:
        for start in range(len(words) - least + 1):
            for stored_words in begin.get(words[start : start + least], ()):
                if len(stored_words) < len(words) and words[start : start + len(stored_words)] == stored_words:
                    yield words, stored_words


def _pairs(
    how: How,
    ours: list[tuple[str, str]],
    theirs: list[tuple[str, str]],
    similarity: float,
) -> Iterator[Overlap]:
    for name, text in ours:
        for other, other_text in theirs:
            yield Overlap(how, name, other, text, other_text, similarity)


def _near(
    ours: list[Words], theirs: list[Words], threshold: float, frames: _Frames
) -> Iterator[tuple[Words, Words, float]]:
    """Yield the pairs of different word sequences that are near without their frames, each with its similarity."""
    if not ours or not theirs:
        return
    shelf = ShingleIndex(threshold)
    cores = list(map(frames.core_of, theirs))
    for place, core in enumerate(cores):
        shelf.add(place, shingles_of(core))
    shared = _shared_shingles(cores)
    for words in ours:
        core = frames.core_of(words)
        for place, similarity in shelf.near(shingles_of(core)):
            # A frame that only one of the two has changes what a question of few words asks.
            framed = (core == words) == (cores[place] == theirs[place]) or count_words(cores[place]) >= LEAST_STEMS
            if framed and words != theirs[place] and _asks_the_same(core, cores[place], shared, threshold):
                yield words, theirs[place], similarity


def _shared_shingles(texts: list[Words]) -> Shingles:
    """Return the shingles of the instruction that texts share."""
    counts = Counter(shingle for words in texts for shingle in shingles_of(words))
    least = max(FEWEST_SHARED, SHARED * len(texts))
    return frozenset(shingle for shingle, count in counts.items() if count >= least)


def _asks_the_same(words: Words, heldout: Words, shared: Shingles, threshold: float) -> bool:
    """Return whether two near texts are near without the instruction that all share.

    They are if the rest of one is that of the other with more words, or if the two have nearly the same words: a
    changed word breaks three shingles, which is too much of a short rest.
    """
    if not shared:
        return True
    own, others = _own_words(words, shared), _own_words(heldout, shared)
    if not own or not others:
        # In a script without spaces, questions may differ in two letters alone.
        return not count_letters(own or others)
    ours, theirs = Counter(own), Counter(others)
    mine, its = Counter(words) - Counter(heldout), Counter(heldout) - Counter(words)
    if mine and its and 2 * (mine & ours).total() < mine.total() and 2 * (its & theirs).total() < its.total():
        # Another choice of what the instruction offers: "as a list" and "as a table".
        return False
    alike = (ours & theirs).total() / (ours | theirs).total()
    # A few letters of a script without spaces may be a part of another word: "water" is one of "river" in Thai.
    part = min(own, others, key=len)
    whole = not count_letters(part) or count_words(part) >= _WHOLE
    return alike >= threshold or (whole and (ours <= theirs or theirs <= ours))


def _own_words(words: Words, shared: Shingles) -> Words:
    """Return the words of a text that are in no shingle of a shared instruction."""
    covered: set[int] = set()
    for start in range(len(words) - 2):
        if words[start : start + 3] in shared:
            covered.update((start, start + 1, start + 2))
    return tuple(word for place, word in enumerate(words) if place not in covered)


def _strength(overlap: Overlap) -> tuple[int, float]:
    return _STRENGTH[overlap.how], overlap.similarity
