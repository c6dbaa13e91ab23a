"""Read raw rows: typed, each line once, nothing skipped. A row file that cannot be read whole is missing evidence."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from specs.system.digests import Contract
from specs.system.errors import EvidenceMissing
from specs.system.regular_files import open_regular
from specs.system.strict_json import read_json
from specs.system.text import plain

Made = TypeVar("Made")
_made: ContextVar[dict[Hashable, tuple[object, Any]] | None] = ContextVar("made", default=None)


@contextmanager
def gate_cache() -> Generator[None]:
    """Keep what :func:`once` makes until the end of the outermost block."""
    made = _made.get()
    before = _made.set({} if made is None else made)
    try:
        yield
    finally:
        _made.reset(before)


def once(key: Hashable, of: object, make: Callable[[], Made]) -> Made:
    """Return what was made under this key of this very object earlier in the gate; outside of one, make it anew."""
    made = _made.get()
    if made is None:
        return make()
    if key not in made or made[key][0] is not of:
        made[key] = of, make()
    return made[key][1]


Row = TypeVar("Row", bound=Contract)
ROW_CHARACTERS = 400
"""The limit for each text of a row in a packet."""
MOST_LINE_BYTES = 1 << 24
MOST_ROWS = 5_000_000
_MOST_CACHED_BYTES = 1 << 23
"""Bytes of a file whose rows are kept for the next check of the gate: larger ones would fill the memory together."""


def _every(_: Any) -> bool:
    return True


def read_rows(
    path: Path | None,
    model: type[Row],
    what: str,
    *,
    may_be_empty: bool = False,
    which: Callable[[Any], bool] = _every,
) -> tuple[Row, ...]:
    """Return all rows of a JSONL file, or those ``which`` says so of, where a file has rows of two forms.

    Raises:
        EvidenceMissing: the file is missing, a line is not such a row, or the file is empty and must not be.
    """
    if which is _every and path is not None and path.is_file() and path.stat().st_size <= _MOST_CACHED_BYTES:
        rows = once((path, model), None, lambda: _parse_rows(path, model, what, which))
    else:
        rows = _parse_rows(path, model, what, which)
    if not rows and not may_be_empty:
        raise EvidenceMissing(f"{what} are empty")
    return rows


def _parse_rows(path: Path | None, model: type[Row], what: str, which: Callable[[Any], bool]) -> tuple[Row, ...]:
    rows: list[Row] = []
    seen_counts: dict[tuple[Any, ...], int] = {}
    for number, line, value in _lines(path, what):
        if not which(value):
            continue
        try:
            rows.append(model.model_validate_json(line, strict=True))
        except ValidationError as error:
            first = error.errors()[0]
            at = ".".join(str(part) for part in first["loc"])
            message = plain(f"{at}: {first['msg']}" if at else first["msg"], 200)
            raise EvidenceMissing(f"line {number} is not a {model.__name__}: {message}", where=what) from error
        if names := model.unique_by:
            key = tuple(getattr(rows[-1], name) for name in names)
            if (first := seen_counts.setdefault(key, number)) != number:
                message = ", ".join(f"{name} {plain(str(value), 60)}" for name, value in zip(names, key, strict=True))
                raise EvidenceMissing(f"line {number} is of {message}, and so is line {first}", where=what)
    return tuple(rows)


def read_objects(path: Path | None, what: str) -> tuple[dict[str, Any], ...]:
    """Return all rows of a JSONL file whose form no one has registered; there may be none.

    Raises:
        EvidenceMissing: the file is missing, or a line is not one JSON object.
    """
    rows: list[dict[str, Any]] = []
    for number, _, row in _lines(path, what):
        if not isinstance(row, dict):
            raise EvidenceMissing(f"line {number} is not a JSON object", where=what)
        rows.append(row)
    return tuple(rows)


def _lines(path: Path | None, what: str) -> Iterator[tuple[int, bytes, Any]]:
    """Yield each line with its number and its value; a line is read up to its limit only.

    Raises:
        EvidenceMissing: the file is missing, it cannot be read, a line is not JSON, or it is beyond a limit.
    """
    if path is None or not path.is_file():
        raise EvidenceMissing(f"{what} are missing", hint="the job left none, or they do not match their digest")
    try:
        with open_regular(path) as handle:
            for number in range(1, MOST_ROWS + 2):
                line = handle.readline(MOST_LINE_BYTES + 1)
                if not line:
                    return
                if len(line) > MOST_LINE_BYTES:
                    raise EvidenceMissing(f"line {number} has more than {MOST_LINE_BYTES} bytes", where=what)
                try:
                    value = read_json(line)
                except ValueError as error:
                    raise EvidenceMissing(f"line {number} is not JSON: {error}", where=what) from error
                yield number, line, value
    except OSError as error:
        raise EvidenceMissing(f"they cannot be read: {error.strerror}", where=what) from error
    raise EvidenceMissing(f"more than {MOST_ROWS} lines", where=what)
