"""What a paper states, each with the entries of the trail that it comes from."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry
from specs.session_words import session_words
from specs.stages.base.metric import Metric
from specs.system.masking import current
from specs.system.text import one_line
from specs.trail.gate_bodies import ChecksEntry, MetricsEntry
from specs.trail.session_bodies import ReportEntry

LINE_CHARACTERS = 2000


class ClaimSource(NamedTuple):
    """Where a value is recorded: a pointer into the evidence that an entry names, or into the entry's own body."""

    session: str
    entry: int
    key: str
    entry_digest: str
    evidence: str
    """The digest of a value in the content store, or of the session's report; empty for the entry's own body."""
    pointer: str
    """RFC 6901; empty where the value follows from all of it."""


class Claim(NamedTuple):
    """A number or a text of the paper."""

    id: str
    what: str
    value: Any
    text: str
    """The value as the paper prints it."""
    sources: tuple[ClaimSource, ...]
    find: str
    """The command that leads to its evidence."""


class ClaimList:
    """The claims of a paper, in the order in which they first appear."""

    def __init__(self) -> None:
        self._claims: dict[tuple[str, tuple[ClaimSource, ...]], Claim] = {}

    def __iter__(self) -> Iterator[Claim]:
        return iter(self._claims.values())

    def add(self, what: str, value: Any, sources: tuple[ClaimSource, ...], find: str) -> Claim:
        """Return the claim of a value; the same value of the same place is the same claim."""
        value = current().value(value)
        text = format_value(value)
        claim = Claim(f"c{len(self._claims) + 1}", what, value, text, sources, find)
        return self._claims.setdefault((text, sources), claim)

    def as_json(self) -> dict[str, Any]:
        """Return every claim by its id."""
        return {
            claim.id: claim._asdict() | {"sources": [source._asdict() for source in claim.sources]}
            for claim in self._claims.values()
        }


def format_value(value: Any) -> str:
    """Return a value as the paper prints it: a number with four digits, a text on one line."""
    if isinstance(value, bool) or value is None:
        return "none" if value is None else str(value).lower()
    if isinstance(value, float):
        return f"{value:.4g}"
    return one_line(value if isinstance(value, str | int) else ", ".join(map(str, value)), LINE_CHARACTERS)


def value_at(data: Any, pointer: str) -> Any:
    """Return the value at a JSON pointer (RFC 6901); raises LookupError if there is none."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        data = data[int(name)] if isinstance(data, list) else data[name]
    return data


def pointer_of(*parts: object) -> str:
    """Return the JSON pointer to what these names lead to."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in parts)


class CitedSession:
    """A session of the paper: gives its recorded values as claims."""

    def __init__(
        self, history: History, report: dict[str, Any], report_digest: str, claims: ClaimList, run: Path
    ) -> None:
        self.history, self.report, self._claims = history, report, claims
        self._report_digest, self._words = report_digest, session_words(run)

    @property
    def name(self) -> str:
        """The session's name."""
        return self.history.session

    @property
    def is_closed(self) -> bool:
        """Return whether the session has ended, so that its report is recorded."""
        return self._report_entry is not None

    @cached_property
    def _report_entry(self) -> RecordedEntry[ReportEntry] | None:
        return next(iter(self.history.of(ReportEntry)[-1:]), None)

    @cached_property
    def _registration(self) -> tuple[RecordedEntry, str]:
        """The entry that registers the design in force, and the digest of the spec."""
        digest = (self.history.newest_amendment or self.history.opening).spec
        return next(entry for entry in reversed(self.history) if entry.raw.get("spec") == digest), digest

    def from_report(self, *parts: object) -> Claim:
        """Return a value of the session's report."""
        entry = self._report_entry or self.history[-1]
        return self._cite(entry, self._report_digest, self.report, parts, " ".join(map(str, parts)))

    def from_spec(self, *parts: object) -> Claim:
        """Return a registered value."""
        entry, digest = self._registration
        return self.from_store(entry, digest, *parts)

    def from_store(self, entry: RecordedEntry, digest: str, *parts: object) -> Claim:
        """Return a part of a stored value that an entry names."""
        return self._cite(entry, digest, self.history.store.get_value(digest), parts, " ".join(map(str, parts)))

    def from_entry(self, entry: RecordedEntry, *parts: object) -> Claim:
        """Return a value of an entry's own body."""
        return self._cite(entry, "", entry.raw, parts, f"{entry.kind} {' '.join(map(str, parts))}")

    def from_metric(self, digest: str, metric: str, *parts: object) -> Claim:
        """Return the value of a metric, or the part of it that is named."""
        entry = next(entry for entry in self.history.of(MetricsEntry) if entry.body.metrics == digest)
        name = f"{entry.body.stage}.{entry.body.attempt}.{metric}"
        parts = ("metrics", metric, *(parts or ("value",)))
        find = f"peergate audit show {self._words} claim {name}" if self.is_closed else ""
        return self._cite(entry, digest, self.history.store.get_value(digest), parts, name, find)

    def from_check(self, entry: RecordedEntry[ChecksEntry], index: int, name: str) -> Claim:
        """Return what a check says."""
        return self.from_store(entry, entry.body.checks, index, name)

    def interval(self, digest: str, metric: Metric | dict[str, Any]) -> tuple[Any, ...]:
        """Return the interval of a metric as its two ends; nothing where it has none."""
        fields = metric if isinstance(metric, dict) else metric.model_dump()
        if not fields["interval"]:
            return ()
        low, high = (self.from_metric(digest, fields["id"], "interval", place) for place in (0, 1))
        return low, " to ", high

    def combine(self, what: str, value: Any, claims: tuple[Claim, ...], find: str) -> Claim:
        """Return a value that follows from several claims."""
        return self._claims.add(what, value, tuple(source for claim in claims for source in claim.sources), find)

    def _cite(
        self, entry: RecordedEntry, evidence: str, data: Any, parts: tuple[object, ...], what: str, find: str = ""
    ) -> Claim:
        pointer = pointer_of(*parts)
        source = ClaimSource(self.name, entry.seq, entry.key, entry.digest, evidence, pointer)
        find = find or f"peergate audit show {self._words} {entry.seq}"
        return self._claims.add(what, value_at(data, pointer), (source,), find)
