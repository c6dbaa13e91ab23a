"""Reads a table of rows: JSON lines, CSV, Parquet or a folder that ``datasets`` saved. A file's fault is one error."""

from __future__ import annotations

import csv
import errno
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from specs.digests import digest_file, digest_tree, list_tree
from specs.errors import Problem
from specs.extras import install_hint
from specs.regular_files import open_regular, read_regular
from specs.session.problems import printable

MAX_DATA_BYTES = 1 << 28
PARQUET_ROWS = 16
"""That are decoded at once."""
_MARKS = {
    b"\xff\xfe": ("is UTF-16 text", "save it as UTF-8"),
    b"\xfe\xff": ("is UTF-16 text", "save it as UTF-8"),
    b"\xef\xbb\xbf": ("begins with a byte order mark", "save it as UTF-8 without one"),
    b"PK": ("is a ZIP archive (a spreadsheet?)", "save it as CSV"),
    b"\x1f\x8b": ("is compressed", "unpack it"),
    b"PAR1": ("is Parquet", "name it .parquet"),
}
"""How files begin that are no plain text, and what helps."""
_DELIMITERS = (",", ";", "\t")


class Row(NamedTuple):
    """One row: the line or number where it is, counted from 1, and its values by column."""

    line: int
    values: dict[str, Any]


class Table(NamedTuple):
    """The rows of a file, or what is wrong with it."""

    rows: list[Row]
    problems: list[Problem]


class Unreadable(Exception):
    """The file as a whole cannot be read as what its name says."""

    def __init__(self, message: str, hint: str = "", line: int = 1, column: int = 1) -> None:
        super().__init__(message)
        self.message, self.hint, self.place = message, hint, (line, column)


def digest_of(path: Path) -> str:
    """Return the digest of a data file's bytes, or of a folder's files; raises OSError or ValueError."""
    return digest_tree(path) if path.is_dir() else digest_file(path)


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files of a folder; raises OSError or ValueError."""
    return sum(one.stat().st_size for one in list_tree(path)) if path.is_dir() else path.stat().st_size


def read_table(path: Path) -> Table:
    """Read a table by what its name says: ``.csv``, ``.tsv``, ``.parquet``, a folder, or else JSON lines.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        if path.is_dir():
            return Table(_numbered(_saved(path)), [])
        if path.suffix == ".parquet":
            return Table(_numbered(_parquet(path)), [])
        raw = _read(path)
        if path.suffix in (".csv", ".tsv"):
            return Table(list(_csv(_text(raw.removeprefix(b"\xef\xbb\xbf")))), [])
        return _json_lines(path, raw)
    except Unreadable as error:
        return Table([], [Problem(str(path), *error.place, "", printable(error.message), printable(error.hint))])


def _read(path: Path) -> bytes:
    try:
        return read_regular(path)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOVERFLOW):
            raise
        raise Unreadable(str(error.strerror)) from error


def not_json_lines(raw: bytes) -> Unreadable | None:
    """Return why a file as a whole is not JSON lines, if so: one fault, not one for each line."""
    try:
        text = _text(raw)
    except Unreadable as error:
        return error
    # Not ``splitlines``: a line of JSON may hold other characters that end lines elsewhere.
    lines = [line for line in text.split("\n") if line.strip()]
    if not lines:
        return Unreadable("the file holds no rows", "one JSON object a line")
    if lines[0].strip().startswith("[") and _is_json(text):
        return Unreadable("the file is one JSON list", "write one JSON object a line")
    if any(_is_json(line) for line in lines):
        return None
    if len(lines) > 1 and (delimiter := _delimiter(lines[0])) and lines[1].count(delimiter) >= 1:
        return Unreadable("the file is a table with columns, no JSON", "name it .csv")
    return Unreadable(f"none of its {len(lines)} lines is JSON", "one JSON object a line")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _text(raw: bytes) -> str:
    for mark, (message, hint) in _MARKS.items():
        if raw.startswith(mark):
            raise Unreadable(f"the file {message}", hint)
    if not raw:
        raise Unreadable("the file holds no rows", "one row a line")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise Unreadable("the file is not UTF-8 text", "save it as UTF-8", line) from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise Unreadable("the file holds NUL characters", "save it as plain UTF-8 text", line)
    return text


def _json_lines(path: Path, raw: bytes) -> Table:
    if (whole := not_json_lines(raw)) is not None:
        raise whole
    rows: list[Row] = []
    problems: list[Problem] = []
    for number, line in enumerate(raw.removesuffix(b"\n").split(b"\n"), 1):
        try:
            values = json.loads(line)
        except json.JSONDecodeError as error:
            message = f"not valid JSON: {error.msg}" if line.strip() else "the line is empty"
            problems.append(Problem(str(path), number, error.colno, "", printable(message)))
            continue
        except (ValueError, RecursionError) as error:
            problems.append(Problem(str(path), number, 1, "", f"not valid JSON: {type(error).__name__}"))
            continue
        if isinstance(values, dict):
            rows.append(Row(number, values))
        else:
            problems.append(Problem(str(path), number, 1, "", f"a {type(values).__name__}, not a JSON object"))
    return Table(rows, problems)


def _delimiter(header: str) -> str:
    return max(_DELIMITERS, key=header.count) if any(one in header for one in _DELIMITERS) else ""


def _csv(text: str) -> Iterator[Row]:
    """Yield the rows below the header; a column is text, and an empty cell is missing."""
    header_line = text.partition("\n")[0]
    if header_line.startswith("{") and _is_json(header_line):
        raise Unreadable("the file holds JSON lines, no table", "name it .jsonl")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(header_line) or ",", strict=True)
    limit = csv.field_size_limit(MAX_DATA_BYTES)
    try:
        columns = [one.strip() for one in next(reader)]
        if wrong := sorted({one or "''" for one in columns if not one or columns.count(one) > 1}):
            raise Unreadable(f"the header names {', '.join(wrong)} twice or not at all", "one name for each column")
        line = reader.line_num + 1
        found = False
        for cells in reader:
            if cells:
                if len(cells) != len(columns):
                    message = f"{len(cells)} cells, the header has {len(columns)}"
                    raise Unreadable(message, "put quotes around cells that hold the separator", line)
                found = True
                yield Row(line, {name: cell for name, cell in zip(columns, cells, strict=True) if cell})
            line = reader.line_num + 1
    except csv.Error as error:
        raise Unreadable(f"not valid CSV: {error}", "", reader.line_num or 1) from error
    finally:
        csv.field_size_limit(limit)
    if not found:
        raise Unreadable("the file holds a header and no rows", "one row a line")


def _parquet(path: Path) -> list[dict[str, Any]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise Unreadable("reading Parquet needs pyarrow", install_hint("train")) from error
    rows: list[dict[str, Any]] = []
    size = 0
    try:
        with open_regular(path) as handle, pyarrow.parquet.ParquetFile(handle) as file:
            # In small parts: a few bytes of a dictionary may stand for any number of long values.
            for batch in file.iter_batches(batch_size=PARQUET_ROWS):
                size += batch.nbytes
                if size > MAX_DATA_BYTES:
                    raise Unreadable(f"holds more than {MAX_DATA_BYTES:,} bytes of values", "name a smaller table")
                rows += batch.to_pylist()
        return rows
    except (pyarrow.ArrowException, ValueError, OSError) as error:
        raise Unreadable(f"not valid Parquet: {type(error).__name__}") from error


def _saved(path: Path) -> list[dict[str, Any]]:
    """Return the rows of one split that ``Dataset.save_to_disk`` wrote."""
    if (path / "dataset_dict.json").is_file():
        splits = sorted(one.name for one in path.iterdir() if one.is_dir())
        raise Unreadable("the folder holds several splits", f"name one: {path.name}/{splits[0] if splits else 'train'}")
    if not (path / "state.json").is_file():
        raise Unreadable("the folder is no saved dataset", "Dataset.save_to_disk writes one; or name a file")
    try:
        from datasets import Dataset
    except ImportError as error:
        raise Unreadable("reading a saved dataset needs datasets", install_hint("train")) from error
    try:
        return list(Dataset.load_from_disk(str(path)).to_list())
    except Exception as error:
        # The library raises what its parts raise; a folder that cannot be read is one fault all the same.
        raise Unreadable(f"the saved dataset cannot be read: {type(error).__name__}") from error


def _numbered(rows: list[dict[str, Any]]) -> list[Row]:
    if not rows:
        raise Unreadable("the file holds no rows")
    return [Row(number, values) for number, values in enumerate(rows, 1)]
