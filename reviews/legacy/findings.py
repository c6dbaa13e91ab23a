"""Findings of a review with their severity and the places they cite. English only.

A severity is taken from the heading a point stands under, or from a mark at its start. A point without one is a finding
only below "Findings", "Concerns" or "Risks"; its severity is then ``unstated``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from reviews.legacy.citations import Citation, citations_in
from reviews.legacy.layout import Page
from reviews.legacy.sections import Item, Section, says_none

Severity = Literal["critical", "high", "medium", "low", "suggestion", "unstated"]

_WORDS: tuple[tuple[Severity, str], ...] = (
    ("critical", r"critical|blockers?|blocking|fatal|severe|show-?stoppers?|must[\s-]?fix"),
    ("high", r"high|major|serious|important|errors?"),
    ("medium", r"medium|moderate|warnings?"),
    ("low", r"low|minor|nits?|trivial|cosmetic"),
    ("suggestion", r"suggestions?|nice[\s-]to[\s-]haves?|optional|improvements?|ideas?"),
)
_SIGNS: tuple[tuple[Severity, str], ...] = (
    ("critical", "\U0001f6a8\U0001f534\U0001f6d1\u26d4\u274c"),
    ("high", "\u26a0\U0001f7e0"),
    ("medium", "\U0001f7e1"),
    ("suggestion", "\U0001f4a1"),
)
_TAIL = (
    r"(?:[\s-]+(?:severity|priority|impact|issues?|findings?|problems?|concerns?|points?|items?"
    r"|errors?|flaws?|found|remaining|open))*(?:\s+(?:for|before|to|in|of|with)\b.{0,40})?"
)
_HEADING: list[tuple[Severity, re.Pattern[str]]] = [
    (name, re.compile(rf"(?i)^\W*(?:{words}){_TAIL}\W*(?:\(\d+\)|\d+)?\W*$")) for name, words in _WORDS
]
_TAG: list[tuple[Severity, re.Pattern[str]]] = [
    (
        name,
        re.compile(
            rf"(?i)^\W*(?:severity\W+)?[\[(*_]*(?:{words})(?:[\s-]+(?:severity|priority|issue"
            rf"|finding))?[\])*_]*\s*(?:[:\u2013\u2014-]|\]|\))\s*"
        ),
    )
    for name, words in _WORDS
]
_END_TAG: list[tuple[Severity, re.Pattern[str]]] = [
    (name, re.compile(rf"(?i)[\[(](?:severity\W+)?(?:{words})(?:\s+(?:severity|priority))?[\])]\W*$"))
    for name, words in _WORDS
]
_UNSTATED = re.compile(
    r"(?i)^\W*(?:key\s+|main\s+|open\s+|remaining\s+|statistical\s+|methodolog\w+\s+|specific\s+|other\s+)?"
    r"(?:findings?|concerns?|risks?|issues?(?:\s+found)?|problems?|weaknesses|red\s+flags|observations)\W*$"
)
_DECIDING = re.compile(
    r"(?i)^\W*(?:\d+[.)]\s*)?(?:final\s+|overall\s+)?(?:summary|overall|verdict|decision|approval|status"
    r"|assessment|recommendation)\W*$"
)
_UNFILLED = re.compile(r"(?i)^\W*(?:todo|tbd|fill\s+in|placeholder)\W*$")
_SETTLED = re.compile(
    r"(?i)^\W*(?:\[[xX]\]|~~|\u2705|\u2714)|^\W*(?:resolved|fixed|closed|addressed|done)\b"
    r"|\b(?:now\s+(?:resolved|fixed)|is\s+(?:now\s+)?fixed|has\s+been\s+(?:fixed|resolved))\b"
)


class LegacyFinding(NamedTuple):
    """One thing a reviewer saw. ``settled`` when the review itself says that it is resolved."""

    severity: Severity
    line: int
    text: str
    evidence: tuple[Citation, ...]
    settled: bool


def findings_in(page: Page, sections: Sequence[Section]) -> list[LegacyFinding]:
    """Return the findings of a review, in the order of their lines."""
    found: list[LegacyFinding] = []
    under: list[tuple[int, Severity]] = []
    for section in sections:
        while under and under[-1][0] >= section.level:
            under.pop()
        named = _of_heading(section.title)
        inherited = under[-1][1] if under else None
        kind = named or inherited
        if section.zone != "review":
            continue
        if named and section.level < 8:
            under.append((section.level, named))
        for item in section.items:
            if _DECIDING.match(section.title) and not item.bulleted:
                continue
            severity = _of_item(item.text) or (kind if item.bulleted or section.level == 8 or named else None)
            if severity is not None and not says_none(_bare(item.text)) and not _empty(item.text):
                found.append(_finding(page, severity, item))
    return sorted(found, key=lambda one: one.line)


def grave(findings: Sequence[LegacyFinding]) -> int | None:
    """Return the line of the first critical finding that is not settled."""
    return next((one.line for one in findings if one.severity == "critical" and not one.settled), None)


def _finding(page: Page, severity: Severity, item: Item) -> LegacyFinding:
    line = page.numbers[item.at]
    return LegacyFinding(
        severity, line, _bare(item.text), tuple(citations_in(item.text)), _SETTLED.search(item.text) is not None
    )


def _of_heading(title: str) -> Severity | None:
    bare = re.sub(r"[*_`]", "", title)
    for name, pattern in _HEADING:
        if pattern.match(bare):
            return name
    return "unstated" if _UNSTATED.match(bare) else None


def _of_item(text: str) -> Severity | None:
    start = text[:80]
    for name, pattern in _TAG:
        if pattern.match(start):
            return name
    end = text[-60:]
    for name, pattern in _END_TAG:
        if pattern.search(end):
            return name
    first = start.lstrip("*_[( ")[:1]
    return next((name for name, group in _SIGNS if first and first in group), None)


def _empty(text: str) -> bool:
    """Say whether a point was struck or never filled in."""
    return _UNFILLED.match(text) is not None or re.search(r"\w", text) is None


def _bare(text: str) -> str:
    """Return a point without the mark of its severity."""
    for _, pattern in _TAG:
        text = pattern.sub("", text, count=1)
    return re.sub(r"\*\*|__", "", text).strip(" *_")
