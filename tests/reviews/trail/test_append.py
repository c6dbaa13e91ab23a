"""What an append remembers of the one before it, and when it must not."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reviews.trail.file_seal import seal_path
from reviews.trail.integrity import walk_trail
from reviews.trail.key_rotation import rotate
from reviews.trail.tables.open_table import read_trail
from reviews.trail.tables.sqlite_table import SqliteTable
from reviews.trail.trail import Trail
from specs.system.errors import AuditDamage, DiskUnwritable, LeaseLost, PeergateError
from testing.factories.bodies import append_json, body_of

ADA = {"by": "ada"}
SPENT = {"what": "settle", "job": "small.sft.1", "party": "job", "stage": "sft", "usd": 0.25}


def begun(folder: Path) -> Trail:
    trail = Trail(folder / "runs" / "small" / "trail.sqlite", "small")
    append_json(trail, "workspace", "workspace", {})
    return trail


def holds(trail: Trail, keys: list[str]) -> None:
    walk = walk_trail(read_trail(trail.path))
    assert not walk.damage and [entry.key for entry in walk.entries] == keys


def test_what_was_rolled_back_is_not_built_upon(tmp_path: Path) -> None:
    trail = begun(tmp_path)
    with pytest.raises(KeyError), trail.alone():
        append_json(trail, "pause", "pause/1", ADA)
        raise KeyError
    append_json(trail, "pause", "pause/2", ADA)
    holds(trail, ["workspace", "pause/2"])


def test_what_another_connection_appended_is_built_upon(tmp_path: Path) -> None:
    trail, two = begun(tmp_path), Trail(tmp_path / "runs" / "small" / "trail.sqlite", "small")
    for number in range(3):
        append_json(trail, "pause", f"pause/{number}", ADA)
        append_json(two, "resume", f"resume/{number}", body_of("resume"))
    holds(trail, ["workspace", *(f"{kind}/{number}" for number in range(3) for kind in ("pause", "resume"))])


def test_entries_are_the_same_until_something_is_appended(tmp_path: Path) -> None:
    first, second = begun(tmp_path), Trail(tmp_path / "runs" / "small" / "trail.sqlite", "small")
    assert first.entries() is first.entries()
    for number, trail in enumerate((first, second, first), 1):
        append_json(trail, "pause", f"pause/{number}", ADA)
        assert [entry.key for entry in first.entries()] == ["workspace", *(f"pause/{n + 1}" for n in range(number))]
    before = first.entries()
    with pytest.raises(KeyError), first.alone():
        append_json(first, "pause", "pause/4", ADA)
        assert len(first.entries()) == len(before) + 1
        raise KeyError
    assert first.entries() == before


def test_a_refused_append_leaves_the_next_one_its_place(tmp_path: Path) -> None:
    trail = begun(tmp_path)
    with pytest.raises(ValueError, match="refused"):
        append_json(trail, "spend", "spend/1", SPENT | {"usd": 1e16})
    # None of these is written by json as RFC 8785 has it.
    for number, usual in enumerate([{"usd": 1.0}, {"usd": 1e-7}, {"stage": "\u00e9"}, {"seconds": 1e21 / 1e20}]):
        append_json(trail, "spend", f"usual/{number}", SPENT | usual)
    holds(trail, ["workspace", *(f"usual/{number}" for number in range(4))])


def test_after_a_change_of_keys_the_new_key_signs(tmp_path: Path) -> None:
    trail = begun(tmp_path)
    append_json(trail, "pause", "pause/1", ADA)
    rotate(trail.keys, [(trail.path, "small")], "log", by="ada", reason="due", revoke=False)
    renewed = Trail(trail.path, "small")
    append_json(renewed, "pause", "pause/2", ADA)
    walk = walk_trail(read_trail(trail.path))
    assert not walk.damage and walk.signed["log", renewed.keys.signer("log").id] >= 1


def taken_up(trail: Trail, epoch: int) -> None:
    lease = {"host": "there", "pid": 7, "epoch": epoch}
    append_json(trail, "resume", f"resume/{epoch}", body_of("resume", lease=lease))


def test_who_was_taken_over_appends_nothing_acts_no_more_and_seals_nothing(tmp_path: Path) -> None:
    trail = begun(tmp_path)
    other = Trail(trail.path, "small")
    assert trail.epoch() == 0
    taken_up(trail, 1)
    trail.fence = 1
    append_json(trail, "pause", "pause/1", ADA)
    trail.guard()
    taken_up(other, 2)
    output = r"taken over by ada \(process 7 on there, epoch 2; this is epoch 1\)"
    with pytest.raises(LeaseLost, match=output):
        append_json(trail, "pause", "pause/2", ADA)
    with pytest.raises(LeaseLost, match=output):
        trail.guard()
    trail.close()
    assert not seal_path(trail.path).exists(), "anyone who took over seals the trail"
    holds(other, ["workspace", "resume/1", "pause/1", "resume/2"])
    other.close()
    assert seal_path(trail.path).exists()


def fails(error: Exception) -> Callable[..., Any]:
    """Return a function that raises."""

    def failing(*_: Any) -> None:
        raise error

    return failing


def test_a_full_disk_records_nothing_and_says_so_and_the_next_append_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trail = begun(tmp_path)
    full = sqlite3.OperationalError("database or disk is full")
    with monkeypatch.context() as patched:
        patched.setattr(SqliteTable, "commit", fails(full))
        with pytest.raises(DiskUnwritable, match="database or disk is full; nothing was recorded") as raised:
            append_json(trail, "pause", "pause/1", ADA)
    assert raised.value.__cause__ is full
    append_json(trail, "pause", "pause/2", ADA)
    holds(trail, ["workspace", "pause/2"])


@pytest.mark.parametrize(
    "error", [OSError("no space"), sqlite3.OperationalError("disk I/O error")], ids=["the system", "SQLite"]
)
def test_a_trail_that_cannot_be_sealed_loses_nothing_and_is_sealed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    trail = begun(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(SqliteTable, "settle", fails(error))
        with pytest.raises(DiskUnwritable, match=r"cannot be sealed: .*; its entries are all there"):
            trail.close()
    assert not seal_path(trail.path).exists()
    again = Trail(trail.path, "small")
    again.close()
    assert seal_path(trail.path).exists()
    holds(again, ["workspace"])


@pytest.mark.parametrize(
    "error", [sqlite3.DatabaseError("malformed"), PeergateError("out of reach")], ids=["damaged", "out of reach"]
)
def test_a_trail_that_is_damaged_or_out_of_reach_is_closed_without_a_seal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    trail = begun(tmp_path)
    monkeypatch.setattr(SqliteTable, "settle", fails(error))
    trail.close()
    assert not seal_path(trail.path).exists()
    with pytest.raises(AuditDamage, match="closed database"):
        trail.head()


def test_a_mistake_while_closing_is_raised_and_the_file_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trail = begun(tmp_path)
    monkeypatch.setattr(SqliteTable, "settle", fails(KeyError("mistake")))
    with pytest.raises(KeyError):
        trail.close()
    with pytest.raises(AuditDamage, match="closed database"):
        trail.head()
