"""Files that hold one review twice, answers and their requests, and verdicts that contradict each other.

A short answer kept by a program and the long form that the reviewer wrote are paired by what they cite, by the topic in
their names, by the commit that brought them and by their time. Pairing is a guess: it says by what, and changes no
verdict.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import combinations
from typing import Literal, NamedTuple

from reviews.legacy.names import Name, likeness

Kind = Literal["copy", "duplicate", "other version", "other reviewer"]
_NEAR = timedelta(days=3)
_FAR = timedelta(days=40)
_ALIKE = 0.5
_ENOUGH = 2.5
_FEW = 4
"""A file that cites more other reviews than this is an index, not the other half of one of them."""
_CROWD = 60
"""More files that share a word, a day or a commit than this are not compared with each other."""
_POSITIVE = ("approve", "approve_with_conditions")


class Known(NamedTuple):
    """What is known of a file for pairing."""

    source: str
    name: Name
    verdict: str | None
    """``undetermined`` when the file decides something that is no verdict; None when it decides nothing."""
    digest: str | None
    commit: str | None
    mentions: frozenset[str]
    """Other files of the folder that it cites, by source."""


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


def pairs_of(files: Sequence[Known]) -> list[Pair]:
    """Return the pairs among the reviews of a folder; requests take no part."""
    reviews = {one.source: one for one in files if one.name.role == "review"}
    brought = Counter(one.commit for one in reviews.values() if one.commit)
    scored = sorted(
        (
            pair
            for a, b in _candidates(list(reviews.values()))
            if (pair := _paired(reviews[a], reviews[b], brought[reviews[a].commit or ""] == 2)) is not None
        ),
        key=lambda one: (-one[0], one[1].sources),
    )
    found: list[Pair] = []
    taken: set[tuple[str, Kind]] = set()
    for _, pair in scored:
        # A review has one other half; versions and copies there may be many.
        halves: list[tuple[str, Kind]] = [(source, pair.kind) for source in pair.sources]
        if pair.kind == "duplicate" and any(half in taken for half in halves):
            continue
        taken.update(halves)
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


def requests_of(files: Sequence[Known]) -> dict[str, str]:
    """Return by the source of a review the source of the request it answers, where there is one in the folder."""
    asked: dict[frozenset[str], list[Known]] = defaultdict(list)
    for one in files:
        if one.name.role == "request" and one.name.topic:
            asked[one.name.topic].append(one)
    found: dict[str, str] = {}
    for one in files:
        choices = [request for request in asked.get(one.name.topic, []) if _apart(request.name, one.name) <= _NEAR]
        if one.name.role == "review" and choices:
            found[one.source] = min(
                choices, key=lambda request: (_apart(request.name, one.name), request.source)
            ).source
    return found


def _candidates(files: Sequence[Known]) -> Iterator[tuple[str, str]]:
    """Yield pairs of files that share a digest, a word of their topic or a commit, or of which one cites the other."""
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for one in files:
        for word in one.name.topic:
            groups["word", word].append(one.source)
        if one.commit:
            groups["commit", one.commit].append(one.source)
        if one.digest:
            groups["digest", one.digest].append(one.source)
    known = {one.source for one in files}
    pairs = {
        tuple(sorted((one.source, other)))
        for one in files
        for other in one.mentions
        if other in known and other != one.source
    }
    for (what, _), members in groups.items():
        if len(members) <= _CROWD or what == "digest":
            pairs.update(combinations(sorted(set(members[: 10 * _CROWD])), 2))
    for one, other in sorted(pairs):
        yield one, other


def _paired(one: Known, other: Known, alone: bool) -> tuple[float, Pair] | None:
    """Return how well two files go together, and as what; None when they do not.

    ``alone``: their commit brought these two reviews and no other.
    """
    sources = (one.source, other.source) if one.source < other.source else (other.source, one.source)
    if one.digest and one.digest == other.digest:
        return 10.0, Pair("copy", sources, ("the same bytes",))
    same_form = one.name.timed == other.name.timed and not (one.name.timed and one.name.stamp == other.name.stamp)
    signs = _signs(one, other)
    kind = _kind(one.name, other.name, same_form)
    score = sum(signs.values())
    held = "topic" in signs or (
        "one cites the other" in signs and (alone or likeness(one.name.topic, other.name.topic) > 0)
    )
    if kind == "duplicate" and alone and "time" in signs:
        held, score = True, score + 1.0
    if (
        kind is None
        or not held
        or score < _ENOUGH
        or ("time" in signs and signs["time"] == 0.0 and score < _ENOUGH + 1.0)
    ):
        return None
    return score, Pair(kind, sources, tuple(name for name, worth in signs.items() if worth > 0 and name != ""))


def _signs(one: Known, other: Known) -> dict[str, float]:
    """Return what speaks for two files being one review, and how much."""
    signs: dict[str, float] = {}
    if any(b.source in a.mentions and len(a.mentions) <= _FEW for a, b in ((one, other), (other, one))):
        signs["one cites the other"] = 2.5
    alike = likeness(one.name.topic, other.name.topic)
    if alike >= _ALIKE:
        signs["topic"] = 2.0 * alike
    if one.commit and one.commit == other.commit:
        signs["commit"] = 1.0
    if one.name.stamp is None or other.name.stamp is None:
        signs[""] = 0.5
        return signs
    apart = _apart(one.name, other.name)
    if apart <= _NEAR:
        signs["time"] = 1.0 if apart <= timedelta(days=1) else 0.5
    elif one.name.topic == other.name.topic and len(one.name.topic) >= 2 and apart <= _FAR:
        # A date that a reviewer wrote may be wrong by weeks; a topic that is the same word for word outweighs that.
        signs[""] = 1.0 - apart / (2 * _FAR)
    else:
        signs["time"] = 0.0
    return signs


def _kind(one: Name, other: Name, same_form: bool) -> Kind | None:
    if len({one.reviewer, other.reviewer} - {None}) == 2:
        return "other reviewer" if _apart(one, other) <= _NEAR else None
    if not same_form:
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
