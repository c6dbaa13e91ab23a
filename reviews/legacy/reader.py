"""From one file to one record, which is a reading aid: it has no packet and no evidence, so it opens no gate."""

from __future__ import annotations

import codecs
import re
import stat
from pathlib import Path
from typing import Literal

from reviews.legacy.own_words import own_words
from reviews.legacy.records import Record, one_line
from reviews.legacy.structured import LegacyCallFault, words_of_json
from reviews.legacy.verdicts import read_verdict
from specs.system.digests import digest_bytes, digest_file
from specs.system.regular_files import MOST_BYTES, read_regular
from specs.system.text import plain

MAX_BYTES = 1_048_576
"""A larger file is not read; its record says so and holds its digest."""
MOST_LINES = 3000
MOST_CHARACTERS = 150_000
"""Longer texts are logs; reviews have hundreds of words."""
_LONGEST_LINE = 4000
_CONTROL = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\ufffd]")
_TAGGED = re.compile(r"(?is)<(verdict|decision|recommendation|status)>([^<]{1,200})</\1>")

Unread = Literal["undetermined", "transport_error", "incomplete"]


def unread(source: str, why: str, status: Unread, digest: str | None = None, size: int | None = None) -> Record:
    """Return the record of a file without a verdict, with the reason."""
    return Record(source, status, None, one_line(why), digest, why=one_line(why), bytes=size)


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
    """Return the record of a review's bytes, whatever they are."""
    text, digest = _decode_text(raw), digest_bytes(raw)
    try:
        words = LegacyCallFault("transport_error", "not text") if text is None else _words(text, suffix)
    except RecursionError:
        words = LegacyCallFault("undetermined", "nested too deeply")
    if isinstance(words, LegacyCallFault):
        return unread(source, words.text, words.status, digest, len(raw))
    if not words.strip():
        return unread(source, "empty", "transport_error", digest, len(raw))
    reading, lines = read_verdict(own_words(words)), words.split("\n")
    displayed_text = reading.why if reading.line is None else f"{reading.line}: {lines[reading.line - 1].strip()}"
    status = "verdict" if reading.verdict else "undetermined"
    return Record(source, status, reading.verdict, one_line(displayed_text), digest, reading.why, len(raw))


def _decode_text(raw: bytes) -> str | None:
    """Return the bytes as plain text, or None when they are not text."""
    wide = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    for name in ("utf-16",) if wide else ("utf-8-sig", "cp1252"):
        try:
            text = raw.decode(name)
        except UnicodeDecodeError:
            continue
        return None if len(_CONTROL.findall(text)) > max(4, len(text) // 8) else plain(text, 2 * MAX_BYTES)
    return None


def _words(text: str, suffix: str) -> str | LegacyCallFault:
    """Return the reviewer's words, or what is wrong with the call that a file records."""
    if why := _too_much(text):
        return LegacyCallFault("undetermined", why)
    if suffix in (".json", ".jsonl") or text.lstrip()[:1] in ("{", "["):
        words = words_of_json(text)
        if isinstance(words, LegacyCallFault) and (suffix in (".json", ".jsonl") or words.status != "incomplete"):
            return words
        if isinstance(words, str):
            return LegacyCallFault("undetermined", why) if (why := _too_much(words)) else words
    # An answer may hold its verdict in a tag, and the rest in others.
    tagged = _TAGGED.sub(lambda tag: f"{tag[1]}: {tag[2].strip()}", text)
    return re.sub(r"</?[a-z_]{1,20}>", "", tagged) if tagged != text else text


def _too_much(text: str) -> str:
    """Return why a text is too much to be a review; empty when it is not."""
    lines = text.split("\n")
    if len(lines) > MOST_LINES:
        return f"{len(lines)} lines; at most {MOST_LINES} are read as a review"
    if len(text) > MOST_CHARACTERS:
        return f"{len(text)} characters; at most {MOST_CHARACTERS} are read as a review"
    longest = max(map(len, lines))
    return f"a line of {longest} characters; at most {_LONGEST_LINE} are read" if longest > _LONGEST_LINE else ""
