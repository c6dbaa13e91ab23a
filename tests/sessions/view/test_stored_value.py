"""Stored values as lines: the place that a finding names is marked, and rows are found by number."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reviews.trail.chain.store import Store
from sessions.pages.view.stored_value import ROWS_AT_ONCE, RowFiles, value_lines
from specs.system.errors import EvidenceMissing, UserError

VALUE = {"checks": [{"id": "a/b", "text": "one\ntwo"}, {"id": "c"}], "a/b": 1, "a~b": [], "log_tail": "x\ny\nz"}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def marked(store: Store, pointer: str = "", lines: tuple[int, int] | None = None) -> list[str]:
    digest = store.put(json.dumps(VALUE).encode())
    return [line.text.strip() for line in value_lines(store, digest, pointer, lines) if line.marked]


@pytest.mark.parametrize(
    ("pointer", "results"),
    [
        ("/checks/1", ["{", '"id": "c"', "}"]),
        ("/checks/1/id", ['"id": "c"']),
        ("/a~1b", ['"a/b": 1,']),
        ("/a~0b", ['"a~b": [],']),
        ("/check", []),
        ("/checks/9", []),
        ("", []),
    ],
)
def test_the_place_of_a_pointer_is_marked_and_nothing_else(store: Store, pointer: str, results: list[str]) -> None:
    assert marked(store, pointer) == results


def test_the_lines_of_a_finding_are_those_of_the_packets_log(store: Store) -> None:
    assert marked(store, lines=(2, 3)) == ["y", "z"]


def test_all_of_a_value_is_shown(store: Store) -> None:
    digest = store.put(json.dumps(VALUE).encode())
    text = "\n".join(line.text for line in value_lines(store, digest, "", None))
    assert all(word in text for word in ('"id": "a/b"', "one", "two", '"log_tail"', "x", "z"))


def test_what_is_no_json_is_shown_as_text(store: Store) -> None:
    lines = value_lines(store, store.put(b"one\n\x1b[31mtwo\xff\n"), "", (2, 2))
    assert [tuple(line) for line in lines] == [("one", False), ("two\ufffd", True), ("", False)]


def test_deep_and_large_values_are_no_trouble(store: Store) -> None:
    assert value_lines(store, store.put(b"[" * 5000 + b"]" * 5000), "", None)
    with pytest.raises(EvidenceMissing, match="too large"):
        value_lines(store, store.put(b"x" * 4_000_001), "", None)


@pytest.mark.parametrize("digest", ["", "x", "sha256:../../x", "sha256:" + "A" * 64, "sha256:" + "0" * 64 + "/.."])
def test_what_is_no_digest_becomes_no_path(store: Store, digest: str) -> None:
    with pytest.raises(UserError):
        value_lines(store, digest, "", None)
    with pytest.raises(UserError):
        RowFiles().page(store, digest, 1)


@pytest.mark.parametrize(("line", "first"), [(0, 1), (1, 1), (100, 1), (101, 101), (250, 201), (999, 201)])
def test_rows_come_in_portions_with_their_numbers(store: Store, line: int, first: int) -> None:
    digest = store.put(b"".join(b'{"n": %d}\n' % number for number in range(1, 251)))
    page = RowFiles().page(store, digest, line)
    assert (page["first"], page["count"]) == (first, 250)
    assert page["rows"][0] == (first, {"n": str(first)}) and len(page["rows"]) == min(ROWS_AT_ONCE, 251 - first)


@pytest.mark.parametrize(("data", "rows"), [(b"", []), (b"x", [(1, "x")]), (b"\n\n", [(1, ""), (2, "")])])
def test_odd_files_of_rows_are_shown(store: Store, data: bytes, rows: list[object]) -> None:
    assert RowFiles().page(store, store.put(data), 1)["rows"] == rows
