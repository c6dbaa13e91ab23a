"""From files to records: walk a folder, decode, and read each file.

A record is a reading aid. It has no packet, no evidence digests and no reviewer that Peergate asked, so nothing here
writes to a trail and no gate reads it. One file is one record; a file with several reviews that disagree is
undetermined. Times, reviewers and dates that a file states are not taken over.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from reviews.legacy.structured import read_json
from reviews.legacy.text import Confidence, LegacyVerdict, Reading, Status, read_text
from reviews.text import plain
from specs.errors import UserError

SUFFIXES = (".md", ".txt", ".json", ".jsonl", ".log")
MAX_BYTES = 1_048_576
"""A review of more than a mebibyte is not read; its record says so and holds its digest."""
MAX_FILES = 10_000
_SHOWN = 240


class Record(NamedTuple):
    """What one file decided.

    ``confidence`` is high (a labelled decision), medium (a sentence that begins with the verdict), low (words within
    prose) or none (no verdict).
    """

    source: str
    status: Status
    verdict: LegacyVerdict | None
    confidence: Confidence
    evidence: str
    digest: str | None

    def as_json(self) -> dict[str, Any]:
        """Return the record as a JSON value."""
        return self._asdict()


def read_folder(folder: Path) -> tuple[Record, ...]:
    """Return one record for every review file below a folder, in the order of their paths.

    Raises:
        UserError: there is no such folder, or it holds too many files.
    """
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "there is no such folder"
        raise UserError(what, where=one_line(str(folder)), hint="name the folder that holds the reviews")
    found = dict(_files(folder))
    if len(found) > MAX_FILES:
        raise UserError(f"holds {len(found)} review files, at most {MAX_FILES} are read", where=one_line(str(folder)))
    return tuple(
        read_file(folder / name, one_line(name)) if why is None else _failed(one_line(name), why)
        for name, why in sorted(found.items())
    )


def read_file(path: Path, source: str) -> Record:
    """Return the record of one file; whatever is wrong with it is told in the record."""
    try:
        state = path.lstat()
        if stat.S_ISLNK(state.st_mode):
            return _failed(source, "a symbolic link; it was not followed")
        if not stat.S_ISREG(state.st_mode):
            return _failed(source, "not a regular file")
        if state.st_size > MAX_BYTES:
            with path.open("rb") as handle:
                digest = f"sha256:{hashlib.file_digest(handle, 'sha256').hexdigest()}"
            return _failed(source, f"{state.st_size} bytes; at most {MAX_BYTES} are read", digest)
        raw = path.read_bytes()
    except OSError as error:
        return _failed(source, f"cannot be read: {error.strerror or type(error).__name__}")
    return read_bytes(raw, source, path.suffix.lower())


def read_bytes(raw: bytes, source: str, suffix: str = ".txt") -> Record:
    """Return the record of a review's bytes; never raises, whatever they are."""
    digest = f"sha256:{hashlib.sha256(raw).hexdigest()}"
    text = _decoded(raw)
    if text is None:
        return _failed(source, "not text", digest)
    try:
        reading = read_json(text, lines=suffix == ".jsonl") if suffix in (".json", ".jsonl") else read_text(text)
    except RecursionError:
        reading = Reading("undetermined", text="nested too deeply")
    where = f"{reading.line}: " if reading.line else ""
    evidence = one_line(where + reading.text)
    return Record(source, reading.status, reading.verdict, reading.confidence, evidence, digest)


def one_line(text: str) -> str:
    """Return untrusted text as one printable line."""
    return plain(" ".join(plain(text, 4 * _SHOWN).split()), _SHOWN)


def _failed(source: str, why: str, digest: str | None = None) -> Record:
    return Record(source, "transport_error", None, "none", one_line(why), digest)


def _files(folder: Path) -> Iterator[tuple[str, str | None]]:
    """Yield the name below the folder of every review file, and why it cannot be listed if it cannot."""
    broken: list[OSError] = []
    for place, folders, names in os.walk(folder, onerror=broken.append, followlinks=False):
        folders.sort()
        for name in names:
            if name.lower().endswith(SUFFIXES):
                yield (Path(place) / name).relative_to(folder).as_posix(), None
    for error in broken:
        name = Path(os.fsdecode(error.filename or folder)).relative_to(folder).as_posix()
        yield f"{name}/", f"cannot be listed: {error.strerror or type(error).__name__}"


def _decoded(raw: bytes) -> str | None:
    """Return the bytes as plain text, or None when they are not text."""
    encoding = "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    text = raw.decode(encoding, "replace")
    strange = text.count("\ufffd") + text.count("\x00")
    return None if strange > max(4, len(text) // 20) else plain(text, 2 * MAX_BYTES)
