"""Values of the content store as lines: JSON with the place that a finding names marked, or rows by number."""

from __future__ import annotations

import json
import re
import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from reviews.trail.chain.store import Store
from specs.system.errors import EvidenceMissing, UserError
from specs.system.masking import current
from specs.system.regular_files import open_regular, read_regular
from specs.system.text import plain

MOST_LINES = 20_000
"""The limit for a value that is shown as JSON."""
LINE_CHARACTERS = 4_000
ROWS_AT_ONCE = 100
ROW_CHARACTERS = 60_000
MOST_BYTES = 4_000_000
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class ValueLine(NamedTuple):
    """One line of a value, and whether it belongs to the marked place."""

    text: str
    marked: bool


def is_digest(value: object) -> bool:
    """Return whether a value is a digest as trails name it."""
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def require_digest(digest: str) -> str:
    """Return a digest, or raise UserError: it becomes a path."""
    if not is_digest(digest):
        raise UserError("invalid digest", hint="expected sha256: and 64 hexadecimal digits")
    return digest


def value_lines(store: Store, digest: str, pointer: str, lines: tuple[int, int] | None) -> list[ValueLine]:
    """Return a stored value as lines, those at a JSON pointer, or by number of a text, marked.

    Raises:
        UserError: the digest is malformed.
        EvidenceMissing: it is not in the store, or too large to be shown.
        AuditDamage: the stored bytes are others.
    """
    data = store.get(require_digest(digest))
    if len(data) > MOST_BYTES:
        raise EvidenceMissing(f"{len(data)} bytes are too large to show", hint=f"`peergate audit show RUN {digest}`")
    text = data.decode("utf-8", "replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        matching_lines = _text_lines(text, lines)
    else:
        # The lines of a packet that a finding names are those of its log.
        matching_lines = (
            _log_lines(value, lines) if lines and isinstance(value, dict) else _json_lines(value, "", 0, pointer)
        )
    displayed_lines = [line for _, line in zip(range(MOST_LINES), matching_lines, strict=False)]
    return displayed_lines


def _log_lines(value: dict[str, Any], lines: tuple[int, int]) -> Iterator[ValueLine]:
    yield from _text_lines(str(value.get("log_tail", "")), lines)


def _text_lines(text: str, lines: tuple[int, int] | None) -> Iterator[ValueLine]:
    first, last = lines or (0, 0)
    for number, line in enumerate(plain(current().text(text), MOST_BYTES).split("\n"), 1):
        yield ValueLine(plain(line, LINE_CHARACTERS), first <= number <= last)


def _json_lines(value: Any, at: str, depth: int, pointer: str, name: str = "", end: str = "") -> Iterator[ValueLine]:
    marked = bool(pointer) and (at == pointer or at.startswith(f"{pointer}/"))
    indent, before = "  " * depth, f"{json.dumps(name, ensure_ascii=False)}: " if name else ""
    if isinstance(value, (dict, list)) and value:
        opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
        yield ValueLine(_mask_line(f"{indent}{before}{opening}"), marked)
        items = (
            list(value.items())
            if isinstance(value, dict)
            else [(str(place), element) for place, element in enumerate(value)]
        )
        for place, (key, item) in enumerate(items, 1):
            below = f"{at}/{key.replace('~', '~0').replace('/', '~1')}"
            comma = "," if place < len(items) else ""
            yield from _json_lines(item, below, depth + 1, pointer, key if isinstance(value, dict) else "", comma)
        yield ValueLine(f"{indent}{closing}{end}", marked)
        return
    if isinstance(value, str) and "\n" in value:
        # A text of several lines is shown as such: a log, a script, an answer.
        yield ValueLine(_mask_line(f'{indent}{before}"'), marked)
        for line in plain(current().text(value), MOST_BYTES).split("\n"):
            yield ValueLine(f"{indent}  {plain(line, LINE_CHARACTERS)}", marked)
        yield ValueLine(f'{indent}"{end}', marked)
        return
    yield ValueLine(_mask_line(f"{indent}{before}{json.dumps(value, ensure_ascii=False)}{end}"), marked)


def _mask_line(text: str) -> str:
    return plain(current().text(text), LINE_CHARACTERS)


class RowFiles:
    """Rows of stored files by their number, with the beginnings of lines of the last files kept."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._starts: OrderedDict[Path, array[int]] = OrderedDict()

    def page(self, store: Store, digest: str, line: int) -> dict[str, Any]:
        """Return a hundred rows around a line, with their numbers from 1.

        Raises:
            UserError: the digest is malformed.
            EvidenceMissing: it is not in the store.
        """
        path = store.path(require_digest(digest))
        starts = self._starts_of(path)
        count = len(starts) - 1
        first = max(0, (min(max(line, 1), count) - 1) // ROWS_AT_ONCE * ROWS_AT_ONCE)
        last = min(first + ROWS_AT_ONCE, count)
        with open_regular(path) as handle:
            handle.seek(starts[first])
            data = handle.read(starts[last] - starts[first])
        rows = [part.decode("utf-8", "replace") for part in data.removesuffix(b"\n").split(b"\n")] if count else []
        return {
            "rows": [(first + place, _row(text)) for place, text in enumerate(rows, 1)],
            "first": first + 1,
            "last": last,
            "count": count,
        }

    def _starts_of(self, path: Path) -> array[int]:
        with self._lock:
            if path in self._starts:
                return self._starts[path]
        try:
            data = read_regular(path)
        except OSError as error:
            raise EvidenceMissing("these rows are not in the content store", where=str(path)) from error
        starts, place = array("q", [0]), data.find(b"\n")
        while place >= 0:
            starts.append(place + 1)
            place = data.find(b"\n", place + 1)
        if starts[-1] != len(data):
            starts.append(len(data))
        with self._lock:
            self._starts[path] = starts
            while len(self._starts) > 4:
                self._starts.popitem(last=False)
        return starts


def _row(text: str) -> dict[str, str] | str:
    """Return the fields of a row as texts, or the line itself if it is not an object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        return plain(current().text(text), ROW_CHARACTERS)
    masked: dict[str, Any] = current().value(value)
    return {
        plain(str(name), 200): plain(
            value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), ROW_CHARACTERS
        )
        for name, value in masked.items()
    }
