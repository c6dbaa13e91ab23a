"""Evaluations of one held-out split are counted over the sessions of a workspace, and an audit repeats the finding."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from reviews.evidence.gather import gather
from reviews.gate.check_list import run_checks
from reviews.history.history import History
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.nodes.heldout_use import _has_overlap, _prompts, used_elsewhere  # pyright: ignore[reportPrivateUsage]
from specs.stages.base.artifacts import Item
from testing.factories import compared_session
from testing.fixtures.quick_session import QuickLauncher, drive, open_quick, quick_session

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        ("abcd", "abcd", True),
        ("abcd", "abcx", True),
        ("abcd", "ABxy", True),
        ("ab", "abcdefgh", True),
        ("abcd", "axyz", False),
        ("", "ab", False),
        ("", "", False),
    ],
)
def test_a_split_that_shares_half_of_its_items_is_the_same(tmp_path: Path, ours: str, theirs: str, same: bool) -> None:
    store = Store(tmp_path / "store")
    text, other = (store.put(_lines(f"Write about {letter}." for letter in letters)) for letters in (ours, theirs))
    assert _has_overlap(_prompts(tmp_path, text), _prompts(tmp_path, other)) == same


ANIMALS = ("elephants", "owls", "honey bees", "wolves", "kites", "zebras", "otters", "moles")


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ("Please: write one sentence about {} in small letters, and nothing else.", True),
        ("Compose a single line on {}. No capitals anywhere.", True),
        ("in small letters write about {} one sentence, and nothing else.", True),
        ("Write one sentence about the town of {} in small letters, and nothing else.", False),
    ],
)
def test_a_reworded_or_reordered_split_is_the_same(tmp_path: Path, other: str, same: bool) -> None:
    store = Store(tmp_path / "store")
    names = [f"Q{name[::-1]}" for name in ANIMALS] if not same else list(reversed(ANIMALS))
    ours = store.put(_lines(f"Write one sentence about {name} in small letters, and nothing else." for name in ANIMALS))
    again = store.put(_lines(other.format(name) for name in names))
    assert _has_overlap(_prompts(tmp_path, ours), _prompts(tmp_path, again)) == same


def _lines(prompts: Iterable[str]) -> bytes:
    items = [
        Item(id=f"i{place}", prompt=prompt, kind="quoted", constraint={}, group="g")
        for place, prompt in enumerate(prompts)
    ]
    return "".join(f"{item.model_dump_json()}\n" for item in items).encode()


def ran(folder: Path, name: str) -> Path:
    run = open_quick(folder, name=name)
    drive(quick_session(run))
    return run


def find_entry(run: Path, stage: str) -> dict[str, Any]:
    entry = next(
        recorded_entry
        for recorded_entry in read_entries(run / "trail.sqlite")
        if recorded_entry.key == f"checks/{stage}.1"
    )
    checks = json.loads(Store(run / "store").get(entry.raw["checks"]))
    return next(check for check in checks if check["id"] == "registration.workspace")


def run_compared(folder: Path, name: str) -> Path:
    compared_session.write_transfer_items(folder)
    run = open_quick(folder, *compared_session.CHANGES, name=name)
    drive(quick_session(run, launcher=QuickLauncher(compared_session.compared_rows, moved=compared_session.APART)))
    return run


def test_looks_at_a_transfer_split_are_counted_as_those_at_the_held_out_split(tmp_path: Path) -> None:
    first, second = run_compared(tmp_path, "first"), run_compared(tmp_path, "second")
    stages = ("base", "drafts_after", "other_base", "other_tuned", "tuned")
    assert [find_entry(first, stage)["status"] for stage in stages] == ["PASS"] * 5
    assert [find_entry(second, stage)["figure"] for stage in stages] == [3, 3, 2, 2, 3]
    session = quick_session(second)
    stage, digests = session.resolved.spec.stage("other_base"), session.resolved.data_digests
    # A transfer split that was the held-out split of another session.
    session.resolved = session.resolved.model_copy(update={"data_digests": digests | {"other": digests["heldout"]}})
    use = used_elsewhere(session, stage)
    assert use is not None and (use.sessions, use.evaluations, use.split) == (1, 3, "other")
    session.trail.close()


def test_looks_of_other_sessions_are_counted_and_reported(tmp_path: Path) -> None:
    first = ran(tmp_path, "small")
    assert [find_entry(first, stage)["status"] for stage in ("base", "tuned")] == ["PASS", "PASS"]
    # A copy is the same session, a folder without a trail is none, and what cannot be read is not counted.
    shutil.copytree(first, tmp_path / "runs" / "copied")
    (tmp_path / "runs" / "empty").mkdir()
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "trail.sqlite").write_bytes(b"no trail")
    second = ran(tmp_path, "second")
    report = find_entry(second, "tuned")
    assert (report["status"], report["blocking"], report["figure"]) == ("WARN", False, 2)
    assert "2 times before, by 1 other sessions of the workspace" in report["detail"]
    assert "1 sessions could not be read" in report["detail"]
    entries = list(read_entries(second / "trail.sqlite"))
    assert entries[-1].kind == "close", "no gate closed"
    (gone,) = (entry.raw for entry in entries if entry.key == "exit/second.train.1")
    assert "heldout" not in gone, "training reads no split"
    session = quick_session(second)
    other = session.resolved.spec.stage("tuned").model_copy(update={"inputs": {"items": "data.prompts"}})
    assert used_elsewhere(session, other) is None, "other items say nothing of the split"
    session.trail.close()
    # Alone, as an export is read, the finding is the same.
    away = shutil.move(second, tmp_path / "away")
    evidence = gather(Path(away), History(entries, Store(Path(away) / "store")), "tuned", 1)
    again = next(check for check in run_checks(evidence, None) if check.id == "registration.workspace")
    assert (again.status, again.detail) == (report["status"], report["detail"])
