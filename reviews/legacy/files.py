"""From one file to one record.

A record is a reading aid: it has no packet, no evidence digests and no reviewer that Peergate asked, so nothing here
writes to a trail and no gate reads it.
"""

from __future__ import annotations

import hashlib
import re
import stat
from pathlib import Path
from typing import NamedTuple

from reviews.legacy.answers import answers_in, questions_in
from reviews.legacy.citations import Citation, citations_in
from reviews.legacy.conditions import conditions_in
from reviews.legacy.encoding import decode
from reviews.legacy.findings import findings_in, grave
from reviews.legacy.layout import Page, page_of
from reviews.legacy.provenance import provenance_of
from reviews.legacy.records import Record, one_line
from reviews.legacy.sections import sections_of
from reviews.legacy.stamps import stated_dates
from reviews.legacy.structured import Fault, words_of_json
from reviews.legacy.text import Reading, leaning, read_page

MAX_BYTES = 1_048_576
"""A review of more than a mebibyte is not read; its record says so and holds its digest."""
MOST_LINES = 3000
MOST_CHARACTERS = 150_000
"""Longer texts are logs; reviews have hundreds of words."""
_MOST_POINTS = 500
_FENCED = re.compile(r"\s*```(?:json)?[ \t]*\n(?P<json>\s*[\[{].*)\n```\s*$", re.DOTALL)


class Read(NamedTuple):
    """A record, and the citations in the file that are still to be looked up."""

    record: Record
    cited: tuple[tuple[int, Citation], ...] = ()
    stated: tuple[tuple[int, str], ...] = ()
    raw: bytes | None = None


def take(path: Path, source: str) -> Read:
    """Return what one file holds; whatever is wrong with it is told in the record."""
    try:
        state = path.lstat()
        if stat.S_ISLNK(state.st_mode):
            return _unread(source, "a symbolic link; it was not followed")
        if not stat.S_ISREG(state.st_mode):
            return _unread(source, "not a regular file")
        if state.st_size > MAX_BYTES:
            with path.open("rb") as handle:
                digest = f"sha256:{hashlib.file_digest(handle, 'sha256').hexdigest()}"
            return _unread(source, f"{state.st_size} bytes; at most {MAX_BYTES} are read", digest, state.st_size)
        raw = path.read_bytes()
    except OSError as error:
        why = f"cannot be read: {error.strerror or type(error).__name__}"
        return Read(Record(source, "transport_error", None, "none", one_line(why), None, why=why))
    return take_bytes(raw, source, path.suffix.lower())


def read_bytes(raw: bytes, source: str, suffix: str = ".txt") -> Record:
    """Return the record of a review's bytes, whatever they are; only what shows between files is left out of it."""
    return take_bytes(raw, source, suffix).record


def take_bytes(raw: bytes, source: str, suffix: str) -> Read:
    """Return what the bytes of a file hold."""
    digest = f"sha256:{hashlib.sha256(raw).hexdigest()}"
    text = decode(raw, 2 * MAX_BYTES)
    if text is None:
        return Read(
            Record(source, "transport_error", None, "none", "not text", digest, why="not text", bytes=len(raw)), raw=raw
        )
    try:
        page, shape = _page(text, suffix)
    except RecursionError:
        page, shape = Fault("undetermined", None, "nested too deeply"), "json"
    if isinstance(page, Fault):
        where = f"{page.line}: " if page.line else ""
        told = one_line(where + page.text)
        record = Record(
            source, page.status, None, "none", told, digest, one_line(page.text), shape=shape, bytes=len(raw)
        )
        return Read(record, raw=raw)
    return _read_page(page, Record(source, "undetermined", None, "none", "", digest, shape=shape, bytes=len(raw)), raw)


def _page(text: str, suffix: str) -> tuple[Page | Fault, str]:
    """Return a text as a page, or what is wrong with the call it records, and its shape."""
    if why := _too_much(text):
        return Fault("undetermined", None, why), ""
    fenced = _FENCED.match(text)
    bare = fenced["json"] if fenced else text
    if suffix in (".json", ".jsonl") or bare.lstrip()[:1] in ("{", "["):
        words = words_of_json(bare, lines=suffix == ".jsonl")
        strict = suffix in (".json", ".jsonl")
        if isinstance(words, Fault) and (strict or words.status != "incomplete"):
            return words, "json"
        if words is not None and not isinstance(words, Fault):
            said, numbers = words
            if why := _too_much(said):
                return Fault("undetermined", None, why), "json"
            shift = text.count("\n", 0, fenced.start("json")) if fenced else 0
            return page_of(said, [number + shift for number in numbers]), "json"
    page = page_of(text)
    return page, page.shape


def _too_much(text: str) -> str:
    """Say why a text is too much to be a review; empty when it is not."""
    lines = text.count("\n") + 1
    if lines > MOST_LINES:
        return f"{lines} lines; at most {MOST_LINES} are read as a review"
    if len(text) > MOST_CHARACTERS:
        return f"{len(text)} characters; at most {MOST_CHARACTERS} are read as a review"
    return ""


def _read_page(page: Page, record: Record, raw: bytes) -> Read:
    sections = sections_of(page)
    findings = findings_in(page, sections)
    conditions = conditions_in(page, sections)
    reading = read_page(page, conditions, grave(findings))
    if reading.status == "transport_error":
        # The message of a failed call has no findings.
        sections, findings, conditions = [], [], []
    asked = questions_in(page, sections)
    cited: list[tuple[int, Citation]] = []
    for number, line in zip(page.numbers, page.lines, strict=True):
        cited += [(number, one) for one in citations_in(line)] if len(cited) < _MOST_POINTS else []
    record = record._replace(
        status=reading.status,
        verdict=reading.verdict,
        confidence=reading.confidence,
        evidence=_evidence(reading),
        raw=one_line(reading.text, 4000),
        why=reading.why,
        leaning=leaning(reading),
        shape=_shape(page, record.shape, reading),
        said=reading.said,
        findings=tuple(findings[:_MOST_POINTS]),
        conditions=tuple(conditions[:_MOST_POINTS]),
        answers=tuple(answers_in(page, sections, asked)[:_MOST_POINTS]),
        questions=tuple(sorted(asked.items())[:_MOST_POINTS]),
        provenance=provenance_of(page),
    )
    return Read(record, tuple(cited), stated_dates(page.lines, page.numbers), raw)


def _evidence(reading: Reading) -> str:
    where = f"{reading.line}: " if reading.line else ""
    return one_line(where + (reading.text or reading.why))


def _shape(page: Page, shape: str, reading: Reading) -> str:
    """Return in which of the known ways the review says what it says."""
    if reading.status == "transport_error":
        return "error"
    if shape in ("json", "html"):
        return shape
    whole = [one for one in reading.said if not one.scope and one.form != "word"]
    if (
        len({one.mark for one in whole if one.mark != "unclear"}) > 1
        or len({one.line for one in whole if one.form == "strong"}) > 1
    ):
        return "several decisions"
    if whole:
        line = page.lines[page.numbers.index(whole[0].line)]
        if re.match(r"(?i)^\W*summary\b", line):
            return "summary line"
        if whole[0].form in ("strong", "weak"):
            return (
                "table"
                if line.lstrip().startswith("|") or shape == "table"
                else "key and value"
                if re.search(r"[:=|]", line)
                else "headed section"
            )
        return "prose" if whole[0].form == "stated" else "statement"
    if any(one.scope for one in reading.said):
        return "options"
    zones = {zone for zone, line in zip(page.zones, page.lines, strict=True) if line.strip()}
    if "review" not in zones:
        return "request" if "request" in zones else "nothing of a reviewer"
    return "prose"


def _unread(source: str, why: str, digest: str | None = None, size: int | None = None) -> Read:
    return Read(Record(source, "undetermined", None, "none", one_line(why), digest, why=why, bytes=size))
