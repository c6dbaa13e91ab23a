"""Cells: the same rows are the same values in every format, and what has no value is told with its line and column."""

from __future__ import annotations

import csv
import datetime
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from specs.data.registered import RegisteredData, read_registered
from specs.session.item_lines import check_items
from specs.system.errors import Problem

ROWS = [{"question": f"What is {n} + {n}?", "answer": 2 * n} for n in range(4)]


def registered(path: Path) -> RegisteredData:
    data = read_registered(path, "items")
    assert isinstance(data, RegisteredData), data
    return data


def json_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def table(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def test_a_whole_number_is_one_in_every_format(tmp_path: Path) -> None:
    """A column of pandas with one missing value has 12.0 for 12."""
    plain = registered(json_lines(tmp_path / "rows.jsonl", ROWS))
    floats = [{**row, "answer": float(row["answer"])} for row in ROWS]
    decimals = [{**row, "answer": Decimal(f"{row['answer']}.00")} for row in ROWS]
    assert registered(json_lines(tmp_path / "floats.jsonl", floats)).data == plain.data
    assert registered(parquet(tmp_path / "floats.parquet", floats)).data == plain.data
    assert registered(parquet(tmp_path / "decimals.parquet", decimals)).data == plain.data
    written = registered(table(tmp_path / "floats.csv", floats))
    # The text of a CSV says "12" where JSON has a number.
    assert written.data == registered(json_lines(tmp_path / "a.jsonl", ROWS)).data
    assert written.notes == ("numbers such as 12.0 are read as 12 in answer",)
    versions = [{**row, "answer": text} for row, text in zip(ROWS, ("1.0", "1.10", "2.0", "3.1"), strict=True)]
    assert b'"answer":"1.0"' in registered(table(tmp_path / "versions.csv", versions)).data, "1.10 is not a number"


def test_a_missing_value_is_no_text(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [*ROWS, {"question": "And?", "answer": float("nan")}]
    for path in (json_lines(tmp_path / "a.jsonl", rows), parquet(tmp_path / "a.parquet", rows)):
        data = read_registered(path, "examples")
        assert isinstance(data, list)
        assert [(item.line, item.keys, item.message) for item in data] == [(5, "answer", "is missing")], path
    nested = [{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": float("nan")}]}]
    (problem,) = problems(json_lines(tmp_path / "b.jsonl", nested))
    assert (problem.keys, problem.message) == ("messages", "is empty")


def problems(path: Path) -> list[Problem]:
    data = read_registered(path, "examples")
    assert isinstance(data, list), data
    return data


@pytest.mark.parametrize(
    ("value", "output"),
    [
        ('"6 \\ud83d"', "holds a lone surrogate"),
        ("Infinity", "the number inf is not finite"),
        ("true", "a boolean, not text (write the words that are meant, such as yes and no)"),
        ('["a"]', "a list, not text (one text; `answer` may be a list of right answers)"),
        ('{"a": 1}', "a dict, not text"),
    ],
)
def test_a_cell_without_a_value_is_reported_with_its_line(value: str, output: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(
        f'{{"prompt": "a", "completion": "b"}}\n{{"prompt": "c", "completion": {value}}}\n', encoding="utf-8"
    )
    (problem,) = problems(path)
    assert (problem.line, problem.keys) == (2, "completion"), problem
    assert f"{problem.message} ({problem.hint})".startswith(output), problem


def test_types_of_parquet_are_text(tmp_path: Path) -> None:
    row = {"prompt": b"When?", "completion": datetime.date(2026, 1, 2), "seen": datetime.time(3)}
    data = read_registered(parquet(tmp_path / "a.parquet", [row]), "examples")
    assert isinstance(data, RegisteredData)
    made = json.loads(data.data)
    assert (made["prompt"], made["completion"]) == ("When?", "2026-01-02")
    (problem,) = problems(parquet(tmp_path / "b.parquet", [{"prompt": b"\xff", "completion": "b"}]))
    assert problem.keys == "prompt" and "bytes that are not UTF-8" in problem.message


def test_a_key_that_occurs_twice_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "a", "completion": "wrong", "completion": "b"}\n', encoding="utf-8")
    (problem,) = problems(path)
    assert (problem.line, problem.keys, problem.message) == (1, "completion", "occurs twice in one object")


def test_blank_lines_at_the_end_are_nothing(tmp_path: Path) -> None:
    plain = json_lines(tmp_path / "a.jsonl", ROWS)
    for end in ("\n", "\n\n", "  \n\t\n", "\r\n"):
        path = tmp_path / "b.jsonl"
        path.write_text(plain.read_text(encoding="utf-8") + end, encoding="utf-8")
        assert registered(path).data == registered(plain).data
    own = tmp_path / "own.jsonl"
    own.write_text('{"id": "a", "group": "g", "kind": "k", "prompt": "p", "constraint": {}}\n\n \n', encoding="utf-8")
    data = registered(own)
    assert data.rows == 1 and check_items(own, data.data) == []
    (path := tmp_path / "c.jsonl").write_text('{"prompt": "a", "answer": "b"}\n\n{"prompt": "c", "answer": "d"}\n')
    (middle,) = problems(path)
    assert (middle.line, middle.message) == (2, "the line is empty")


HEADER = [["prompt", "completion", "a note, if any, or none"], *([f"a {n}, or b?", "c", "d"] for n in range(3))]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("first", ["", "sep={}\n", "sep={}\r\n"])
def test_the_separator_is_that_which_divides_all_rows_alike(delimiter: str, first: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write(first.format(delimiter))
        csv.writer(file, delimiter=delimiter).writerows(HEADER)
        file.write(f"x{delimiter}y\n")
    (problem,) = problems(path)
    assert problem.message == "2 cells, the header has 3" and problem.line == (6 if first else 5)
    path.write_text(path.read_text(encoding="utf-8").rpartition("x")[0], encoding="utf-8")
    data = read_registered(path, "examples")
    assert isinstance(data, RegisteredData) and data.rows == 3


@pytest.mark.parametrize(
    ("start", "output"),
    [(b"\x1f\x8b\x08", "gunzip"), (b"\x28\xb5\x2f\xfd", "unzstd"), (b"BZh9", "bunzip2"), (b"\xfd7zXZ\x00", "unxz")],
)
@pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv", "rows.jsonl.zst"])
def test_compressed_files_are_named(start: bytes, output: str, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(start + b"\x00\xff" * 20)
    (problem,) = problems(tmp_path / name)
    assert "is compressed" in problem.message and output in problem.hint


def test_a_column_without_a_name_that_is_no_index_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(",prompt,completion\nx,a,b\n", encoding="utf-8")
    (problem,) = problems(tmp_path / "a.csv")
    assert problem.message == "the first column has no name"
