"""From one file to one record.

A record is a reading aid: it has no packet, no evidence digests and no reviewer that Peergate asked, so nothing here
writes to a trail and no gate reads it.
"""

from __future__ import annotations

import hashlib
import re
import stat
from pathlib import Path
from typing import Literal, NamedTuple

from reviews.legacy.dates import stated_dates
from reviews.legacy.encoding import decode
from reviews.legacy.labels import read_verdict
from reviews.legacy.own_words import Words, own_words
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
_PAGE = re.compile(r"(?i)\s*<(?:!doctype|html|head|body|p|div|h[1-6]|table|section|article|ul|ol|del)\b")


class Read(NamedTuple):
    """A record, and the dates in the file."""

    record: Record
    stated: tuple[tuple[int, str], ...] = ()


def unread(
    source: str, why: str, status: Literal["undetermined", "transport_error", "incomplete"], digest: str | None = None
) -> Record:
    """Return the record of a file without a verdict, with the reason."""
    return Record(source, status, None, "none", one_line(why), digest, why=one_line(why))


def read_file(path: Path, source: str) -> Read:
    """Return what one file holds; whatever is wrong with it is in the record."""
    try:
        state = path.lstat()
        if stat.S_ISLNK(state.st_mode):
            return Read(unread(source, "a symbolic link; it was not followed", "undetermined"))
        if not stat.S_ISREG(state.st_mode):
            return Read(unread(source, "not a regular file", "undetermined"))
        if state.st_size > MAX_BYTES:
            with path.open("rb") as handle:
                digest = f"sha256:{hashlib.file_digest(handle, 'sha256').hexdigest()}"
            why = f"{state.st_size} bytes; at most {MAX_BYTES} are read"
            return Read(unread(source, why, "undetermined", digest)._replace(bytes=state.st_size))
        raw = path.read_bytes()
    except OSError as error:
        return Read(unread(source, f"cannot be read: {error.strerror or type(error).__name__}", "transport_error"))
    return _read(raw, source, path.suffix.lower())


def read_bytes(raw: bytes, source: str, suffix: str = ".txt") -> Record:
    """Return the record of a review's bytes, whatever they are; only what shows between files is left out of it."""
    return _read(raw, source, suffix).record


def _read(raw: bytes, source: str, suffix: str) -> Read:
    """Return what the bytes of a file hold."""
    text = decode(raw, 2 * MAX_BYTES)
    try:
        found = Fault("transport_error", "not text") if text is None else _words(text, suffix)
    except RecursionError:
        found = Fault("undetermined", "nested too deeply")
    digest = f"sha256:{hashlib.sha256(raw).hexdigest()}"
    if isinstance(found, Fault):
        return Read(unread(source, found.text, found.status, digest)._replace(bytes=len(raw)))
    numbered = list(enumerate(found.raw, 1))
    return Read(_record(found, source, digest)._replace(bytes=len(raw)), stated_dates(numbered))


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


def _record(words: Words, source: str, digest: str) -> Record:
    numbered = [one for one in enumerate(words.raw, 1) if one[1].strip()]
    own = [(line.number, words.raw[line.number - 1]) for line in words.lines if line.text]
    if not numbered:
        return unread(source, "empty", "transport_error", digest)
    if failed := failed_call(own):
        return unread(source, f"{failed[0]}: {failed[1].strip()}", "transport_error", digest)
    if cut := cut_off(own, numbered[-1], open_fence=words.open_fence):
        return unread(source, f"{cut[0]}: {cut[1].strip()}", "incomplete", digest)
    reading = read_verdict(words.lines)
    told = reading.why if reading.line is None else f"{reading.line}: {words.raw[reading.line - 1].strip()}"
    return Record(
        source,
        "verdict" if reading.verdict else "undetermined",
        reading.verdict,
        reading.confidence,
        one_line(told),
        digest,
        why=reading.why,
        said=reading.said[:_MOST],
    )
