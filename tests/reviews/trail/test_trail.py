from __future__ import annotations

import json
import math
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reviews.trail.chain.envelope import MAX_ENTRY_BYTES, EnvelopeSignature, pae, signatures_text
from reviews.trail.chain.keys import KeyFolder
from reviews.trail.chain.signed_head import parse_note
from reviews.trail.chain.tree import leaf_hash, root_of
from reviews.trail.file_seal import seal_path
from reviews.trail.integrity import TrailVerification, walk_trail
from reviews.trail.signing import signed_note
from reviews.trail.tables.open_table import read_entries, read_trail
from reviews.trail.tables.trail_file import StoredEntry
from reviews.trail.trail import Trail
from specs.system.digests import digest_bytes, digest_file
from specs.system.errors import AuditDamage, PeergateError, UserError
from specs.trail.entry import EMPTY_ROOT, GENESIS, Head
from specs.trail.key_policy import ROLES
from testing.factories.bodies import append_json, body_of
from testing.factories.forgery import Rows, chained, entries_of, keys_of, put, rows_of, signed
from testing.fixtures.reviewer_here import lenient

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
        append_json(trail, "spend", f"spend/{n}", body_of("spend", seconds=n))
    trail.close()
    return path


def count(trail: Trail) -> int:
    return len(list(trail.iterate()))


def damage_at(path: Path) -> list[str]:
    return walk_trail(read_trail(path)).damage


def copied(path: Path, folder: Path) -> Path:
    return Path(shutil.copy(path, folder / "trail.sqlite"))


# ---- appending and reading ----------------------------------------------------------------------------------


def test_entries_are_found_and_iterated_in_order(trail: Trail) -> None:
    first = append_json(trail, "open", "open", body_of("open"))
    second = append_json(trail, "spend", "reserve/a", body_of("spend", usd=1.5))
    third = append_json(trail, "decision", "decision/a.1", body_of("decision"))

    assert [entry.seq for entry in trail.iterate()] == [0, 1, 2]
    assert [entry.key for entry in trail.iterate("decision", "open")] == ["open", "decision/a.1"]
    assert trail.find("reserve/a") == second
    assert trail.find("reserve/b") is None
    envelopes = [row.envelope for row in rows_of(trail.path)]
    content, two, three = (leaf_hash(envelope) for envelope in envelopes)
    assert first.entry.previous == EMPTY_ROOT
    assert second.entry.previous == f"sha256:{content.hex()}"
    two_entries = sha256(b"\x01" + content + two)
    assert third.entry.previous == f"sha256:{two_entries.hexdigest()}"
    root = sha256(b"\x01" + two_entries.digest() + three).hexdigest()
    assert trail.head() == Head(size=3, digest=third.digest, root=f"sha256:{root}")
    assert [first.digest, second.digest, third.digest] == [digest_bytes(envelope) for envelope in envelopes]
    assert second.raw == body_of("spend", usd=1.5)


def test_an_empty_trail_has_the_genesis_head(trail: Trail) -> None:
    assert (trail.head().size, trail.head().digest) == (0, GENESIS)
    trail.verify_chain()


def test_the_first_body_of_a_key_wins(trail: Trail) -> None:
    first = append_json(trail, "grant", "grant/a", body_of("grant", attempt=1))
    again = append_json(trail, "grant", "grant/a", body_of("grant", attempt=2))
    assert again == first
    assert again.raw["attempt"] == 1
    assert count(trail) == 1


def test_a_key_keeps_its_kind(trail: Trail) -> None:
    append_json(trail, "grant", "grant/a", body_of("grant", attempt=1))
    with pytest.raises(PeergateError, match=r"'grant/a' is already a 'grant' entry, not 'launch'"):
        append_json(trail, "launch", "grant/a", body_of("launch"))
    assert count(trail) == 1


def test_an_entry_of_the_largest_size_fits_and_one_byte_more_does_not(trail: Trail) -> None:
    append_json(trail, "open", "open", body_of("open"))
    append_json(trail, "plan", "k40000", body_of("plan", reason="x" * 40_000))
    # Base64 takes four bytes for every three: from here on only a few more letters fit.
    first = room = 40_000 + (MAX_ENTRY_BYTES - len(rows_of(trail.path)[-1].envelope)) * 3 // 4 - 6
    while True:
        try:
            append_json(trail, "plan", f"k{room}", body_of("plan", reason="x" * room))
        except PeergateError as error:
            assert f"the limit is {MAX_ENTRY_BYTES}" in error.message
            break
        room += 1
    assert first < room < first + 20
    assert MAX_ENTRY_BYTES - 4 < len(rows_of(trail.path)[-1].envelope) <= MAX_ENTRY_BYTES
    assert trail.find(f"k{room}") is None
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
        pytest.param({1: 1}, id="key is not text"),
        pytest.param({"x": Path("a")}, id="no JSON type"),
        pytest.param({"x": nested(70)}, id="deeper than the limit"),
        pytest.param({"x": nested(700)}, id="deeper than readers go"),
        pytest.param({"x": nested(5000)}, id="deeper than the writer goes"),
    ],
)
def test_a_body_that_would_not_read_back_is_refused_and_nothing_is_recorded(trail: Trail, body: dict[str, Any]) -> None:
    append_json(trail, "open", "open", body_of("open"))
    with pytest.raises(ValueError, match="trail entry 'bad' is refused, it could not be read back as written"):
        append_json(trail, "plan", "bad", body_of("plan", changes=body))
    assert count(trail) == 1
    assert append_json(trail, "plan", "bad", body_of("plan", changes={"x": 1})).raw["changes"] == {"x": 1}
    trail.verify_chain()


@pytest.mark.parametrize("value", [2.0**53 - 1, -(2.0**53) + 1, 1e21, 5e-324, 1.7976931348623157e308, -0.0])
def test_floats_json_can_hold_are_kept(trail: Trail, value: float) -> None:
    assert append_json(trail, "plan", "float", body_of("plan", changes={"x": value})).raw["changes"] == {"x": value}
    entry = trail.find("float")
    assert entry is not None
    assert entry.raw["changes"] == {"x": value}
    trail.verify_chain()


@settings(max_examples=80, deadline=None)
@given(body=st.dictionaries(KEYS, ANY_JSON, max_size=4))
def test_any_json_is_either_kept_as_it_is_or_refused(many: Trail, body: dict[str, Any]) -> None:
    size = many.head().size
    key = f"k{size}"
    try:
        recorded = append_json(many, "plan", key, body_of("plan", changes=body))
    except ValueError:
        assert many.head().size == size
        assert many.find(key) is None
    else:
        assert many.find(key) == recorded
        assert recorded.raw["changes"] == body
        assert many.head().digest == recorded.digest
    many.verify_chain()


def test_a_clock_that_is_set_changes_no_time_of_a_trail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward for seconds, or back for good: entries are in order, and as far apart as they were written."""
    ticks, system = [0], [10**18]
    monkeypatch.setattr("specs.system.steady_clock.ticks_ns", lambda: ticks[0])
    monkeypatch.setattr("specs.system.steady_clock.time.time_ns", lambda: system[0])
    trail = Trail(tmp_path / "trail.sqlite", "small")
    append_json(trail, "workspace", "workspace", body_of("workspace"))
    for number, jump in enumerate((10**19, -(10**17), 0)):
        ticks[0] += 1000
        system[0] = 10**18 + jump
        append_json(trail, "spend", f"spend/{number}", body_of("spend"))
    # A process that begins while the clock is wrong goes on from the newest entry.
    system[0] = 10**17
    trail.close()
    later = Trail(tmp_path / "trail.sqlite", "small")
    append_json(later, "spend", "spend/3", body_of("spend"))
    ticks[0] += 1000
    append_json(later, "spend", "spend/4", body_of("spend"))
    times = [recorded.time_ns - 10**18 for recorded in later.iterate()]
    assert times == [0, 1000, 2000, 3000, 3000, 4000]
    later.verify_chain()
    later.close()


@pytest.mark.parametrize(
    ("statement", "output"),
    [("UPDATE entry SET payload = '{}'", "entries are final"), ("DELETE FROM entry WHERE seq = 0", "entries stay")],
)
def test_sqlite_refuses_to_change_or_delete_an_entry(trail: Trail, statement: str, output: str) -> None:
    append_json(trail, "open", "open", body_of("open"))
    with closing(sqlite3.connect(trail.path)) as other, pytest.raises(sqlite3.IntegrityError, match=output):
        other.execute(statement)
    trail.verify_chain()
    assert count(trail) == 1


# ---- damage -------------------------------------------------------------------------------------------------


def replaced(rows: Rows, position: int, **changes: Any) -> Rows:
    return [*rows[:position], rows[position]._replace(**changes), *rows[position + 1 :]]


def edited(rows: Rows, keys: KeyFolder) -> Rows:
    return replaced(rows, 2, payload=rows[2].payload.replace(b'"usd":0.5', b'"usd":0.4'))


def last_edited(rows: Rows, keys: KeyFolder) -> Rows:
    return replaced(rows, 5, payload=rows[5].payload.replace(b'"usd":0.5', b'"usd":0.4'))


def padded(rows: Rows, keys: KeyFolder) -> Rows:
    """Sign another spelling of the same statement."""
    payload = rows[5].payload.replace(b'"usd":0.5', b'"usd":0.50')
    signer = keys.signer("log")
    signature = EnvelopeSignature(signer.id, signer.sign(pae(payload)))
    return replaced(rows, 5, payload=payload, signatures=signatures_text(signature))


def unreadable(rows: Rows, keys: KeyFolder) -> Rows:
    return replaced(rows, 2, payload=b"{")


def first_deleted(rows: Rows, keys: KeyFolder) -> Rows:
    return rows[1:]


def middle_deleted(rows: Rows, keys: KeyFolder) -> Rows:
    return rows[:2] + rows[3:]


def middle_deleted_and_renumbered(rows: Rows, keys: KeyFolder) -> Rows:
    return [row._replace(seq=n) for n, row in enumerate(middle_deleted(rows, keys))]


def swapped(rows: Rows, keys: KeyFolder) -> Rows:
    return [*rows[:2], rows[3]._replace(seq=2), rows[2]._replace(seq=3), *rows[4:]]


def renumbered(rows: Rows, keys: KeyFolder) -> Rows:
    return [*rows[:3], *(row._replace(seq=row.seq + 1) for row in rows[3:])]


def replayed(rows: Rows, keys: KeyFolder) -> Rows:
    return [*rows, rows[2]._replace(seq=6)]


def unsigned(rows: Rows, keys: KeyFolder) -> Rows:
    return replaced(rows, 5, signatures=b"[]")


def signed_by_another_role(rows: Rows, keys: KeyFolder) -> Rows:
    return [*rows[:5], signed(entries_of(rows)[5], keys, "builder")]


def dated_before_the_one_before(rows: Rows, keys: KeyFolder) -> Rows:
    entries = entries_of(rows)
    earlier = str(int(entries[4].time_ns) - 1)
    return chained([entries[5].model_copy(update={"time_ns": earlier})], keys, stored_entries=rows[:5])


def date_that_is_no_number(rows: Rows, keys: KeyFolder) -> Rows:
    return chained([entries_of(rows)[5].model_copy(update={"time_ns": "yesterday"})], keys, stored_entries=rows[:5])


def of_another_session(rows: Rows, keys: KeyFolder) -> Rows:
    return chained([entries_of(rows)[5].model_copy(update={"session": "other"})], keys, stored_entries=rows[:5])


def without_policy(rows: Rows, keys: KeyFolder) -> Rows:
    first, *others = entries_of(rows)
    return chained([first.model_copy(update={"policy": None}), *others], keys)


def of_another_tree(rows: Rows, keys: KeyFolder) -> Rows:
    """Signed as it should be, but grown on another history."""
    entry = entries_of(rows)[5].model_copy(update={"previous": EMPTY_ROOT})
    return [*rows[:5], signed(entry, keys)]


def policy_slipped_in(rows: Rows, keys: KeyFolder) -> Rows:
    entries = entries_of(rows)
    return chained([entries[5].model_copy(update={"policy": entries[0].policy})], keys, stored_entries=rows[:5])


DAMAGE: dict[Callable[[Rows, KeyFolder], Rows], str] = {
    edited: r"entry 2 \(spend\): the signature of 'log' does not hold",
    last_edited: r"entry 5 \(spend\): the signature of 'log' does not hold",
    padded: r"entry 5: unreadable \(bytes are not in canonical form\)",
    unreadable: r"entry 2: unreadable",
    first_deleted: r"entry 0: says it is entry 1 'spend/1'",
    middle_deleted: r"entry 2: says it is entry 3 'spend/3', stored as 3",
    middle_deleted_and_renumbered: r"entry 2: says it is entry 3 'spend/3', stored as 2",
    swapped: r"entry 2: says it is entry 3 'spend/3', stored as 2",
    renumbered: r"entry 3: says it is entry 3 'spend/3', stored as 4",
    replayed: r"entry 6: says it is entry 2 'spend/2', stored as 6",
    unsigned: r"entry 5: is not signed",
    signed_by_another_role: r"entry 5 \(spend\): signed by 'builder', may be signed by log",
    dated_before_the_one_before: r"entry 5: is dated before the entry before it",
    date_that_is_no_number: r"entry 5: unreadable",
    of_another_session: r"entry 5: belongs to session 'other', not 'small'",
    without_policy: r"entry 0: holds no policy",
    of_another_tree: r"entry 5: names a different tree before it than the recorded tree",
    policy_slipped_in: r"entry 5: changes the policy, which cannot be: a 'spend' entry changes no keys",
}


@pytest.mark.parametrize("head", [True, False], ids=["head signed anew", "head left"])
@pytest.mark.parametrize(("tamper", "output"), DAMAGE.items(), ids=[item.__name__ for item in DAMAGE])
def test_tampering_with_entries_is_found(
    written: Path, tmp_path: Path, tamper: Callable[[Rows, KeyFolder], Rows], output: str, head: bool
) -> None:
    path = copied(written, tmp_path)
    assert not damage_at(path)
    rows, keys = rows_of(path), keys_of(written)
    changed = tamper(rows, keys)
    assert changed != rows, "the tampering changed nothing"
    put(path, changed, keys, head=head)
    results = damage_at(path)
    assert results
    assert re.match(output, results[0]), results

    trail = Trail(path, "small")
    with pytest.raises(AuditDamage, match=output):
        trail.verify_chain()
    trail.close()


@pytest.mark.parametrize(
    ("statement", "output"),
    [
        ("DELETE FROM head", "head: is gone"),
        ("UPDATE head SET size = 5", "head: is of 5 entries or another tree"),
        ("UPDATE head SET frontier = zeroblob(64)", "head: is of 6 entries or another tree"),
        ("UPDATE head SET note = replace(note, '6', '5')", "head: "),
        ("UPDATE head SET note = ''", "head: not a checkpoint note"),
    ],
)
def test_tampering_with_the_head_is_found(written: Path, tmp_path: Path, statement: str, output: str) -> None:
    path = copied(written, tmp_path)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(statement)
    assert any(text.startswith(output) for text in damage_at(path)), damage_at(path)


def test_a_head_that_the_log_did_not_sign_is_found(written: Path, tmp_path: Path) -> None:
    path = copied(written, tmp_path)
    strangers = KeyFolder(tmp_path / "strangers")
    strangers.create()
    put(path, rows_of(path), strangers)
    assert damage_at(path) == ["head: is not signed with the key of this log"]


def test_a_head_of_another_history_closes_the_trail(written: Path, tmp_path: Path) -> None:
    path = copied(written, tmp_path)
    strangers = KeyFolder(tmp_path / "strangers")
    strangers.create()
    put(path, rows_of(path), strangers)
    trail = Trail(path, "small")
    with pytest.raises(AuditDamage, match="head: is not signed with the key of this log"):
        trail.verify_chain()
    trail.close()


def test_what_contradicts_a_head_that_was_kept_is_reported(written: Path) -> None:
    rows = rows_of(written)
    walk = TrailVerification(session="small").go(rows)
    policy = walk.policy
    assert walk.digests == [digest_bytes(row.envelope) for row in rows] and policy is not None

    def check_note(size: int, root: bytes) -> list[str]:
        return walk.against(parse_note(signed_note(policy, size, root, keys_of(written)).encode()))

    assert check_note(6, walk.tree.root()) == [] == check_note(3, root_of(walk.leaves[:3]))
    assert check_note(3, bytes(32)) == ["the first 3 entries have another root: this is another history"]
    assert check_note(7, bytes(32)) == ["is of 7 entries, the trail has 6: entries were cut off"]


def test_what_follows_a_changed_entry_is_reported_once(written: Path) -> None:
    rows = rows_of(written)
    changed = StoredEntry(1, rows[1].payload.replace(b"0.5", b"0.4"), rows[1].signatures)
    damage = TrailVerification(session="small").go([rows[0], changed, *rows[2:]]).damage
    assert (
        damage[-1] == "entry 2: names a different tree before it than the recorded tree, and so do 3 entries after it"
    )


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_changed_byte_of_an_entry_is_found(written: Path, data: st.DataObject) -> None:
    """The last entry too: its signature covers it, where in a chain nothing would come after it."""
    rows = rows_of(written)
    position = data.draw(st.integers(0, len(rows) - 1))
    whole = bytearray(rows[position].envelope)
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    envelopes = [(row.seq, bytes(whole) if n == position else row.envelope) for n, row in enumerate(rows)]
    assert TrailVerification(session="small").go_through(envelopes).damage


@settings(max_examples=100, deadline=None)
@given(order=st.lists(st.integers(0, 5), max_size=8))
def test_only_a_beginning_of_the_trail_holds(written: Path, order: list[int]) -> None:
    rows = rows_of(written)
    whole = not TrailVerification(session="small").go([rows[n] for n in order]).damage
    assert whole == (order == list(range(len(order))))


def test_nothing_is_appended_after_an_entry_that_cannot_be_read(written: Path, tmp_path: Path) -> None:
    path = copied(written, tmp_path)
    put(path, replaced(rows_of(path), 5, payload=b"{}"))
    trail = Trail(path, "small")
    with pytest.raises(AuditDamage, match="is no longer a trail entry"):
        append_json(trail, "close", "close", body_of("close"))
    trail.close()
    assert len(rows_of(path)) == 6


def test_nothing_is_appended_to_a_trail_that_was_cut_back(written: Path, tmp_path: Path) -> None:
    path = copied(written, tmp_path)
    put(path, rows_of(path)[:4])
    trail = Trail(path, "small")
    with pytest.raises(AuditDamage, match="has 4 entries, its head is of 6"):
        append_json(trail, "close", "close", body_of("close"))
    trail.close()


def test_what_was_checked_is_checked_again_when_it_changes(written: Path, tmp_path: Path) -> None:
    path = copied(written, tmp_path)
    trail = Trail(path, "small")
    trail.verify_chain()
    trail.verify_chain()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DROP TRIGGER entry_is_final")
        database.execute("UPDATE entry SET payload = replace(payload, '0.5', '0.4') WHERE seq = 1")
    with pytest.raises(AuditDamage, match=r"entry 1 .* the signature of 'log' does not hold"):
        trail.verify_chain()
    trail.close()


def test_a_kind_of_a_newer_peergate_is_kept_and_reported(written: Path, tmp_path: Path) -> None:
    path = copied(written, tmp_path)
    rows, keys = rows_of(path), keys_of(written)
    newer = entries_of(rows)[5].model_copy(update={"kind": "séance", "key": "s/1", "version": 3})
    put(path, chained([newer], keys, stored_entries=rows), keys)
    walk = walk_trail(read_trail(path))
    assert not walk.damage
    assert ["kind 'séance', version 3, is newer" in note for note in walk.notes] == [True]
    assert read_entries(path)[-1].kind == "séance"


# ---- keys and roles -----------------------------------------------------------------------------------------


def test_every_kind_is_signed_by_its_role(trail: Trail) -> None:
    lenient(trail)
    for kind, key in (("open", "o"), ("plan", "p"), ("verdict", "v"), ("override", "h"), ("decision", "d")):
        append_json(trail, kind, key, body_of(kind))  # pyright: ignore[reportArgumentType]
    rows = trail.path
    walk = walk_trail(read_trail(rows))
    assert {role: count for (role, _), count in walk.signed.items()} == {
        "log": 2, "builder": 1, "reviewer": 1, "human": 1
    }  # fmt: skip
    assert walk.policy is not None and {key.role for key in walk.policy.keys} == set(ROLES)


def test_keys_lie_outside_the_run_folder_and_only_their_owner_reads_them(tmp_path: Path) -> None:
    trail = Trail(tmp_path / "runs" / "small" / "trail.sqlite", "small")
    append_json(trail, "open", "open", body_of("open"))
    trail.close()
    folder = tmp_path / "runs" / ".peergate" / "keys"
    assert sorted(path.name for path in folder.iterdir()) == sorted(f"{role}.pem" for role in ROLES)
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700
    for path in (tmp_path / "runs" / "small").rglob("*"):
        assert b"PRIVATE" not in path.read_bytes(), path


def test_a_key_that_others_can_read_signs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "runs" / "small" / "trail.sqlite"
    Trail(path, "small").close()
    keys = keys_of(path)
    keys.create()
    keys.path("log").chmod(0o640)
    trail = Trail(path, "small")
    with pytest.raises(UserError, match="mode 640, others can read it"):
        append_json(trail, "open", "open", body_of("open"))
    trail.close()
    assert not rows_of(path)


def test_a_copied_run_is_verified_but_not_continued_elsewhere(written: Path, tmp_path: Path) -> None:
    run = tmp_path / "elsewhere" / "run"
    run.mkdir(parents=True)
    path = copied(written, run)
    trail = Trail(path, "small")
    trail.verify_chain()
    with pytest.raises(UserError, match="the signing key 'log' cannot be read"):
        append_json(trail, "resume", "resume/1", body_of("resume"))
    assert not (tmp_path / "elsewhere" / ".peergate").exists(), "no key is made where a trail has its own"
    append_json(Trail(tmp_path / "elsewhere" / "new" / "trail.sqlite", "new"), "open", "open", body_of("open"))
    with pytest.raises(UserError, match=r"signs as 'log' with the key [0-9a-f]{16}, the trail's is"):
        append_json(trail, "resume", "resume/1", body_of("resume"))
    trail.close()
    assert len(rows_of(path)) == 6


def test_processes_that_begin_at_once_make_one_set_of_keys(tmp_path: Path) -> None:
    folders = [KeyFolder(tmp_path / "keys") for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(KeyFolder.create, folders))
    assert len({folder.signer("log").id for folder in folders}) == 1
    assert len(list((tmp_path / "keys").iterdir())) == len(ROLES)


# ---- the seal, and reading without writing ------------------------------------------------------------------


def test_closing_seals_the_file(tmp_path: Path) -> None:
    trail = Trail(tmp_path / "trail.sqlite", "small")
    last = append_json(trail, "open", "open", body_of("open"))
    trail.close()
    seal = json.loads((tmp_path / "trail.seal").read_bytes())
    assert seal == {"size": 1, "digest": last.digest, "file": digest_file(tmp_path / "trail.sqlite")}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["trail.seal", "trail.sqlite"]


def test_opening_and_closing_again_leaves_the_seal_true(written: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(written, tmp_path / "trail.sqlite"))
    Trail(path, "small").close()
    seal = json.loads(seal_path(path).read_bytes())
    assert (seal["size"], seal["file"]) == (6, digest_file(path))


def test_the_seal_stays_true_when_another_person_had_the_trail_open(tmp_path: Path) -> None:
    trail = Trail(tmp_path / "trail.sqlite", "small")
    append_json(trail, "open", "open", body_of("open"))
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
    assert [entry.key for entry in read_entries(folder / "trail.sqlite")] == [f"spend/{n}" for n in range(6)]
    assert snapshot(folder) == before
    folder.chmod(0o755)


def test_a_trail_someone_writes_can_be_read(trail: Trail) -> None:
    append_json(trail, "open", "open", body_of("open"))
    beside = sorted(path.name for path in trail.path.parent.iterdir())
    assert [entry.key for entry in read_entries(trail.path)] == ["open"]
    append_json(trail, "close", "close", body_of("close"))
    assert [entry.key for entry in read_entries(trail.path)] == ["open", "close"]
    assert sorted(path.name for path in trail.path.parent.iterdir()) == beside


def test_reading_a_trail_that_is_not_there_creates_nothing(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.DatabaseError):
        read_trail(tmp_path / "trail.sqlite")
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
from reviews.trail.tables.trail_file import StoredEntry
from reviews.trail.trail import Trail
from testing.factories.bodies import append_json, body_of

path, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
trail = Trail(path, "small")
print("ready", flush=True)
sys.stdin.readline()
for n in range(count):
    append_json(trail, "spend", f"{name}/{n}", body_of("spend", job=name))
    print(f"{name}/{n}", flush=True)
    append_json(trail, "spend", f"shared/{n}", body_of("spend", job=name))
"""


def appender(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", APPENDER, str(path), name, str(count)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )


def test_two_processes_keep_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "trail.sqlite"
    count = 40
    children = [appender(path, name, count) for name in "ab"]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        child.communicate(timeout=300)
        assert child.returncode == 0
    assert not damage_at(path)
    assert sorted(entry.key for entry in entries_of(rows_of(path))) == sorted(
        f"{name}/{n}" for name in ("a", "b", "shared") for n in range(count)
    )


def test_another_thread_does_not_read_what_may_be_taken_back(trail: Trail) -> None:
    """LangGraph writes checkpoints in threads of its own, and asks the trail before each whether it still may."""
    append_json(trail, "pause", "pause/1", {"by": "ada"})
    with ThreadPoolExecutor(1) as pool:
        futures: list[Future[list[str]]] = []
        with pytest.raises(KeyError), trail.alone():
            append_json(trail, "pause", "pause/2", {"by": "ada"})
            futures.append(pool.submit(lambda: [entry.key for entry in trail.iterate()]))
            assert not wait(futures, 0.2).done
            raise KeyError
        assert futures[0].result(10) == ["pause/1"]
