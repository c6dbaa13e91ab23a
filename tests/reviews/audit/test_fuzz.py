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

from testing.factories.fuzzing import FuzzTarget, mutated, targets
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
def parsers(session: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> list[FuzzTarget]:
    return list(targets(*session, tmp_path_factory.mktemp("work")))


def test_what_was_not_changed_is_believed(parsers: list[FuzzTarget]) -> None:
    """Otherwise refusing everything would pass."""
    fooled = {target.name for target in parsers if target.is_fooled(target.seed)}
    read_only = {"statement", "note", "anchor", "proof", "policy", "public key", "private key"}
    assert fooled == {target.name for target in parsers} - read_only - {"trail file: read", "trail file: gone on with"}


@pytest.mark.parametrize(
    "count", [300, pytest.param(1000, marks=pytest.mark.slow), pytest.param(100_000, marks=NIGHTLY)]
)
def test_changed_bytes_are_refused(parsers: list[FuzzTarget], count: int) -> None:
    chance = random.Random(11)
    shares = [parser.share for parser in parsers]
    tried: Counter[str] = Counter()
    for number in range(count):
        # Each once, and then as often as it is quick.
        target = parsers[number] if number < len(parsers) else chance.choices(parsers, shares)[0]
        data = mutated(target.seed, chance)
        if data == target.seed:
            continue
        try:
            assert not target.is_fooled(data)
        except Exception as error:
            raise AssertionError(f"{target.name}, mutation {number} of seed 11: {data!r:.400}") from error
        tried[target.name] += 1
    print(f"{tried.total()} mutations: {dict(sorted(tried.items()))}")
    assert len(tried) == len(parsers) and tried.total() > 0.95 * count


LOOSE = "CREATE TABLE loose AS SELECT * FROM {0}; DROP TABLE {0}; ALTER TABLE loose RENAME TO {0}; "
ENDLESS = "WITH RECURSIVE n(x) AS (SELECT 0 UNION ALL SELECT x + 1 FROM n) SELECT x AS seq, '{}' AS payload, '[]' AS "
VALUES = (
    "NULL", "1", "-1", "1.5", "9e999", "'text'", "''", "x'ff'", "x''", "zeroblob(64)", str(2**62),
    "CAST(x'eda0bd' AS TEXT)",
)  # fmt: skip
ENTRY = [f"{LOOSE.format('entry')}UPDATE entry SET {{}} = {value} WHERE rowid = 3" for value in VALUES]
HEAD = [f"{LOOSE.format('head')}UPDATE head SET {{}} = {value}" for value in VALUES]
STATEMENTS = [
    *(text.format(name) for name in ("seq", "payload", "signatures") for text in ENTRY),
    *(text.format(name) for name in ("size", "frontier", "note") for text in HEAD),
    "DROP TABLE head", "DROP TABLE entry", "DELETE FROM head",
    f"DROP TABLE entry; CREATE VIEW entry AS {ENDLESS} signatures FROM n",
    "ALTER TABLE entry RENAME COLUMN seq TO number", "ALTER TABLE head RENAME COLUMN note TO notes",
    "DROP TABLE entry; CREATE TABLE entry (seq, key, data)",
    "DROP TABLE entry; CREATE TABLE entry (seq, key, data); INSERT INTO entry VALUES (0, 'open', NULL), ('a', 1, 2.5)",
    "DROP INDEX entry_key; UPDATE entry SET payload = '{}'",
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(STATEMENTS)))
def test_a_file_of_another_make_is_refused(parsers: list[FuzzTarget], tmp_path: Path, number: int) -> None:
    """Whole databases that SQLite finds nothing wrong with, and that are not trail."""
    readers = {target.name: target for target in parsers if target.name.startswith("trail file")}
    made = tmp_path / "made.sqlite"
    made.write_bytes(readers["trail file: read"].seed)
    with closing(sqlite3.connect(made)) as database:
        database.executescript(f"PRAGMA journal_mode=DELETE; DROP TRIGGER entry_is_final; {STATEMENTS[number]}")
    fooled = [name for name, target in readers.items() if target.is_fooled(made.read_bytes())]
    assert not fooled, STATEMENTS[number]


def test_a_schema_that_is_no_text_is_reported_as_damage(parsers: list[FuzzTarget]) -> None:
    for file in (target for target in parsers if target.name.startswith("trail file")):
        for name in (b"payload TEXT", b"CREATE TABLE entry", b"INDEX entry_key ON entry (json_extract"):
            assert name in file.seed
            assert not file.is_fooled(file.seed.replace(name, name[:-3] + b"\xb7" + name[-2:]))


@pytest.mark.parametrize("change", [b'{"file":"x",', b"{ ", b'{"more":1,', b"[" * 5000 + b"{"])
def test_a_seal_has_one_spelling(parsers: list[FuzzTarget], change: bytes) -> None:
    """Of two values of one name the last counts, so another text could say the same."""
    seal = next(target for target in parsers if target.name == "seal")
    assert not seal.is_fooled(change + seal.seed[1:])


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_bytes_are_refused(parsers: list[FuzzTarget], data: st.DataObject) -> None:
    target = data.draw(st.sampled_from([parser for parser in parsers if parser.share > 1]))
    start = data.draw(st.integers(0, len(target.seed)))
    end = data.draw(st.integers(start, len(target.seed)))
    changed = target.seed[:start] + data.draw(st.binary(max_size=40)) + target.seed[end:]
    assert changed == target.seed or not target.is_fooled(changed)


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
