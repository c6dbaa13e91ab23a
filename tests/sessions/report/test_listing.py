"""Many sessions at a glance: of a workspace, of a database, read again only where something changed."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from reviews.history.history import History
from reviews.trail.chain.envelope import payload_of, restore_entry
from reviews.trail.key_rotation import rotate
from reviews.trail.tables.postgres_table import begin_log
from reviews.trail.tables.trail_file import SCHEMA
from reviews.trail.trail import Trail
from sessions.commands.status import list_sessions
from sessions.pages.overview import overview, summary
from sessions.pages.report import session_list
from sessions.pages.report.session_list import INDEX, everywhere, list_overviews
from sessions.pages.view.places import Scope
from sessions.run.lease import lease
from specs.system.errors import UserError
from specs.trail.entry import GENESIS, Entry, EntryKind
from testing.factories.bodies import append_json, body_of
from testing.fixtures.view_client import Client

pytestmark = pytest.mark.integration


def begun(runs: Path, name: str, address: str | None = None) -> Trail:
    path = runs / name / "trail.sqlite"
    path.parent.mkdir(parents=True)
    if address is not None:
        begin_log(path, name, address)
    trail = Trail(path, name)
    append_json(trail, "open", "open", body_of("open"))
    append_json(trail, "plan", "plan/sft.1", body_of("plan"))
    return trail


def states(runs: Path) -> dict[str, str]:
    return {item.name: item.state for item in list_overviews(runs)}


@pytest.fixture(params=["file", "postgres"])
def address(request: pytest.FixtureRequest) -> str | None:
    return request.getfixturevalue("database") if request.param == "postgres" else None


def test_the_list_says_what_each_overview_says(tmp_path: Path, address: str | None) -> None:
    for name in ("c", "a", "b"):
        trail = begun(tmp_path, name, address)
        if name == "a":
            append_json(trail, "decision", "decision/sft.1", body_of("decision", outcome="escalate", reasons=["why"]))
        if name == "b":
            append_json(trail, "close", "close", body_of("close", decision="reject"))
        trail.close()
    (tmp_path / "no session").mkdir()
    overviews = list_overviews(tmp_path)
    assert overviews == [overview(tmp_path / name) for name in "abc"]
    assert [item.state for item in overviews] == ["waiting", "closed", "paused"]
    # Once more, from what was kept.
    assert list_overviews(tmp_path) == overviews
    with lease(tmp_path / "c"):
        assert states(tmp_path) == {"a": "waiting", "b": "closed", "c": "running"}
    assert states(tmp_path)["c"] == "paused"


SEVERAL: dict[EntryKind, list[dict[str, Any]]] = {
    "open": [{"reviewer": "person"}, {}],
    "plan": [{"escalate": True}, {}, {"stage": "dpo"}],
    "decision": [{"outcome": "escalate", "reasons": ["why"]}, {}, {"outcome": "reject"}],
    "amendment": [{"outcome": "reject"}, {}, {"outcome": "reject", "overridden": True}],
    "packet": [{}],
    "verdict": [{}],
    "human": [{}],
    "budget": [{}],
    "retraction": [{}],
    "spend": [{}],
    "close": [{}],
}


def test_head_and_tail_say_what_the_whole_trail_says(tmp_path: Path) -> None:
    """Of trails of chance, whatever order their entries have; only a verdict comes after its packet."""
    chance, shorter, states = random.Random(1), 0, set[tuple[str, str | None]]()
    for _ in range(300):
        kinds: list[EntryKind] = chance.choices(
            [kind for kind in SEVERAL if kind not in ("open", "close")], k=chance.randrange(25)
        )
        kinds = ["open", *kinds, *(["close"] if chance.random() < 0.5 else [])]
        if chance.random() < 0.2:
            chance.shuffle(kinds)
        rows: list[tuple[bytes, bytes]] = []
        for seq, kind in enumerate(kinds):
            requests = [index for index in range(seq) if kinds[index] == "packet"]
            at = chance.choice(requests) if kind == "verdict" and requests else seq
            key = kind if kind == "close" else f"{kind}/{at}"
            body = body_of(kind, **chance.choice(SEVERAL[kind]))
            entry = Entry(seq=seq, kind=kind, session="s", key=key, time_ns=str(seq), previous=GENESIS, body=body)
            rows.append((payload_of(entry), b"[]"))
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.text_factory = bytes
            connection.executescript(SCHEMA.replace("UNIQUE INDEX", "INDEX"))
            texts = [(seq, payload.decode(), "[]") for seq, (payload, _) in enumerate(rows)]
            connection.executemany("INSERT INTO entry VALUES (?, ?, ?)", texts)
            recorded_entries = session_list._read_state_entries(connection)  # pyright: ignore[reportPrivateUsage]
        whole = [restore_entry(*row) for row in rows]
        result, expected = (
            summary("s", tmp_path, History(entries), len(rows)) for entries in (recorded_entries, whole)
        )
        assert result == expected, kinds
        shorter += len(recorded_entries) < sum(kind != "spend" for kind in kinds)
        states.add((result.state, result.decision))
    assert shorter > 50
    assert states == {("paused", None), ("waiting", None), ("closed", "approve"), ("closed", "retracted")}


def test_only_what_changed_is_read_again(tmp_path: Path, address: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    trails = {name: begun(tmp_path, name, address) for name in "abc"}
    for trail in trails.values():
        trail.close()
    read: list[str] = []
    whole = session_list.summary

    def counted(name: str, *rest: object) -> object:
        read.append(name)
        return whole(name, *rest)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(session_list, "summary", counted)
    list_overviews(tmp_path)
    assert sorted(read) == ["a", "b", "c"]
    list_overviews(tmp_path)
    assert len(read) == 3
    again = Trail(trails["b"].path, "b")
    append_json(again, "close", "close", body_of("close", decision="reject"))
    # Also while it is open, and what was written lies in the log next to the file.
    assert states(tmp_path)["b"] == "closed" and read[3:] == ["b"]
    again.close()
    rotate(again.keys, [(trails["a"].path, "a")], "log", by="ada", reason="due", revoke=False)
    assert {item.name: item.entries for item in list_overviews(tmp_path)} == {"a": 3, "b": 3, "c": 2}


def test_what_was_kept_can_be_lost_or_damaged(tmp_path: Path) -> None:
    begun(tmp_path, "a").close()
    expected = list_overviews(tmp_path)
    (tmp_path / INDEX).write_bytes(b"no database at all, and long enough to look like one" * 40)
    assert list_overviews(tmp_path) == expected and list_overviews(tmp_path) == expected
    (tmp_path / INDEX).unlink()
    (tmp_path / INDEX).mkdir()
    assert list_overviews(tmp_path) == expected


def test_a_damaged_session_is_listed_as_damaged(tmp_path: Path) -> None:
    begun(tmp_path, "a").close()
    begun(tmp_path, "b").close()
    (tmp_path / "b" / "trail.sqlite").write_bytes(b"SQLite format 3" + bytes(5000))
    shutil.copytree(tmp_path / "a", tmp_path / "c")
    (tmp_path / "c" / "trail.postgres").write_text("{}", encoding="utf-8")
    assert states(tmp_path) == {"a": "paused", "b": "damaged", "c": "damaged"}


def test_a_closed_session_is_listed_as_damaged_if_its_file_is_not_as_it_was_sealed(tmp_path: Path) -> None:
    for name in ("a", "b", "c", "d"):
        trail = begun(tmp_path, name)
        append_json(trail, "close", "close", body_of("close"))
        if name != "d":
            trail.close()
    assert states(tmp_path) == dict.fromkeys("abcd", "closed")
    trail.close()
    with closing(sqlite3.connect(tmp_path / "b" / "trail.sqlite")) as changed, changed:
        changed.execute("DROP TRIGGER entry_is_final")
        changed.execute("UPDATE entry SET payload = replace(payload, '\"approve\"', '\"reject\"') WHERE seq = 2")
    (tmp_path / "c" / "trail.seal").unlink()
    (result,) = (item for item in list_overviews(tmp_path) if item.name == "b")
    assert (result.state, result.decision) == ("damaged", "reject") and "audit verify" in result.reasons[0]
    assert states(tmp_path) == {"a": "closed", "b": "damaged", "c": "damaged", "d": "closed"}
    # Between its last entry and its seal a session is still its owner's.
    with lease(tmp_path / "c"):
        assert states(tmp_path)["c"] == "closed"
    assert states(tmp_path)["c"] == "damaged"


def test_all_sessions_of_a_database_are_listed_wherever_they_are(
    tmp_path: Path, database: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("one", "two"):
        begun(tmp_path / folder, "same", database).close()
    begun(tmp_path / "one", "file").close()
    with lease(tmp_path / "two" / "same"):
        overviews = everywhere(tmp_path / "one")
    assert [item.name for item in overviews] == ["same", "same"]
    places = {str(item.path).rpartition(":")[2]: item.state for item in overviews}
    assert places == {str(tmp_path / "one" / "same"): "paused", str(tmp_path / "two" / "same"): "running"}
    list_sessions(tmp_path / "one", all_of_database=True)
    assert str(tmp_path / "two" / "same") in capsys.readouterr().out
    page = Client(Scope(tmp_path / "one", everywhere=True)).get("/").text
    assert page.count('href="/s/same/"') == 1 and page.count("<tr data-name") == 1 and page.count("data-state=") == 2
    assert all(f":{tmp_path / folder / 'same'}</span>" in page for folder in ("one", "two"))
    list_sessions(tmp_path / "one", as_json=True)
    assert [session["name"] for session in json.loads(capsys.readouterr().out)["sessions"]] == ["file", "same"]
    monkeypatch.delenv("PEERGATE_DATABASE")
    with pytest.raises(UserError, match="this workspace has no database"):
        everywhere(tmp_path / "one")
    assert states(tmp_path / "one") == {"file": "paused", "same": "damaged"}


def test_a_list_of_many_is_quick(tmp_path: Path) -> None:
    """A hundredth of what the figures list: a millisecond each the first time, a tenth of it later."""
    begun(tmp_path, "s000").close()
    for number in range(1, 100):
        shutil.copytree(tmp_path / "s000", tmp_path / f"s{number:03}")
    begin = time.process_time()
    assert len(list_overviews(tmp_path)) == 100
    first = time.process_time() - begin
    assert first < 100 * 0.05
    begin = time.process_time()
    assert len(list_overviews(tmp_path)) == 100
    assert time.process_time() - begin < 100 * 0.02
