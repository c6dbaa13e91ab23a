"""What an append remembers of the one before it, and when it must not."""

from __future__ import annotations

from pathlib import Path

import pytest

from reviews.trail.integrity import walk_trail
from reviews.trail.key_rotation import rotate
from reviews.trail.tables.open_table import read_trail
from reviews.trail.trail import Trail

ADA = {"by": "ada"}
SPENT = {"what": "settle", "job": "small.sft.1", "party": "job", "stage": "sft", "usd": 0.25}


def begun(folder: Path) -> Trail:
    trail = Trail(folder / "runs" / "small" / "trail.sqlite", "small")
    trail.append("workspace", "workspace", {})
    return trail


def holds(trail: Trail, keys: list[str]) -> None:
    walk = walk_trail(read_trail(trail.path))
    assert not walk.damage and [one.entry.key for one in walk.entries] == keys


def test_what_was_rolled_back_is_not_built_upon(tmp_path: Path) -> None:
    trail = begun(tmp_path)
    with pytest.raises(KeyError), trail.alone():
        trail.append("pause", "pause/1", ADA)
        raise KeyError
    trail.append("pause", "pause/2", ADA)
    holds(trail, ["workspace", "pause/2"])


def test_what_another_connection_appended_is_built_upon(tmp_path: Path) -> None:
    one, two = begun(tmp_path), Trail(tmp_path / "runs" / "small" / "trail.sqlite", "small")
    for number in range(3):
        one.append("pause", f"pause/{number}", ADA)
        two.append("resume", f"resume/{number}", ADA)
    holds(one, ["workspace", *(f"{kind}/{number}" for number in range(3) for kind in ("pause", "resume"))])


def test_a_refused_append_leaves_the_next_one_its_place(tmp_path: Path) -> None:
    trail = begun(tmp_path)
    with pytest.raises(ValueError, match="refused"):
        trail.append("spend", "spend/1", SPENT | {"usd": 1e16})
    # None of these is written by json as RFC 8785 has it.
    for number, usual in enumerate([{"usd": 1.0}, {"usd": 1e-7}, {"stage": "\u00e9"}, {"seconds": 1e21 / 1e20}]):
        trail.append("spend", f"usual/{number}", SPENT | usual)
    holds(trail, ["workspace", *(f"usual/{number}" for number in range(4))])


def test_after_a_change_of_keys_the_new_key_signs(tmp_path: Path) -> None:
    trail = begun(tmp_path)
    trail.append("pause", "pause/1", ADA)
    rotate(trail.keys, [(trail.path, "small")], "log", by="ada", reason="due", revoke=False)
    renewed = Trail(trail.path, "small")
    renewed.append("pause", "pause/2", ADA)
    walk = walk_trail(read_trail(trail.path))
    assert not walk.damage and walk.signed["log", renewed.keys.signer("log").id] >= 1
