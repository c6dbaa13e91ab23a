"""What a review holds besides its verdict, by label only: findings, conditions, answers, cited files, its making."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from reviews.legacy.own_words import heading

Severity = Literal["critical", "high", "medium", "low", "suggestion", "unstated"]

_Marked = Sequence[tuple[Severity, re.Pattern[str]]]
_SEVERITIES: tuple[tuple[Severity, str, str], ...] = (
    ("critical", "critical|blockers?|blocking|fatal|severe|must[ -]?fix", "\U0001f6a8\U0001f534\U0001f6d1\u26d4\u274c"),
    ("high", "high|major|serious|important", "\u26a0\U0001f7e0"),
    ("medium", "medium|moderate|warnings?", "\U0001f7e1"),
    ("low", "low|minor|nits?|trivial|cosmetic", ""),
    ("suggestion", "suggestions?|nice[ -]to[ -]haves?|optional|improvements?", "\U0001f4a1"),
    ("unstated", "(?:key |main |open )?(?:findings?|concerns?|risks?|weaknesses|observations)", ""),
)
_NOUN = r"(?:[\s-]+(?:severity|priority|issues?|findings?|problems?|concerns?|points?|errors?|found))*"
_TITLES: _Marked = [
    (name, re.compile(rf"(?i)^\W*(?:\d+[.)]\s*)?(?:{words}){_NOUN}\W*\d*\W*$")) for name, words, _ in _SEVERITIES
]
_TAGS: _Marked = [
    (
        name,
        re.compile(
            rf"(?i)^\W*(?:severity\W+)?(?:{words}){_NOUN}\s*(?:[:\u2013\u2014\])-])\s*|[\[(](?:{words})[\])]\W*$"
        ),
    )
    for name, words, _ in _SEVERITIES[:-1]
]
_NONE = re.compile(r"(?i)^\W*(?:none|n/?a|nil|nothing|no(?:\s+\w+){0,3})(?:\s+(?:that\s+matter|found|of\s+note))?\W*$")
_SETTLED = re.compile(
    r"(?i)^\W*(?:\[[xX]\]|~~|\u2705|\u2714|(?:resolved|fixed|closed|done)\b)|\bis\s+(?:now\s+)?fixed\b"
)
_CONDITIONS = re.compile(
    r"(?i)^\W*(?:\d+[.)]\s*)?(?:pre-?conditions?|conditions?|safeguards?|requirements?|required(?:\s.*)?|must[\s-]fix(?:\s.*)?)\W*$"
)
_BINDING = re.compile(
    r"(?i)\b(?:must|ha(?:s|ve)\s+to|only\s+(?:if|after|once)|unless|subject\s+to|provided\s+that|do\s+not|(?:abort|stop)\s+if)\b"
)
_ADVICE = re.compile(r"(?i)^\W*(?:make\s+sure|please|ensure)\b|\bshould\b")
_DUE = re.compile(
    r"(?i)\b(?:before|prior\s+to|until|no\s+later\s+than)\s+(?P<due>[^\s.,;:()]+(?:\s+[^\s.,;:()]+){0,5})"
)
_ITEM = re.compile(r"^\s*(?:[-*+\u2022]\s+|(?:Q|A)?(?P<number>\d{1,3})[.):]\s+)(?P<text>\S.*)$")
_LABEL = re.compile(r"^[^\w\s]{0,4}\s*(?P<title>[A-Za-z][\w /-]{1,40}):\s*(?P<rest>.*)$")
_ASKED = re.compile(r"^\W*(?P<question>[^?]{3,400}\?)[*_\"')]*\s*(?:[-\u2013\u2014:>]+\s*)?(?P<answer>.*)$")
_PATH = re.compile(
    r"(?<![\w./:@%*<$-])(?P<path>(?:~/|/|(?:\.{1,2}/){1,8})?(?:[\w@+-][\w.@+-]*/){0,12}[\w@+-][\w.@+-]{0,150}\.(?:py|md|txt|jsonl?"
    r"|ya?ml|toml|cfg|ini|sh|csv|tsv|log|ipynb|rst|html?|js|ts|c|h|cc|cpp|rs|go|sql|parquet|safetensors|patch|pdf|png))(?![\w/])"
    r"(?:(?::|#L|\s*\(?(?:lines?|L)\s*)(?P<first>\d{1,6})(?:(?:\s*[-\u2013]\s*|\s+to\s+)L?(?P<last>\d{1,6}))?)?"
)
_NO_PATH = re.compile(r"(?i)\b[a-z][a-z0-9+.-]{1,12}://\S{1,500}|\by{2,4}mm\S*|\b(?:node|vue|next|e\.g|i\.e)\.\w+")
_MADE = re.compile(
    r"(?i)^\W*(?:\[[^\]]{1,40}\]\W*)?(?:reviewer\s+|total\s+|review\s+|reasoning[\s_-]*|model_)?(?P<name>model|effort|cost|tokens)"
    r"(?:\s+(?:id|name|used|usd))?\s*[:=|]\W{0,4}(?P<value>[$\u20ac]?[\w.,:/-]{1,60}(?:\s(?:usd|eur|\$|\u20ac))?)\W*$"
)
_HEAD = 40
MOST = 500


class Citation(NamedTuple):
    """A file as a text names it, with a range of lines if it gives one."""

    path: str
    first: int | None = None
    last: int | None = None

    def __str__(self) -> str:
        lines = "" if self.first is None else f":{self.first}"
        return self.path + lines + (f"-{self.last}" if self.last != self.first else "")


class Point(NamedTuple):
    """One point of a list or one line of prose, with the heading or label it appears under."""

    line: int
    text: str
    title: str
    number: int | None
    listed: bool


class LegacyFinding(NamedTuple):
    """One thing a reviewer saw. ``settled`` when the review itself says that it is resolved."""

    severity: Severity
    line: int
    text: str
    evidence: tuple[str, ...]
    settled: bool


class LegacyCondition(NamedTuple):
    """What an approval depends on. ``binding`` is false for advice ("should", "make sure")."""

    line: int
    text: str
    due: str | None
    binding: bool


class Answer(NamedTuple):
    """One answer; ``question`` is None when the review does not repeat it and no request was found."""

    number: int
    line: int
    question: str | None
    answer: str


def points_of(lines: Sequence[tuple[int, str]]) -> list[Point]:
    """Return the points of some numbered lines; a line that continues a list item belongs to it."""
    found: list[Point] = []
    title, gap = "", True
    for number, line in lines:
        item = _ITEM.match(line)
        level, head = heading(line)
        label = None if item or level else _LABEL.match(line.replace("**", ""))
        titled = not item and (_severity(line, _TITLES) or _CONDITIONS.match(line))
        rest = item["text"] if item else label["rest"] if label else "" if level or titled else line.strip()
        if level or titled or label:
            title = label["title"] if label else head or line.strip()
        if rest and found and found[-1].listed and not (item or label or gap):
            found[-1] = found[-1]._replace(text=f"{found[-1].text} {rest}"[:2000])
        elif rest:
            numbered = int(item["number"]) if item and item["number"] else None
            found.append(Point(number, rest, title.strip("*_: "), numbered, item is not None))
        gap = not line.strip() or bool(level or titled)
    return found


def findings_in(points: Sequence[Point]) -> list[LegacyFinding]:
    """Return the points with a severity, by a mark of their own or by the heading they appear under."""
    found: list[LegacyFinding] = []
    for one in points:
        titled = _severity(one.title, _TITLES)
        severity = _severity(one.text, _TAGS) or (titled if one.listed or titled != "unstated" else None)
        if severity and not _NONE.match(one.text) and re.search(r"\w", re.sub(r"~~.*?~~", "", one.text)):
            bare = one.text
            for _, tag in _TAGS:
                bare = tag.sub("", bare, count=1)
            cited = tuple(str(place) for place in citations_in(one.text))
            found.append(LegacyFinding(severity, one.line, _bare(bare), cited, _SETTLED.search(one.text) is not None))
    return found[:MOST]


def conditions_in(points: Sequence[Point]) -> list[LegacyCondition]:
    """Return what stands under a heading of conditions, and sentences that bind or advise."""
    found: list[LegacyCondition] = []
    for one in points:
        titled = _CONDITIONS.match(one.title) is not None
        for sentence in [one.text] if titled else re.split(r"(?<=[.!?;])\s+", one.text):
            binds = titled or _BINDING.search(sentence) is not None
            moot = _NONE.match(sentence) or _SETTLED.match(sentence) or sentence.endswith("?")
            if not moot and (binds or _ADVICE.search(sentence)):
                due = _DUE.search(sentence)
                found.append(LegacyCondition(one.line, _bare(sentence), due["due"] if due else None, binds))
    return found[:MOST]


def questions_in(points: Sequence[Point]) -> dict[int, str]:
    """Return the numbered questions that a text asks, in whatever part of it."""
    found: dict[int, str] = {}
    for one in points:
        asked = _ASKED.match(one.text)
        if one.number is not None and (asked or re.search(r"(?i)\bquestions?\b", one.title)):
            found.setdefault(one.number, _bare(asked["question"] if asked else one.text))
    return found


def answers_in(points: Sequence[Point], asked: dict[int, str]) -> list[Answer]:
    """Return the numbered answers of a review: under a heading of answers, or behind their question."""
    found: dict[int, Answer] = {}
    for one in points:
        hit = _ASKED.match(one.text)
        titled = re.search(r"(?i)\b(?:answers?|responses?|replies)\b", one.title)
        said = _bare(hit["answer"]) if hit else one.text if titled else ""
        if one.number is not None and said:
            question = _bare(hit["question"]) if hit else asked.get(one.number)
            found.setdefault(one.number, Answer(one.number, one.line, question, said))
    return [found[number] for number in sorted(found)][:MOST]


def citations_in(text: str) -> Iterator[Citation]:
    """Yield the files that a text cites, each with its lines; web addresses and patterns of names are none."""
    for hit in _PATH.finditer(_NO_PATH.sub(" ", text)):
        first = int(hit["first"]) if hit["first"] else None
        yield Citation(hit["path"], first, int(hit["last"]) if hit["last"] else first)


def made_with(lines: Sequence[str]) -> dict[str, str]:
    """Return what the first and last lines of a file say about model, effort, cost and tokens; nothing confirms it."""
    found: dict[str, str] = {}
    for line in [*lines[:_HEAD], *lines[max(_HEAD, len(lines) - _HEAD) :]]:
        if hit := _MADE.match(line[:200]):
            found.setdefault(hit["name"].lower(), hit["value"])
    return found


def _severity(text: str, patterns: Sequence[tuple[Severity, re.Pattern[str]]]) -> Severity | None:
    bare = re.sub(r"[*_`]", "", text)
    found: list[Severity] = [
        name for name, pattern in patterns if pattern.match(bare[:80]) or pattern.search(bare[-60:])
    ]
    first = text.lstrip("*_[( ")[:1]
    if patterns is not _TITLES or len(text.split()) <= 4:
        found.extend(name for name, _, signs in _SEVERITIES if first and first in signs)
    return found[0] if found else None


def _bare(text: str) -> str:
    return text.replace("**", "").replace("__", "").strip(" *_")
