from __future__ import annotations

import itertools
import json
import math
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reviews.trail import MAX_ENTRY_BYTES, Trail, chain_damage, read_entries, read_rows, seal_path
from specs.digests import digest_bytes, digest_file
from specs.errors import AuditDamage, PeergateError
from specs.trail import GENESIS, Entry

Rows = list[tuple[Any, Any, Any]]
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
ANY_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | KEYS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


@pytest.fixture
def trail(tmp_path: Path) -> Iterator[Trail]:
    trail = Trail(tmp_path / "trail.sqlite", "small")
    yield trail
    trail.close()


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trail]:
    trail = Trail(tmp_path_factory.mktemp("many") / "trail.sqlite", "small")
    yield trail
    trail.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed trail of six entries."""
    path = tmp_path_factory.mktemp("written") / "trail.sqlite"
    trail = Trail(path, "small")
    for n in range(6):
        trail.append("spend", f"spend/{n}", {"n": n, "usd": 0.5})
    trail.close()
    return path


def count(trail: Trail) -> int:
    return len(list(trail.iterate()))


def damage_of(trail: Trail) -> list[str]:
    return list(chain_damage(read_rows(trail.path), trail.session))


# ---- appending and reading ----------------------------------------------------------------------------------


def test_entries_are_found_and_iterated_in_order(trail: Trail) -> None:
    first = trail.append("open", "open", {"registration": "r"})
    second = trail.append("spend", "reserve/a", {"usd": 1.5})
    third = trail.append("decision", "decision/a.1", {"opens": None})

    assert [one.entry.seq for one in trail.iterate()] == [0, 1, 2]
    assert [one.entry.key for one in trail.iterate("decision", "open")] == ["open", "decision/a.1"]
    assert trail.find("reserve/a") == second
    assert trail.find("reserve/b") is None
    assert first.entry.previous == GENESIS
    assert [second.entry.previous, third.entry.previous] == [first.digest, second.digest]
    assert (trail.head().size, trail.head().digest) == (3, third.digest)
    assert first.digest == digest_bytes(first.entry.canonical())
    assert second.body == {"usd": 1.5}


def test_an_empty_trail_has_the_genesis_head(trail: Trail) -> None:
    assert (trail.head().size, trail.head().digest) == (0, GENESIS)
    trail.verify_chain()


def test_the_first_body_of_a_key_wins(trail: Trail) -> None:
    first = trail.append("grant", "grant/a", {"n": 1})
    again = trail.append("grant", "grant/a", {"n": 2})
    assert again == first
    assert again.body == {"n": 1}
    assert count(trail) == 1


def test_a_key_keeps_its_kind(trail: Trail) -> None:
    trail.append("grant", "grant/a", {"n": 1})
    with pytest.raises(PeergateError, match=r"'grant/a' is already a 'grant' entry, not 'launch'"):
        trail.append("launch", "grant/a", {"n": 1})
    assert count(trail) == 1


def test_an_entry_of_the_largest_size_fits_and_one_byte_more_does_not(trail: Trail) -> None:
    small = len(trail.append("packet", "k0", {"text": ""}).entry.canonical())
    room = MAX_ENTRY_BYTES - small
    with pytest.raises(PeergateError, match=f"has {MAX_ENTRY_BYTES + 1} bytes"):
        trail.append("packet", "k1", {"text": "x" * (room + 1)})
    assert count(trail) == 1
    assert trail.find("k1") is None
    assert len(trail.append("packet", "k1", {"text": "x" * room}).entry.canonical()) == MAX_ENTRY_BYTES
    trail.verify_chain()


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"x": 2.0**53}, id="float of 2**53"),
        pytest.param({"x": [-1e20]}, id="float below 1e21"),
        pytest.param({"x": 2**53}, id="integer of 2**53"),
        pytest.param({"x": math.nan}, id="nan"),
        pytest.param({"x": math.inf}, id="infinity"),
        pytest.param({"x": "\ud800"}, id="lone surrogate"),
        pytest.param({"\ud800": 1}, id="lone surrogate as key"),
        pytest.param({1: 1}, id="key is no text"),
        pytest.param({"x": Path("a")}, id="no JSON type"),
        pytest.param({"x": nested(200)}, id="deeper than readers go"),
        pytest.param({"x": nested(5000)}, id="deeper than the writer goes"),
    ],
)
def test_a_body_that_would_not_read_back_is_refused_and_nothing_is_recorded(trail: Trail, body: dict[str, Any]) -> None:
    trail.append("open", "open", {})
    with pytest.raises(ValueError, match="trail entry 'bad' is refused, it could not be read back as written"):
        trail.append("packet", "bad", body)
    assert count(trail) == 1
    assert trail.append("packet", "bad", {"x": 1}).body == {"x": 1}
    trail.verify_chain()


@pytest.mark.parametrize("value", [2.0**53 - 1, -(2.0**53) + 1, 1e21, 5e-324, 1.7976931348623157e308, -0.0])
def test_floats_json_can_hold_are_kept(trail: Trail, value: float) -> None:
    assert trail.append("packet", "float", {"x": value}).body == {"x": value}
    found = trail.find("float")
    assert found is not None
    assert found.body == {"x": value}
    trail.verify_chain()


@settings(max_examples=80, deadline=None)
@given(body=st.dictionaries(KEYS, ANY_JSON, max_size=4))
def test_any_json_is_either_kept_as_it_is_or_refused(many: Trail, body: dict[str, Any]) -> None:
    size = many.head().size
    key = f"k{size}"
    try:
        recorded = many.append("packet", key, body)
    except ValueError:
        assert many.head().size == size
        assert many.find(key) is None
    else:
        assert many.find(key) == recorded
        assert recorded.body == body
        assert many.head().digest == recorded.digest
    assert not damage_of(many)


def test_a_clock_that_is_set_back_does_not_look_like_tampering(trail: Trail, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([1000, 400, 1001])
    monkeypatch.setattr("reviews.trail.time.time_ns", lambda: next(times))
    for n in range(3):
        trail.append("spend", f"spend/{n}", {})
    assert [one.entry.time_ns for one in trail.iterate()] == ["1000", "1000", "1001"]
    trail.verify_chain()


@pytest.mark.parametrize(
    ("statement", "told"),
    [("UPDATE entry SET data = x'00'", "entries are final"), ("DELETE FROM entry WHERE seq = 0", "entries stay")],
)
def test_sqlite_refuses_to_change_or_delete_an_entry(trail: Trail, statement: str, told: str) -> None:
    trail.append("open", "open", {})
    with closing(sqlite3.connect(trail.path)) as other, pytest.raises(sqlite3.IntegrityError, match=told):
        other.execute(statement)
    trail.verify_chain()
    assert count(trail) == 1


# ---- damage -------------------------------------------------------------------------------------------------


def entries_of(rows: Rows) -> list[Entry]:
    return [Entry.model_validate_json(data) for _, _, data in rows]


def chained(entries: list[Entry]) -> Rows:
    """Write entries as a forger would who computes every digest again."""
    previous = GENESIS
    rows: Rows = []
    for entry in entries:
        whole = entry.model_copy(update={"previous": previous})
        rows.append((whole.seq, whole.key, whole.canonical()))
        previous = digest_bytes(rows[-1][2])
    return rows


def replaced(rows: Rows, position: int, **changes: Any) -> Rows:
    seq, key, data = rows[position]
    row = {"seq": seq, "key": key, "data": data} | changes
    return [*rows[:position], (row["seq"], row["key"], row["data"]), *rows[position + 1 :]]


def edited(rows: Rows) -> Rows:
    return replaced(rows, 2, data=rows[2][2].replace(b'"usd":0.5', b'"usd":0.4'))


def edited_and_padded(rows: Rows) -> Rows:
    return replaced(rows, 5, data=rows[5][2] + b" ")


def unreadable(rows: Rows) -> Rows:
    return replaced(rows, 2, data=b"{")


def first_deleted(rows: Rows) -> Rows:
    return rows[1:]


def middle_deleted(rows: Rows) -> Rows:
    return rows[:2] + rows[3:]


def middle_deleted_and_renumbered(rows: Rows) -> Rows:
    kept = entries_of(middle_deleted(rows))
    return [(n, entry.key, entry.model_copy(update={"seq": n}).canonical()) for n, entry in enumerate(kept)]


def swapped(rows: Rows) -> Rows:
    """Swap two entries but leave each at the number it bears."""
    two, three = rows[2], rows[3]
    return [*rows[:2], (2, three[1], three[2]), (3, two[1], two[2]), *rows[4:]]


def renumbered(rows: Rows) -> Rows:
    return [*rows[:3], *((seq + 1, key, data) for seq, key, data in rows[3:])]


def renumbered_inside_too(rows: Rows) -> Rows:
    later = [entry.model_copy(update={"seq": entry.seq + 1}) for entry in entries_of(rows)[3:]]
    return chained([*entries_of(rows)[:3], *later])


def replayed(rows: Rows) -> Rows:
    return [*rows, (6, "spend/again", rows[2][2])]


def other_key(rows: Rows) -> Rows:
    return replaced(rows, 5, key="spend/other")


def redated(rows: Rows) -> Rows:
    entry = entries_of(rows)[2]
    later = str(int(entry.time_ns) + 1)
    return replaced(rows, 2, data=entry.model_copy(update={"time_ns": later}).canonical())


def dated_before_the_one_before(rows: Rows) -> Rows:
    entries = entries_of(rows)
    entries[5] = entries[5].model_copy(update={"time_ns": str(int(entries[4].time_ns) - 1)})
    return chained(entries)


def date_that_is_no_number(rows: Rows) -> Rows:
    entries = entries_of(rows)
    entries[3] = entries[3].model_copy(update={"time_ns": "yesterday"})
    return chained(entries)


def of_another_session(rows: Rows) -> Rows:
    entries = entries_of(rows)
    entries[5] = entries[5].model_copy(update={"session": "other"})
    return chained(entries)


DAMAGE: dict[Callable[[Rows], Rows], str] = {
    edited: r"entry 3: names \S+ as the entry before it, which is",
    edited_and_padded: r"entry 5: bytes are not in canonical form",
    unreadable: r"entry 2: unreadable",
    first_deleted: r"entry 0: says it is entry 1 'spend/1'",
    middle_deleted: r"entry 2: says it is entry 3 'spend/3', stored as 3",
    middle_deleted_and_renumbered: r"entry 2: names \S+ as the entry before it",
    swapped: r"entry 2: says it is entry 3 'spend/3', stored as 2",
    renumbered: r"entry 3: says it is entry 3 'spend/3', stored as 4",
    renumbered_inside_too: r"entry 3: says it is entry 4 'spend/3', stored as 4",
    replayed: r"entry 6: says it is entry 2 'spend/2', stored as 6 'spend/again'",
    other_key: r"entry 5: says it is entry 5 'spend/5', stored as 5 'spend/other'",
    redated: r"entry 3: names \S+ as the entry before it",
    dated_before_the_one_before: r"entry 5: is dated before the entry before it",
    date_that_is_no_number: r"entry 3: unreadable",
    of_another_session: r"entry 5: belongs to session 'other', not 'small'",
}


def rewrite(path: Path, change: Callable[[Rows], Rows]) -> None:
    """Change the rows of a trail file the way somebody with a database tool would."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DROP TRIGGER entry_is_final")
        database.execute("DROP TRIGGER entry_stays")
        rows = database.execute("SELECT seq, key, data FROM entry ORDER BY seq").fetchall()
        changed = change(rows)
        assert changed != rows, "the tampering changed nothing"
        database.execute("DELETE FROM entry")
        database.executemany("INSERT INTO entry VALUES (?, ?, ?)", changed)


@pytest.mark.parametrize(("tamper", "told"), DAMAGE.items(), ids=[one.__name__ for one in DAMAGE])
def test_tampering_with_entries_is_found(
    written: Path, tmp_path: Path, tamper: Callable[[Rows], Rows], told: str
) -> None:
    path = Path(shutil.copy(written, tmp_path / "trail.sqlite"))
    assert not list(chain_damage(read_rows(path), "small"))
    rewrite(path, tamper)
    found = list(chain_damage(read_rows(path), "small"))
    assert found
    assert re.match(told, found[0]), found

    trail = Trail(path, "small")
    with pytest.raises(AuditDamage, match=told):
        trail.verify_chain()
    trail.close()


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_changed_byte_of_an_entry_that_is_not_the_last_is_found(written: Path, data: st.DataObject) -> None:
    rows = read_rows(written)
    position = data.draw(st.integers(0, len(rows) - 2))
    place = data.draw(st.integers(0, len(rows[position][2]) - 1))
    changed = bytearray(rows[position][2])
    changed[place] ^= data.draw(st.integers(1, 255))
    assert list(chain_damage(replaced(rows, position, data=bytes(changed)), "small"))


@settings(max_examples=100, deadline=None)
@given(order=st.lists(st.integers(0, 5), max_size=8))
def test_only_a_beginning_of_the_trail_holds_as_a_chain(written: Path, order: list[int]) -> None:
    rows = read_rows(written)
    whole = not list(chain_damage([rows[n] for n in order], "small"))
    assert whole == (order == list(range(len(order))))


def test_a_row_that_is_not_bytes_is_damage() -> None:
    assert list(chain_damage([(0, "a", "text")])) == ["entry 0: is not bytes"]


def test_nothing_is_appended_after_an_entry_that_cannot_be_read(written: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(written, tmp_path / "trail.sqlite"))
    rewrite(path, lambda rows: replaced(rows, 5, data=b"{"))
    trail = Trail(path, "small")
    with pytest.raises(AuditDamage, match="not a trail entry any more"):
        trail.append("close", "close", {})
    trail.close()
    assert len(read_rows(path)) == 6


# ---- the seal, and reading without writing ------------------------------------------------------------------


def test_closing_seals_the_file(tmp_path: Path) -> None:
    trail = Trail(tmp_path / "trail.sqlite", "small")
    last = trail.append("open", "open", {})
    trail.close()
    seal = json.loads((tmp_path / "trail.seal").read_bytes())
    assert seal == {"size": 1, "digest": last.digest, "file": digest_file(tmp_path / "trail.sqlite")}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["trail.seal", "trail.sqlite"]


def test_opening_and_closing_again_leaves_the_seal_true(written: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(written, tmp_path / "trail.sqlite"))
    Trail(path, "small").close()
    seal = json.loads(seal_path(path).read_bytes())
    assert (seal["size"], seal["file"]) == (6, digest_file(path))


def test_the_seal_stays_true_when_somebody_else_had_the_trail_open(tmp_path: Path) -> None:
    trail = Trail(tmp_path / "trail.sqlite", "small")
    trail.append("open", "open", {})
    with closing(sqlite3.connect(trail.path)) as other:
        other.execute("SELECT count(*) FROM entry").fetchone()
        trail.close()
    assert json.loads(seal_path(trail.path).read_bytes())["file"] == digest_file(trail.path)


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}


def test_reading_a_trail_at_rest_leaves_nothing_behind(written: Path, tmp_path: Path) -> None:
    folder = tmp_path / "100% #1?"
    folder.mkdir()
    shutil.copy(written, folder / "trail.sqlite")
    (folder / "trail.sqlite").chmod(0o444)
    folder.chmod(0o555)
    before = snapshot(folder)
    assert [key for _, key, _ in read_rows(folder / "trail.sqlite")] == [f"spend/{n}" for n in range(6)]
    assert snapshot(folder) == before
    folder.chmod(0o755)


def test_a_trail_somebody_writes_can_be_read(trail: Trail) -> None:
    trail.append("open", "open", {})
    beside = sorted(path.name for path in trail.path.parent.iterdir())
    assert [one.entry.key for one in read_entries(trail.path)] == ["open"]
    trail.append("close", "close", {})
    assert [one.entry.key for one in read_entries(trail.path)] == ["open", "close"]
    assert sorted(path.name for path in trail.path.parent.iterdir()) == beside


def test_reading_a_trail_that_is_not_there_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.DatabaseError):
        read_rows(tmp_path / "trail.sqlite")
    with pytest.raises(AuditDamage, match="cannot be read as a trail"):
        read_entries(tmp_path / "trail.sqlite")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"not a database", b"SQLite format 3\x00" + b"\x00" * 100])
def test_what_is_not_a_trail_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trail.sqlite"
    path.write_bytes(content)
    with pytest.raises(AuditDamage, match="cannot be read as a trail"):
        read_entries(path)


def test_an_index_that_does_not_fit_its_table_is_refused(written: Path, tmp_path: Path) -> None:
    raw = written.read_bytes()
    page = int.from_bytes(raw[16:18], "big")
    # The third page is the index of the keys.
    place = raw.index(b"spend/2", 2 * page)
    path = tmp_path / "trail.sqlite"
    path.write_bytes(raw[:place] + b"spend/Z" + raw[place + 7 :])
    with pytest.raises(AuditDamage, match="missing from index"):
        read_entries(path)


def test_a_damaged_page_is_refused(written: Path, tmp_path: Path) -> None:
    raw = bytearray(written.read_bytes())
    page = int.from_bytes(raw[16:18], "big")
    # The cell pointers of the second page: the table the entries are in.
    raw[page + 8 : page + 20] = b"\xff" * 12
    path = tmp_path / "trail.sqlite"
    path.write_bytes(raw)
    with pytest.raises(AuditDamage):
        read_entries(path)


# ---- processes ----------------------------------------------------------------------------------------------

APPENDER = """
import sys
from pathlib import Path
from reviews.trail import Trail

path, name, count, hold = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
trail = Trail(path, "small")
print("ready", flush=True)
if hold:
    sys.stdin.readline()
for n in range(count):
    trail.append("spend", f"{name}/{n}", {"by": name})
    print(f"{name}/{n}", flush=True)
    trail.append("spend", f"shared/{n}", {"by": name})
"""


def appender(path: Path, name: str, count: int, hold: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", APPENDER, str(path), name, str(count), hold],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def test_acknowledged_entries_survive_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "trail.sqlite"
    acknowledged: set[str] = set()
    for n, lines in enumerate((1, 2, 5, 9, 14)):
        with appender(path, f"p{n}", 10_000) as child:
            assert child.stdout is not None
            told = list(itertools.islice(child.stdout, lines + 1))
            child.send_signal(signal.SIGKILL)
            told += list(child.stdout)
        assert child.returncode == -signal.SIGKILL
        # The last line may be cut in the middle.
        acknowledged |= {line.strip() for line in told if line.endswith("\n")} - {"ready"}
        rows = read_rows(path)
        assert not list(chain_damage(rows, "small"))
        assert acknowledged <= {key for _, key, _ in rows}
    assert len(acknowledged) > 30
    trail = Trail(path, "small")
    trail.append("close", "close", {})
    trail.verify_chain()
    trail.close()


def test_two_processes_keep_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "trail.sqlite"
    count = 40
    children = [appender(path, name, count, "hold") for name in "ab"]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        child.communicate(timeout=60)
        assert child.returncode == 0
    rows = read_rows(path)
    assert not list(chain_damage(rows, "small"))
    assert sorted(key for _, key, _ in rows) == sorted(
        f"{name}/{n}" for name in ("a", "b", "shared") for n in range(count)
    )
