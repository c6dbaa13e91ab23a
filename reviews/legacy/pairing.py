"""Files that hold one review twice, and verdicts that contradict each other.

A short answer kept by a program and the long form that the reviewer wrote are paired by the topic in their names, by
the commit that brought them and by their time. Pairing is a guess: it says by what, and changes no
verdict.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import combinations
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

from reviews.legacy.dates import STAMP, Stamp, stamp_of

Kind = Literal["copy", "duplicate", "other version", "other reviewer"]
_REVIEWERS = re.compile(r"codex|gemini|claude|gpt[45]?|opus|sonnet|o[13]|llama|qwen|mistral|deepseek|human")
_NO_TOPIC = re.compile(
    _REVIEWERS.pattern
    + r"|requests?|responses?|reply|replies|review(?:s|ed)?|answer|feedback|result|final|draft|copy|the|of"
    r"|for|and|a|on|in|to|v[1-3]|short|long|full|summary|detailed|autonomous|p[0-3]"
)
_NEAR = timedelta(days=3)
_FAR = timedelta(days=40)
_ALIKE = 0.5
_ENOUGH = 2.5
_CROWD = 60
"""More files that share a word, a day or a commit than this are not compared with each other."""
_POSITIVE = ("approve", "approve_with_conditions")


class Name(NamedTuple):
    """A file name taken apart; ``timed`` when its stamp has an hour, the way a program names files."""

    topic: frozenset[str]
    reviewer: str | None
    role: Literal["request", "review"]
    stamp: Stamp | None
    timed: bool


class Known(NamedTuple):
    """What is known of a file for pairing."""

    source: str
    name: Name
    verdict: str | None
    """``undetermined`` when the file decides something that is no verdict; None when it decides nothing."""
    digest: str | None
    commit: str | None


class Pair(NamedTuple):
    """Two files that belong together, and by what."""

    kind: Kind
    sources: tuple[str, str]
    by: tuple[str, ...]

    def other(self, source: str) -> str:
        """Return the other file."""
        return self.sources[1] if source == self.sources[0] else self.sources[0]


class Contradiction(NamedTuple):
    """Two files of one pair with different verdicts. ``opposite`` when one of them approves and the other does not."""

    sources: tuple[str, str]
    verdicts: tuple[str, str]
    opposite: bool


def name_of(source: str) -> Name:
    """Return what a path below the imported folder says about the file: its topic, reviewer, role and time."""
    path = PurePosixPath(source)
    words = [one for one in re.split(r"[^a-z0-9]+", STAMP.sub(" ", path.stem).lower()) if one]
    folders = {one.lower() for one in path.parts[:-1]}
    reviewer = next((one for one in [*reversed(words), *folders] if _REVIEWERS.fullmatch(one)), None)
    asked = ("request" in words or folders & {"requests", "pending"}) and not {"response", "responses", "reply"} & set(
        words
    )
    topic = frozenset(_singular(one) for one in words if not _NO_TOPIC.fullmatch(one))
    stamp = stamp_of(path.name)
    return Name(topic, reviewer, "request" if asked else "review", stamp, bool(stamp and stamp.whole))


def pairs_of(files: Sequence[Known]) -> list[Pair]:
    """Return the pairs among the reviews of a folder; requests take no part."""
    reviews = {one.source: one for one in files if one.name.role == "review"}
    brought = Counter(one.commit for one in reviews.values() if one.commit)
    scored: list[tuple[float, Pair]] = []
    for a, b in _candidates(list(reviews.values())):
        if pair := _paired(reviews[a], reviews[b], alone=brought[reviews[a].commit or ""] == 2):
            scored.append(pair)
    found: list[Pair] = []
    taken: set[str] = set()
    for _, pair in sorted(scored, key=lambda one: (-one[0], one[1].sources)):
        # A review has one other half; there may be many versions and copies.
        if pair.kind == "duplicate":
            if taken & set(pair.sources):
                continue
            taken.update(pair.sources)
        found.append(pair)
    return sorted(found, key=lambda one: one.sources)


def contradictions_of(files: Sequence[Known], pairs: Sequence[Pair]) -> list[Contradiction]:
    """Return the pairs whose files decided differently."""
    verdicts = {one.source: one.verdict for one in files}
    found: list[Contradiction] = []
    for pair in pairs:
        one, other = (verdicts[source] for source in pair.sources)
        if one and other and one != other:
            opposite = (one in _POSITIVE) != (other in _POSITIVE) and "undetermined" not in (one, other)
            found.append(Contradiction(pair.sources, (one, other), opposite))
    return found


def _candidates(files: Sequence[Known]) -> Iterator[tuple[str, str]]:
    """Yield pairs of files that share a digest, a word of their topic or a commit."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in files:
        words = [("word", word) for word in one.name.topic]
        for what in [*words, ("commit", one.commit or ""), ("digest", one.digest or "")]:
            if what[1]:
                groups[what].append(one.source)
    pairs: set[tuple[str, str]] = set()
    for (what, _), members in groups.items():
        if len(members) <= _CROWD or what == "digest":
            pairs.update(combinations(sorted(members[: 10 * _CROWD]), 2))
    yield from sorted(pairs)


def _paired(one: Known, other: Known, *, alone: bool) -> tuple[float, Pair] | None:
    """Return how well two files go together, and as what; None when they do not.

    ``alone``: their commit brought these two reviews and no other.
    """
    sources = (min(one.source, other.source), max(one.source, other.source))
    if one.digest and one.digest == other.digest:
        return 10.0, Pair("copy", sources, ("the same bytes",))
    kind = _kind(one.name, other.name)
    signs = _signs(one, other)
    lone = kind == "duplicate" and alone and "time" in signs
    enough = _ENOUGH + (1.0 if signs.get("time") == 0.0 else 0.0)
    score = sum(signs.values()) + lone
    if kind is None or not ("topic" in signs or lone) or score < enough:
        return None
    return score, Pair(kind, sources, tuple(name for name, worth in signs.items() if worth > 0 and name))


def _signs(one: Known, other: Known) -> dict[str, float]:
    """Return what speaks for two files being one review, and how much."""
    signs: dict[str, float] = {}
    alike = _likeness(one.name.topic, other.name.topic)
    if alike >= _ALIKE:
        signs["topic"] = 2.0 * alike
    if one.commit and one.commit == other.commit:
        signs["commit"] = 1.0
    apart = _apart(one.name, other.name)
    if one.name.stamp is None or other.name.stamp is None:
        signs[""] = 0.5
    elif apart <= _NEAR:
        signs["time"] = 1.0 if apart <= timedelta(days=1) else 0.5
    elif one.name.topic == other.name.topic and len(one.name.topic) >= 2 and apart <= _FAR:
        # A date that a reviewer wrote may be wrong by weeks; a topic that is the same word for word outweighs that.
        signs[""] = 1.0 - apart / (2 * _FAR)
    else:
        signs["time"] = 0.0
    return signs


def _kind(one: Name, other: Name) -> Kind | None:
    if len({one.reviewer, other.reviewer} - {None}) == 2:
        return "other reviewer" if _apart(one, other) <= _NEAR else None
    if one.timed != other.timed or (one.timed and one.stamp == other.stamp):
        return "duplicate"
    # Two files of one form are two attempts, unless topic and day are the same.
    same = one.topic == other.topic and not one.timed and _apart(one, other) < timedelta(days=1)
    return "other version" if same else None


def _apart(one: Name, other: Name) -> timedelta:
    if one.stamp is None or other.stamp is None:
        return timedelta(0)
    if not (one.stamp.whole and other.stamp.whole):
        return abs(one.stamp.moment.date() - other.stamp.moment.date())
    return abs(one.stamp.moment - other.stamp.moment)


def _likeness(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the share of words that two topics have in common, 1 too when one holds all of the other, two or more."""
    shared = one & other
    if not shared:
        return 0.0
    return 1.0 if shared in (one, other) and len(shared) >= 2 else len(shared) / len(one | other)


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
