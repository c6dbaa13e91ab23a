"""Files that hold one review twice, and verdicts that contradict each other.

Files are paired by the topic in their names, the commit that brought them and their time. A pair is a guess: it says
what it rests on, and changes no verdict.
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
from reviews.legacy.records import Contradiction, Pair

_REVIEWERS = re.compile(r"codex|gemini|claude|gpt[45]?|opus|sonnet|o[13]|llama|qwen|mistral|deepseek|human")
_NO_TOPIC = re.compile(
    _REVIEWERS.pattern
    + r"|requests?|responses?|reply|replies|review(?:s|ed)?|answer|feedback|result|final|draft|copy|the|of"
    r"|for|and|a|on|in|to|v[1-3]|short|long|full|summary|detailed|autonomous|p[0-3]"
)
_DAY, _NEAR, _FAR = timedelta(days=1), timedelta(days=3), timedelta(days=40)
_ALIKE = 0.5
_ENOUGH = 2.5
_CROWD = 60
"""More files that share a word or a commit than this are not compared with each other."""
_POSITIVE = ("approve", "approve_with_conditions")


class File(NamedTuple):
    """What pairing goes by: what a file's path says, its verdict, digest and commit."""

    source: str
    topic: frozenset[str]
    reviewer: str | None
    is_request: bool
    stamp: Stamp | None
    verdict: str | None
    """``undetermined`` for a statement that is no verdict; None when the file decides nothing."""
    digest: str | None
    commit: str | None


def file_of(source: str, verdict: str | None, digest: str | None, commit: str | None) -> File:
    """Return a file with what its path below the imported folder says: topic, reviewer, role and time."""
    path = PurePosixPath(source)
    words = re.findall(r"[a-z0-9]+", STAMP.sub(" ", path.stem).lower())
    folders = {one.lower() for one in path.parts[:-1]}
    reviewer = next((one for one in [*reversed(words), *folders] if _REVIEWERS.fullmatch(one)), None)
    asks = "request" in words or not folders.isdisjoint(("requests", "pending"))
    is_request = asks and {"response", "responses", "reply"}.isdisjoint(words)
    topic = frozenset(_singular(one) for one in words if not _NO_TOPIC.fullmatch(one))
    return File(source, topic, reviewer, is_request, stamp_of(path.name), verdict, digest, commit)


def pairs_of(files: Sequence[File]) -> list[Pair]:
    """Return the pairs among the reviews of a folder; requests are left out."""
    reviews = [one for one in files if not one.is_request]
    brought = Counter(one.commit for one in reviews if one.commit)
    scored = [
        found for one, other in _candidates(reviews) if (found := _paired(one, other, brought[one.commit or ""] == 2))
    ]
    pairs: list[Pair] = []
    taken: set[str] = set()
    for _, pair in sorted(scored, key=lambda one: (-one[0], one[1].sources)):
        # A review has one other half; there may be many versions and copies.
        if pair.kind != "duplicate" or taken.isdisjoint(pair.sources):
            taken.update(pair.sources if pair.kind == "duplicate" else ())
            pairs.append(pair)
    return sorted(pairs, key=lambda one: one.sources)


def contradictions_of(files: Sequence[File], pairs: Sequence[Pair]) -> list[Contradiction]:
    """Return the pairs whose files decided differently."""
    verdicts = {one.source: one.verdict for one in files}
    found: list[Contradiction] = []
    for pair in pairs:
        one, other = (verdicts[source] for source in pair.sources)
        if one and other and one != other:
            opposite = (one in _POSITIVE) != (other in _POSITIVE) and "undetermined" not in (one, other)
            found.append(Contradiction(pair.sources, (one, other), opposite))
    return found


def _candidates(files: Sequence[File]) -> Iterator[tuple[File, File]]:
    """Yield pairs of files that share a digest, a word of their topic or a commit."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in files:
        for what in [*(("word", word) for word in one.topic), ("commit", one.commit), ("digest", one.digest)]:
            if what[1]:
                groups[what[0], what[1]].append(one.source)
    named = {one.source: one for one in files}
    pairs: set[tuple[str, str]] = set()
    for (what, _), members in groups.items():
        if len(members) <= _CROWD or what == "digest":
            pairs.update(combinations(sorted(members[: 10 * _CROWD]), 2))
    return ((named[one], named[other]) for one, other in sorted(pairs))


def _paired(one: File, other: File, alone: bool) -> tuple[float, Pair] | None:
    """Return how well two files go together, and as what; ``alone`` when their commit brought no other review."""
    sources = (one.source, other.source)
    if one.digest and one.digest == other.digest:
        return 10.0, Pair("copy", sources, ("the same bytes",))
    apart, kind = _apart(one.stamp, other.stamp), _kind(one, other)
    dated = one.stamp is not None and other.stamp is not None
    lone = kind == "duplicate" and alone and dated
    signs: dict[str, float] = {}
    if (alike := _likeness(one.topic, other.topic)) >= _ALIKE:
        signs["topic"] = 2.0 * alike
    if one.commit and one.commit == other.commit:
        signs["commit"] = 1.0
    enough = _ENOUGH - lone
    if not dated:
        enough -= 0.5
    elif apart <= _NEAR:
        signs["time"] = 1.0 if apart <= _DAY else 0.5
    elif one.topic == other.topic and len(one.topic) >= 2 and apart <= _FAR:
        # A date that a reviewer wrote may be wrong by weeks; the same topic word for word outweighs that.
        enough -= 1.0 - apart / (2 * _FAR)
    else:
        enough += 1.0
    score = sum(signs.values()) - enough
    if kind is None or score < 0 or not ("topic" in signs or lone):
        return None
    return score, Pair(kind, sources, tuple(signs))


def _kind(one: File, other: File) -> Literal["duplicate", "other version", "other reviewer"] | None:
    apart = _apart(one.stamp, other.stamp)
    if one.reviewer and other.reviewer and one.reviewer != other.reviewer:
        return "other reviewer" if apart <= _NEAR else None
    # A program that keeps short answers names them by the hour, a reviewer's long form has only a day.
    timed = [bool(each.stamp and each.stamp.whole) for each in (one, other)]
    if timed[0] != timed[1] or (timed[0] and one.stamp == other.stamp):
        return "duplicate"
    # Two files of one form are two attempts, unless topic and day are the same.
    return "other version" if one.topic == other.topic and not timed[0] and apart < _DAY else None


def _apart(one: Stamp | None, other: Stamp | None) -> timedelta:
    if one is None or other is None:
        return timedelta(0)
    if not (one.whole and other.whole):
        return abs(one.moment.date() - other.moment.date())
    return abs(one.moment - other.moment)


def _likeness(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the share of words that two topics have in common; 1 if one holds all of the other, two or more."""
    shared = one & other
    if len(shared) >= 2 and shared in (one, other):
        return 1.0
    return len(shared) / len(one | other) if shared else 0.0


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
