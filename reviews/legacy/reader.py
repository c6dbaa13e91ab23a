"""From one file to one record, which is a reading aid: it has no packet and no evidence, so it opens no gate."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Literal

from reviews.legacy.dates import Times, stated_dates
from reviews.legacy.encoding import decode
from reviews.legacy.labels import read_verdict
from reviews.legacy.own_words import Words, own_words
from reviews.legacy.records import Record, one_line
from reviews.legacy.structured import Fault, words_of_json
from reviews.legacy.transport_errors import cut_off, failed_call
from specs.digests import digest_bytes, digest_file
from specs.regular_files import MOST_BYTES, read_regular

MAX_BYTES = 1_048_576
"""A larger file is not read; its record says so and holds its digest."""
MOST_LINES = 3000
MOST_CHARACTERS = 150_000
"""Longer texts are logs; reviews have hundreds of words."""
_LONGEST_LINE = 4000
_MOST = 500
_PAGE = re.compile(r"(?i)\s*<(?:!doctype|html|head|body|p|div|h[1-6]|table|section|article|ul|ol|del)\b")


Unread = Literal["undetermined", "transport_error", "incomplete"]


def unread(source: str, why: str, status: Unread, digest: str | None = None, size: int | None = None) -> Record:
    """Return the record of a file without a verdict, with the reason."""
    return Record(source, status, None, "none", one_line(why), digest, why=one_line(why), bytes=size)


def read_file(path: Path, source: str) -> Record:
    """Return what one file holds; whatever is wrong with it is in the record."""
    try:
        state = path.lstat()
        if stat.S_ISLNK(state.st_mode):
            return unread(source, "a symbolic link; it was not followed", "undetermined")
        if not stat.S_ISREG(state.st_mode):
            return unread(source, "not a regular file", "undetermined")
        if state.st_size > MAX_BYTES:
            why = f"{state.st_size} bytes; at most {MAX_BYTES} are read"
            digest = digest_file(path) if state.st_size <= MOST_BYTES else None
            return unread(source, why, "undetermined", digest, state.st_size)
        raw = read_regular(path)
    except OSError as error:
        return unread(source, f"cannot be read: {error.strerror or type(error).__name__}", "transport_error")
    return read_bytes(raw, source, path.suffix.lower())


def read_bytes(raw: bytes, source: str, suffix: str = ".txt") -> Record:
    """Return the record of a review's bytes, whatever they are, with the dates that it states."""
    text, digest = decode(raw, 2 * MAX_BYTES), digest_bytes(raw)
    try:
        found = Fault("transport_error", "not text") if text is None else _words(text, suffix)
    except RecursionError:
        found = Fault("undetermined", "nested too deeply")
    if isinstance(found, Fault):
        return unread(source, found.text, found.status, digest, len(raw))
    return _record(found, source, digest, len(raw))._replace(time=Times(stated=stated_dates(found.raw)))


def _words(text: str, suffix: str) -> Words | Fault:
    """Return the reviewer's words, or what is wrong with the call that a file records."""
    if why := _too_much(text):
        return Fault("undetermined", why)
    if suffix in (".json", ".jsonl") or text.lstrip()[:1] in ("{", "["):
        found = words_of_json(text, lines=suffix == ".jsonl")
        if isinstance(found, Fault) and (suffix in (".json", ".jsonl") or found.status != "incomplete"):
            return found
        if isinstance(found, str):
            return Fault("undetermined", why) if (why := _too_much(found)) else own_words(found)
    if _PAGE.match(text):
        failed = failed_call([(1, line) for line in re.split(r"<[^<>]*>|\n", text) if line.strip()])
        return Fault("transport_error", failed[1]) if failed else Fault("undetermined", "HTML is not read")
    return own_words(text)


def _too_much(text: str) -> str:
    """Say why a text is too much to be a review; empty when it is not."""
    lines = text.split("\n")
    if len(lines) > MOST_LINES:
        return f"{len(lines)} lines; at most {MOST_LINES} are read as a review"
    if len(text) > MOST_CHARACTERS:
        return f"{len(text)} characters; at most {MOST_CHARACTERS} are read as a review"
    longest = max(map(len, lines))
    return f"a line of {longest} characters; at most {_LONGEST_LINE} are read" if longest > _LONGEST_LINE else ""


def _record(words: Words, source: str, digest: str, size: int) -> Record:
    numbered = [one for one in enumerate(words.raw, 1) if one[1].strip()]
    own = [(line.number, words.raw[line.number - 1]) for line in words.lines if line.text]
    if not numbered:
        return unread(source, "empty", "transport_error", digest, size)
    if failed := failed_call(own):
        return unread(source, f"{failed[0]}: {failed[1].strip()}", "transport_error", digest, size)
    if cut := cut_off(own, numbered[-1], open_fence=words.open_fence):
        return unread(source, f"{cut[0]}: {cut[1].strip()}", "incomplete", digest, size)
    reading = read_verdict(words.lines)
    shown = reading.why if reading.line is None else f"{reading.line}: {words.raw[reading.line - 1].strip()}"
    status = "verdict" if reading.verdict else "undetermined"
    said = reading.said[:_MOST]
    return Record(source, status, reading.verdict, reading.confidence, one_line(shown), digest, reading.why, size, said)
