"""Changed bytes never end in a traceback and are never believed: every parser of the export and of the trail file."""

from __future__ import annotations

import importlib.util
import os
import random
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testing.factories.fuzzing import Target, mutated, targets
from testing.fixtures.command_sessions import called as peergate

HOME = Path(__file__).parents[3]
NIGHTLY = [pytest.mark.nightly, pytest.mark.timeout(4 * 3600)]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("fuzzed")
    assert peergate("start", "demo_leaky", "--runs", folder / "first").returncode == 3
    run = folder / "first" / "demo_leaky"
    assert peergate("audit", "export", run, folder / "export").returncode == 0
    return run, folder / "export"


@pytest.fixture(scope="module")
def parsers(session: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> list[Target]:
    return list(targets(*session, tmp_path_factory.mktemp("work")))


def test_what_was_not_changed_is_believed(parsers: list[Target]) -> None:
    """Otherwise refusing everything would pass."""
    fooled = {one.name for one in parsers if one.is_fooled(one.seed)}
    read_only = {"statement", "note", "anchor", "proof", "policy", "public key", "private key"}
    assert fooled == {one.name for one in parsers} - read_only - {"trail file: read", "trail file: gone on with"}


@pytest.mark.parametrize(
    "count", [300, pytest.param(1000, marks=pytest.mark.slow), pytest.param(100_000, marks=NIGHTLY)]
)
def test_changed_bytes_are_refused(parsers: list[Target], count: int) -> None:
    chance = random.Random(11)
    shares = [one.share for one in parsers]
    tried: Counter[str] = Counter()
    for number in range(count):
        # Each once, and then as often as it is quick.
        one = parsers[number] if number < len(parsers) else chance.choices(parsers, shares)[0]
        data = mutated(one.seed, chance)
        if data == one.seed:
            continue
        try:
            assert not one.is_fooled(data)
        except Exception as error:
            raise AssertionError(f"{one.name}, mutation {number} of seed 11: {data!r:.400}") from error
        tried[one.name] += 1
    print(f"{tried.total()} mutations: {dict(sorted(tried.items()))}")
    assert len(tried) == len(parsers) and tried.total() > 0.95 * count


LOOSE = "CREATE TABLE loose AS SELECT * FROM {0}; DROP TABLE {0}; ALTER TABLE loose RENAME TO {0}; "
ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM n) SELECT x AS seq, '{}' AS payload, '[]' AS "
VALUES = (
    "NULL", "1", "-1", "1.5", "9e999", "'text'", "''", "x'ff'", "x''", "zeroblob(64)", str(2**62),
    "CAST(x'eda0bd' AS TEXT)",
)  # fmt: skip
ENTRY = [f"{LOOSE.format('entry')}UPDATE entry SET {{}} = {one} WHERE rowid = 3" for one in VALUES]
HEAD = [f"{LOOSE.format('head')}UPDATE head SET {{}} = {one}" for one in VALUES]
STATEMENTS = [
    *(one.format(name) for name in ("seq", "payload", "signatures") for one in ENTRY),
    *(one.format(name) for name in ("size", "frontier", "note") for one in HEAD),
    "DROP TABLE head", "DROP TABLE entry", "DELETE FROM head",
    f"DROP TABLE entry; CREATE VIEW entry AS {ENDLESS} signatures FROM n",
    "ALTER TABLE entry RENAME COLUMN seq TO number", "ALTER TABLE head RENAME COLUMN note TO notes",
    "DROP TABLE entry; CREATE TABLE entry (seq, key, data)",
    "DROP TABLE entry; CREATE TABLE entry (seq, key, data); INSERT INTO entry VALUES (0, 'open', NULL), ('a', 1, 2.5)",
    "DROP INDEX entry_key; UPDATE entry SET payload = '{}'",
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(STATEMENTS)))
def test_a_file_of_another_make_is_refused(parsers: list[Target], tmp_path: Path, number: int) -> None:
    """Whole databases that SQLite finds nothing wrong with, and that are not trail."""
    readers = {one.name: one for one in parsers if one.name.startswith("trail file")}
    made = tmp_path / "made.sqlite"
    made.write_bytes(readers["trail file: read"].seed)
    with closing(sqlite3.connect(made)) as database:
        database.executescript(f"PRAGMA journal_mode=DELETE; DROP TRIGGER entry_is_final; {STATEMENTS[number]}")
    fooled = [name for name, one in readers.items() if one.is_fooled(made.read_bytes())]
    assert not fooled, STATEMENTS[number]


def test_a_schema_that_is_no_text_is_told_as_damage(parsers: list[Target]) -> None:
    for file in (one for one in parsers if one.name.startswith("trail file")):
        for name in (b"payload TEXT", b"CREATE TABLE entry", b"INDEX entry_key ON entry (json_extract"):
            assert name in file.seed
            assert not file.is_fooled(file.seed.replace(name, name[:-3] + b"\xb7" + name[-2:]))


@pytest.mark.parametrize("change", [b'{"file":"x",', b"{ ", b'{"more":1,', b"[" * 5000 + b"{"])
def test_a_seal_has_one_spelling(parsers: list[Target], change: bytes) -> None:
    """Of two values of one name the last counts, so another text could say the same."""
    seal = next(one for one in parsers if one.name == "seal")
    assert not seal.is_fooled(change + seal.seed[1:])


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_bytes_are_refused(parsers: list[Target], data: st.DataObject) -> None:
    one = data.draw(st.sampled_from([one for one in parsers if one.share > 1]))
    start = data.draw(st.integers(0, len(one.seed)))
    end = data.draw(st.integers(start, len(one.seed)))
    changed = one.seed[:start] + data.draw(st.binary(max_size=40)) + one.seed[end:]
    assert changed == one.seed or not one.is_fooled(changed)


@pytest.mark.nightly
@pytest.mark.timeout(4 * 3600)
def test_inputs_that_are_led_by_coverage_are_refused(session: tuple[Path, Path], tmp_path: Path) -> None:
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("needs atheris: pip install '.[fuzz]' (wheels for Linux only)")
    command = [sys.executable, "-m", "testing.factories.fuzz_with_atheris", *map(str, session), str(tmp_path), "100000"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HOME), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, cwd=HOME, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "Done 100000 " in done.stderr, done.stderr[-4000:]
