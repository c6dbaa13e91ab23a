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

from reviews.legacy.dates import stated_dates
from reviews.legacy.encoding import decode
from reviews.legacy.labels import Reading, read_verdict
from reviews.legacy.own_words import Words, own_words
from reviews.legacy.points import (
    Citation,
    answers_in,
    citations_in,
    conditions_in,
    findings_in,
    made_with,
    points_of,
    questions_in,
)
from reviews.legacy.records import Record, one_line
from reviews.legacy.structured import Fault, words_of_json
from reviews.legacy.transport_errors import cut_off, failed_call

MAX_BYTES = 1_048_576
"""A review of more than a mebibyte is not read; its record says so and holds its digest."""
MOST_LINES = 3000
MOST_CHARACTERS = 150_000
"""Longer texts are logs; reviews have hundreds of words."""
_LONGEST_LINE = 4000
_MOST = 500
_FENCED = re.compile(r"\s*```(?:json)?[ \t]*\n(?P<json>\s*[\[{].*)\n```\s*$", re.DOTALL)
_PAGE = re.compile(r"(?i)\s*<(?:!doctype|html|head|body|p|div|h[1-6]|table|section|article|ul|ol|del)\b")


class Read(NamedTuple):
    """A record, and the citations and dates in the file that are still to be looked up."""

    record: Record
    cited: tuple[tuple[int, Citation], ...] = ()
    stated: tuple[tuple[int, str], ...] = ()
    raw: bytes | None = None


def read_file(path: Path, source: str) -> Read:
    """Return what one file holds; whatever is wrong with it is in the record."""

    def unread(why: str, digest: str | None = None, size: int | None = None) -> Read:
        return Read(Record(source, "undetermined", None, "none", one_line(why), digest, why=why, bytes=size))

    try:
        state = path.lstat()
        if stat.S_ISLNK(state.st_mode):
            return unread("a symbolic link; it was not followed")
        if not stat.S_ISREG(state.st_mode):
            return unread("not a regular file")
        if state.st_size > MAX_BYTES:
            with path.open("rb") as handle:
                digest = f"sha256:{hashlib.file_digest(handle, 'sha256').hexdigest()}"
            return unread(f"{state.st_size} bytes; at most {MAX_BYTES} are read", digest, state.st_size)
        raw = path.read_bytes()
    except OSError as error:
        why = f"cannot be read: {error.strerror or type(error).__name__}"
        return Read(Record(source, "transport_error", None, "none", one_line(why), None, why=why))
    return read_raw(raw, source, path.suffix.lower())


def read_bytes(raw: bytes, source: str, suffix: str = ".txt") -> Record:
    """Return the record of a review's bytes, whatever they are; only what shows between files is left out of it."""
    return read_raw(raw, source, suffix).record


def read_raw(raw: bytes, source: str, suffix: str) -> Read:
    """Return what the bytes of a file hold."""
    digest = f"sha256:{hashlib.sha256(raw).hexdigest()}"
    text = decode(raw, 2 * MAX_BYTES)
    try:
        found = Fault("transport_error", None, "not text") if text is None else _words(text, suffix)
    except RecursionError:
        found = Fault("undetermined", None, "nested too deeply")
    if isinstance(found, Fault):
        told = one_line((f"{found.line}: " if found.line else "") + found.text)
        record = Record(
            source, found.status, None, "none", told, digest, one_line(found.text), shape="error", bytes=len(raw)
        )
        return Read(record, raw=raw)
    words, shape = found
    return _record(words, Record(source, "undetermined", None, "none", "", digest, shape=shape, bytes=len(raw)), raw)


def _words(text: str, suffix: str) -> tuple[Words, str] | Fault:
    """Return the reviewer's words and their shape, or what is wrong with the call that a file records."""
    if why := _too_much(text):
        return Fault("undetermined", None, why)
    fenced = _FENCED.match(text)
    bare = fenced["json"] if fenced else text
    if suffix in (".json", ".jsonl") or bare.lstrip()[:1] in ("{", "["):
        found = words_of_json(bare, lines=suffix == ".jsonl")
        if isinstance(found, Fault) and (suffix in (".json", ".jsonl") or found.status != "incomplete"):
            return found
        if found is not None and not isinstance(found, Fault):
            why = _too_much(found[0])
            return Fault("undetermined", None, why) if why else (own_words(*found), "json")
    if _PAGE.match(text):
        shown = [(1, line) for line in re.split(r"<[^<>]*>|\n", text) if line.strip()]
        failed = failed_call(shown)
        return Fault("transport_error", None, failed[1]) if failed else Fault("undetermined", None, "HTML is not read")
    return own_words(text), ""


def _too_much(text: str) -> str:
    """Say why a text is too much to be a review; empty when it is not."""
    lines = text.count("\n") + 1
    if lines > MOST_LINES:
        return f"{lines} lines; at most {MOST_LINES} are read as a review"
    if len(text) > MOST_CHARACTERS:
        return f"{len(text)} characters; at most {MOST_CHARACTERS} are read as a review"
    longest = max(map(len, text.split("\n")))
    return f"a line of {longest} characters; at most {_LONGEST_LINE} are read" if longest > _LONGEST_LINE else ""


def _record(words: Words, record: Record, raw: bytes) -> Read:
    numbered = [(line.number, told) for line, told in zip(words.lines, words.raw, strict=True)]
    own = [(line.number, told) for line, told in zip(words.lines, words.raw, strict=True) if line.text]
    told = [one for one in numbered if one[1].strip()]
    failed = failed_call(own) if told else (0, "empty")
    if failed:
        line, text = failed
        evidence = one_line(f"{line}: {text.strip()}" if line else text)
        return Read(record._replace(status="transport_error", evidence=evidence, shape="error"), raw=raw)
    # An empty line keeps the points of two paragraphs apart.
    points = points_of([one if line.text else (one[0], "") for one, line in zip(numbered, words.lines, strict=True)])
    findings, conditions = findings_in(points), conditions_in(points)
    reading = read_verdict(words.lines)
    verdict, why, at = reading.verdict, reading.why, reading.line
    status = "verdict" if verdict else "undetermined"
    grave = next((one.line for one in findings if one.severity == "critical" and not one.settled), None)
    cut = cut_off(own, told[-1], open_fence=words.open_fence)
    if cut:
        status, verdict, why, at = "incomplete", None, "", cut[0]
    elif verdict in ("approve", "approve_with_conditions") and grave:
        status, verdict, why, at = "undetermined", None, "an approval beside a critical finding", grave
    elif verdict == "approve" and any(one.binding for one in conditions):
        verdict = "approve_with_conditions"
    text = next((line.strip() for number, line in numbered if number == at and line.strip()), "")
    marks = {one.mark for one in reading.said if not one.scope}
    refused = marks & {"reject", "revise"} and not marks & {"approve", "approve_with_conditions"}
    asked = questions_in(points_of(numbered))
    cited = [(number, one) for number, line in numbered for one in citations_in(line)]
    record = record._replace(
        status=status,
        verdict=verdict,
        confidence=reading.confidence if verdict else "none",
        evidence=one_line(f"{at}: {text}" if text else why),
        raw=one_line(text, 4000),
        why=why,
        leaning="not approved" if not verdict and refused else None,
        shape=record.shape or _shape(reading),
        said=reading.said[:_MOST],
        findings=tuple(findings),
        conditions=tuple(conditions),
        answers=tuple(answers_in(points, asked)),
        questions=tuple(sorted(asked.items())[:_MOST]),
        made=made_with(words.raw),
        request=f"in the file, lines {words.asked[0]} to {words.asked[1]}" if words.asked else None,
    )
    return Read(record, tuple(cited[:_MOST]), stated_dates(numbered), raw)


def _shape(reading: Reading) -> str:
    """Return in which way the review says what it says."""
    whole = [one for one in reading.said if not one.scope]
    if len({one.mark for one in whole}) > 1:
        return "several decisions"
    return whole[0].form if whole else "options" if reading.said else "prose"
