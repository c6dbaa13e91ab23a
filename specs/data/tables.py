"""Reads a table of rows: JSON lines, CSV, Parquet or a folder that ``datasets`` saved. A file's fault is one error."""

from __future__ import annotations

import csv
import errno
import io
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from specs.data.cells import CellFault, cell_value, decimal_columns
from specs.system.digests import digest_file, digest_tree, list_tree
from specs.system.errors import Problem
from specs.system.extras import install_hint
from specs.system.memory_limit import memory_limit
from specs.system.regular_files import open_regular, read_regular
from specs.system.yaml.problems import printable

MAX_DATA_BYTES = 1 << 28
DECODED_ROWS = 16
"""That are decoded at once."""
_MARKS = {
    b"\xff\xfe": ("is UTF-16 text", "save it as UTF-8"),
    b"\xfe\xff": ("is UTF-16 text", "save it as UTF-8"),
    b"\xef\xbb\xbf": ("begins with a byte order mark", "save it as UTF-8 without one"),
    b"PK": ("is a ZIP archive (a spreadsheet?)", "save it as CSV"),
    b"\x1f\x8b": ("is compressed (gzip)", "unpack it: gunzip FILE"),
    b"\x28\xb5\x2f\xfd": ("is compressed (Zstandard)", "unpack it: unzstd FILE"),
    b"BZh": ("is compressed (bzip2)", "unpack it: bunzip2 FILE"),
    b"\xfd7zXZ": ("is compressed (xz)", "unpack it: unxz FILE"),
    b"PAR1": ("is Parquet", "name it .parquet"),
}
"""How files begin that are not plain text, and what helps."""
_DELIMITERS = (",", ";", "\t")
_SEPARATOR = re.compile(r"sep=(.)", re.I)
"""The line in which a spreadsheet names the separator."""
_PROBED = 20
"""Records by which a separator is chosen."""
UNNAMED = "(unnamed index)"
"""The first column that pandas writes without a name: the numbers of the rows."""


class TableRow(NamedTuple):
    """One row: the line or number where it is, counted from 1, and its values by column."""

    line: int
    values: dict[str, Any]


class DataTable(NamedTuple):
    """The rows of a file, or what is wrong with it."""

    rows: list[TableRow]
    problems: list[Problem]
    notes: tuple[str, ...] = ()
    """What of the file was not read as it stands, in words."""


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
    return (
        sum(current_path.stat().st_size for current_path in list_tree(path)) if path.is_dir() else path.stat().st_size
    )


def read_table(path: Path) -> DataTable:
    """Read a table by what its name says: ``.csv``, ``.tsv``, ``.parquet``, a folder, or else JSON lines.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        if path.is_dir():
            return _table(path, _number_rows(_read_saved_dataset(path)))
        if path.suffix == ".parquet":
            return _table(path, _number_rows(_parquet(path)))
        raw = _read(path)
        if path.suffix in (".csv", ".tsv"):
            rows = _csv(_text(raw.removeprefix(b"\xef\xbb\xbf")))
            whole = sorted(_read_decimals(rows))
            notes = (f"numbers such as 12.0 are read as 12 in {', '.join(map(printable, whole))}",) if whole else ()
            return _table(path, rows)._replace(notes=notes)
        return _json_lines(path, raw)
    except Unreadable as error:
        return DataTable([], [Problem(str(path), *error.place, "", printable(error.message), printable(error.hint))])


def _read(path: Path) -> bytes:
    try:
        return read_regular(path)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOVERFLOW):
            raise
        raise Unreadable(str(error.strerror)) from error


def _table(path: Path, rows: Iterable[TableRow], problems: list[Problem] | None = None) -> DataTable:
    """Return rows with the values of their cells, and a problem for each cell that has none."""
    problems = problems or []
    made: list[TableRow] = []
    for row in rows:
        values: dict[str, Any] = {}
        for name, cell in row.values.items():
            try:
                if (value := cell_value(cell)) is not None:
                    values[name] = value
            except CellFault as error:
                problems.append(Problem(str(path), row.line, 1, printable(name), error.message, error.hint))
        made.append(TableRow(row.line, values))
    return DataTable(made, of_the_file(problems, len(made)))


def of_the_file(problems: list[Problem], rows: int, addition: str = "", hint: str = "") -> list[Problem]:
    """Return the problems of rows; one, with an addition and another hint, where each row has the same."""
    if not (
        len(problems) == rows > 1 and len({(problem.keys, problem.message, problem.hint) for problem in problems}) == 1
    ):
        return problems
    first = problems[0]
    hints = "; ".join(filter(None, (first.hint, hint)))
    return [replace(first, message=f"{first.message}, in all {rows} rows{addition}", hint=hints)]


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
        return Unreadable("the file is one JSON list", "write one JSON object a line: jq -c '.[]' FILE > rows.jsonl")
    if any(_is_json(line) for line in lines):
        return None
    if len(lines) > 1 and (delimiter := _delimiter(lines[0])) and lines[1].count(delimiter) >= 1:
        return Unreadable("the file is a table with columns, no JSON", "name it .csv")
    if lines[0].strip() in ("{", "["):
        hint = "write one object a line: jq -c . FILE > rows.jsonl"
        return Unreadable("the JSON objects of the file take several lines each", hint)
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


def _json_lines(path: Path, raw: bytes) -> DataTable:
    if (whole := not_json_lines(raw)) is not None:
        raise whole
    rows: list[TableRow] = []
    problems: list[Problem] = []
    for number, line in enumerate(raw.rstrip().split(b"\n"), 1):
        try:
            values = json.loads(line, object_pairs_hook=_without_repeats)
        except json.JSONDecodeError as error:
            message = f"not valid JSON: {error.msg}" if line.strip() else "the line is empty"
            problems.append(Problem(str(path), number, error.colno, "", printable(message)))
            continue
        except _RepeatedKey as error:
            problems.append(Problem(str(path), number, 1, printable(str(error)), "occurs twice in one object", _ONCE))
            continue
        except (ValueError, RecursionError) as error:
            problems.append(Problem(str(path), number, 1, "", f"not valid JSON: {type(error).__name__}"))
            continue
        if isinstance(values, dict):
            rows.append(TableRow(number, values))
        else:
            problems.append(Problem(str(path), number, 1, "", f"a {type(values).__name__}, not a JSON object"))
    return _table(path, rows, of_the_file(problems, len(rows) + len(problems)))


_ONCE = "keep one of the two: readers disagree on which counts"


class _RepeatedKey(Exception):
    """An object names a key twice; the message is the key."""


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _RepeatedKey(next(key for key in keys if keys.count(key) > 1))
    return values


def _delimiter(header: str) -> str:
    return max(_DELIMITERS, key=header.count) if any(delimiter in header for delimiter in _DELIMITERS) else ""


def _separator(text: str) -> str:
    """Return the separator by which most of the first records have as many cells as the header, and more than one."""
    best = (0, 0, _delimiter(text.partition("\n")[0]) or ",")
    for delimiter in _DELIMITERS:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        sizes: list[int] = []
        with suppress(csv.Error):
            sizes += islice((len(cells) for cells in reader if cells), _PROBED)
        if sizes and sizes[0] > 1 and (sizes.count(sizes[0]), sizes[0]) > best[:2]:
            best = (sizes.count(sizes[0]), sizes[0], delimiter)
    return best[2]


def _csv(text: str) -> list[TableRow]:
    """Return the rows below the header; a cell is text, and an empty one is missing."""
    first, _, rest = text.partition("\n")
    if first.startswith("{") and _is_json(first):
        raise Unreadable("the file holds JSON lines, not a table", "name it .jsonl")
    limit = csv.field_size_limit(MAX_DATA_BYTES)
    named = _SEPARATOR.fullmatch(first.rstrip("\r"))
    text = rest if named else text
    delimiter, skipped = (named[1], 1) if named else (_separator(text), 0)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        columns = [name.strip() for name in next(reader, [])]
        if columns[:1] == [""]:
            columns[0] = UNNAMED
        if wrong := sorted({name or "''" for name in columns if not name or columns.count(name) > 1}):
            raise Unreadable(f"the header has {', '.join(wrong)} twice or not at all", "one name for each column")
        line = reader.line_num + 1
        rows: list[TableRow] = []
        for cells in reader:
            if cells:
                if len(cells) != len(columns):
                    message = f"{len(cells)} cells, the header has {len(columns)}"
                    raise Unreadable(message, "put quotes around cells that hold the separator", line + skipped)
                rows.append(
                    TableRow(line + skipped, {name: cell for name, cell in zip(columns, cells, strict=True) if cell})
                )
            line = reader.line_num + 1
    except csv.Error as error:
        raise Unreadable(f"not valid CSV: {error}", "", (reader.line_num or 1) + skipped) from error
    finally:
        csv.field_size_limit(limit)
    if not rows:
        raise Unreadable("the file holds a header and no rows", "one row a line")
    if UNNAMED in columns and [row.values.get(UNNAMED) for row in rows] != [str(place) for place in range(len(rows))]:
        raise Unreadable("the first column has no name", "name it in the header, or remove it")
    return rows


def _read_decimals(rows: list[TableRow]) -> set[str]:
    """Read the cells of columns of decimal numbers as such; return the columns with whole ones among them."""
    whole: set[str] = set()
    for name in decimal_columns([row.values for row in rows]):
        for row in rows:
            if (cell := row.values.get(name)) is not None:
                row.values[name] = float(cell)
                whole |= {name} if cell.endswith(".0") else set()
    return whole


def _parquet(path: Path) -> list[dict[str, Any]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise Unreadable("reading Parquet needs pyarrow", install_hint("train")) from error
    try:
        with open_regular(path) as handle, pyarrow.parquet.ParquetFile(handle) as file:
            # A page is unpacked as a whole, before any of its rows is seen.
            groups = (file.metadata.row_group(number) for number in range(file.num_row_groups))
            if sum(group.total_byte_size for group in groups) > MAX_DATA_BYTES:
                raise _TOO_LARGE
            return _rows_of(file.iter_batches(batch_size=DECODED_ROWS, use_threads=False))
    except (pyarrow.ArrowException, ValueError, OSError) as error:
        raise Unreadable(f"not valid Parquet: {type(error).__name__}") from error


def _rows_of(batches: Iterator[Any]) -> list[dict[str, Any]]:
    """Return the rows of Arrow's batches; raises Unreadable for more than MAX_DATA_BYTES of values.

    What a file says of its size may be wrong, and a few bytes may stand for any number of values, so the memory of each
    batch is bounded as well.
    """
    import pyarrow

    rows: list[dict[str, Any]] = []
    size = 0
    pool = pyarrow.default_memory_pool()
    # The default pool reserves more address space than it uses.
    pyarrow.set_memory_pool(pyarrow.system_memory_pool())
    try:
        while True:
            with memory_limit(2 * MAX_DATA_BYTES):
                batch = next(batches, None)
            if batch is None:
                return rows
            size += batch.nbytes
            if size > MAX_DATA_BYTES:
                raise _TOO_LARGE
            rows += batch.to_pylist()
    except MemoryError as error:
        raise _TOO_LARGE from error
    finally:
        pyarrow.set_memory_pool(pool)


_TOO_LARGE = Unreadable(f"holds more than {MAX_DATA_BYTES:,} bytes of values", "name a smaller table")


def _read_saved_dataset(path: Path) -> list[dict[str, Any]]:
    """Return the rows of one split that ``Dataset.save_to_disk`` wrote."""
    if (path / "dataset_dict.json").is_file():
        splits = sorted(current_path.name for current_path in path.iterdir() if current_path.is_dir())
        raise Unreadable("the folder holds several splits", f"name one: {path.name}/{splits[0] if splits else 'train'}")
    if not (path / "state.json").is_file():
        raise Unreadable("the folder is not a saved dataset", "Dataset.save_to_disk writes one; or name a file")
    try:
        from datasets import Dataset
    except ImportError as error:
        raise Unreadable("reading a saved dataset needs datasets", install_hint("train")) from error
    try:
        return _rows_of(Dataset.load_from_disk(str(path)).with_format("arrow").iter(DECODED_ROWS))
    except Unreadable:
        raise
    except Exception as error:
        # The library raises what its parts raise; a folder that cannot be read is one fault all the same.
        raise Unreadable(f"the saved dataset cannot be read: {type(error).__name__}") from error


def _number_rows(rows: list[dict[str, Any]]) -> list[TableRow]:
    if not rows:
        raise Unreadable("the file holds no rows")
    return [TableRow(number, values) for number, values in enumerate(rows, 1)]
