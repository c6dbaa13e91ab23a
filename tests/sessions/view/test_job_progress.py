"""The job that runs now and who is at work, by the trail and the job's own words, which may be anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry
from sessions.commands.status import job_in_words
from sessions.jobs.launcher import job_folder
from sessions.pages.view.job_progress import MOST_CURVES, progress_of, running_job, running_key
from sessions.pages.view.waits import busy_with
from testing.factories.bodies import append_json, body_of
from testing.factories.sessions_on_disk import OnDisk, open_session
from testing.fixtures.reviewer_here import lenient

KEY = "small.base.1"


@pytest.fixture
def session(tmp_path: Path) -> OnDisk:
    return open_session(tmp_path)


def entries(session: OnDisk) -> list[RecordedEntry]:
    return list(session.trail.iterate())


def write_log(session: OnDisk, *lines: str | dict[str, Any], key: str = KEY) -> Path:
    folder = job_folder(session.run, key)
    folder.mkdir(parents=True)
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    (folder / "progress.jsonl").write_text(text, encoding="utf-8")
    return folder


def at(done: int, **more: Any) -> dict[str, Any]:
    return {"time": 100.0 + 2 * done, "done": done, "total": 10, "unit": "steps"} | more


def test_the_status_says_how_far_the_job_is_and_who_synchronised() -> None:
    note = {"synchronised": 2.0, "replicas": "0,1", "seconds": 0.01, "bytes": 4096.0}
    job = {"stage": "train", "attempt": "1", "witness": False, "done": 8, "total": 10, "unit": "steps", "note": note}
    assert job_in_words(job) == "job: 8 of 10 steps, synchronised 2, replicas 0,1, seconds 0.01, bytes 4096"
    assert job_in_words(job | {"witness": True, "note": {}}) == "witness: 8 of 10 steps"


def test_a_job_runs_from_its_launch_to_its_end(session: OnDisk) -> None:
    assert running_key(History(entries(session))) is None
    append_json(session.trail, "launch", f"launch/{KEY}", body_of("launch", key=KEY, stage="base", attempt=1))
    assert running_key(History(entries(session))) == KEY
    append_json(session.trail, "exit", f"exit/{KEY}", body_of("exit", key=KEY, stage="base", attempt=1))
    assert running_key(History(entries(session))) is None
    append_json(session.trail, "challenge", "challenge/base.1", body_of("challenge", stage="base", attempt=1))
    results = running_job(session.run, History(entries(session)))
    assert results is not None and (results["stage"], results["attempt"], results["witness"]) == ("base", "1", True)


def test_the_time_left_is_by_the_speed_since_the_first_line(session: OnDisk) -> None:
    append_json(session.trail, "launch", f"launch/{KEY}", body_of("launch", key=KEY, stage="base", attempt=1))
    write_log(session, at(1, note={"loss": 2.0}), at(4, note={"loss": 1.0, "other": "x"}))
    results = running_job(session.run, History(entries(session)))
    assert results is not None
    assert (results["done"], results["total"], results["left"], results["noted"]) == (4, 10, 12.0, {"loss": [2.0, 1.0]})


def test_lines_that_are_none_are_left_out(session: OnDisk) -> None:
    folder = write_log(session, "{", "[]", '{"done": "x"}', at(2), '{"time": 1e999}', "\x00")
    with (folder / "progress.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(at(3)))
    # The last line has not ended yet.
    assert [progress.done for progress in progress_of(folder)] == [2]


def test_a_link_in_the_place_of_the_file_is_not_followed(session: OnDisk, tmp_path: Path) -> None:
    folder = write_log(session, at(2))
    (folder / "progress.jsonl").rename(tmp_path / "elsewhere")
    (folder / "progress.jsonl").symlink_to(tmp_path / "elsewhere")
    assert progress_of(folder) == []


def test_no_job_draws_more_curves_than_a_page_has_room_for(session: OnDisk) -> None:
    append_json(session.trail, "launch", f"launch/{KEY}", body_of("launch", key=KEY, stage="base", attempt=1))
    write_log(session, at(1, note={f"n{index}": float(index) for index in range(50)}))
    results = running_job(session.run, History(entries(session)))
    assert results is not None and list(results["noted"]) == [f"n{index}" for index in range(MOST_CURVES)]


def test_who_is_at_work_follows_from_the_newest_entry(session: OnDisk) -> None:
    place = {"stage": "base", "attempt": 1}
    lenient(session.trail)
    steps: list[tuple[Any, str, dict[str, Any], str]] = [
        ("call", "call/base.1/plan.1", place, "the builder of base.1"),
        ("plan", "plan/base.1", place, ""),
        ("launch", f"launch/{KEY}", place | {"key": KEY}, "the job of base.1"),
        ("exit", f"exit/{KEY}", place | {"key": KEY}, ""),
        ("challenge", "challenge/base.1", place, "a witness of base.1"),
        ("witness", "witness/base.1", place, ""),
        ("packet", "packet/base.1", place, "the reviewer of base.1"),
        ("verdict", "verdict/base.1", place, ""),
    ]
    for kind, key, body, busy in steps:
        append_json(session.trail, kind, key, body_of(kind, **body))
        assert busy_with(History(entries(session))) == busy, kind
