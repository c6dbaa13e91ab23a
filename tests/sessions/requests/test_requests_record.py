"""Several appends as one, requests next to a running orchestrator, and hours that no one worked."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from reviews.audit.verify import verify_run
from reviews.requests import request_record
from reviews.trail.trail import Trail
from sessions.pages.overview import find_runs
from sessions.pages.report.consult_context import ConsultContext
from sessions.requests.review_functions import ask_review
from sessions.run.money.ledger import REQUESTED, balance_of
from sessions.run.run_layout import run_folder, trail_name
from specs.session.design import Budget
from specs.system.errors import AuditDamage, UserError
from specs.trail.requested_review import QuestionRequest
from testing.factories.bodies import append_json, body_of
from testing.factories.small_run import small_run

TRIVIAL = QuestionRequest(topic="log", question="Which name for the file?", kind="trivial")


def test_what_is_appended_together_is_recorded_together_or_not_at_all(tmp_path: Path) -> None:
    trail = Trail(tmp_path / "run" / "trail.sqlite", "s")
    append_json(trail, "open", "open", body_of("open"))
    with pytest.raises(RuntimeError), trail.alone():
        append_json(trail, "question", "question/1", body_of("question"))
        with trail.alone():
            append_json(trail, "question", "question/2", body_of("question", number=2))
        raise RuntimeError
    assert [entry.key for entry in trail.iterate()] == ["open"]
    with trail.alone():
        append_json(trail, "question", "question/1", body_of("question"))
        append_json(trail, "question", "question/2", body_of("question", number=2))
    assert [entry.key for entry in trail.iterate()] == ["open", "question/1", "question/2"]
    trail.verify_chain()
    trail.close()


@pytest.mark.parametrize("same_object", [True, False])
def test_no_one_appends_between_what_belongs_together(tmp_path: Path, same_object: bool) -> None:
    trail = Trail(tmp_path / "run" / "trail.sqlite", "s")
    other = trail if same_object else Trail(tmp_path / "run" / "trail.sqlite", "s")
    inside = threading.Event()

    def append() -> None:
        inside.wait()
        append_json(other, "pause", "pause/1", body_of("pause"))

    thread = threading.Thread(target=append)
    thread.start()
    with trail.alone():
        append_json(trail, "question", "question/1", body_of("question"))
        inside.set()
        time.sleep(0.2)
        append_json(trail, "answer", "answer/1", body_of("answer"))
    thread.join()
    assert [entry.key for entry in trail.iterate()] == ["question/1", "answer/1", "pause/1"]
    trail.verify_chain()


def test_a_request_next_to_a_running_orchestrator_harms_neither(tmp_path: Path) -> None:
    run = small_run(tmp_path / "runs", closed=False)
    orchestrator = Trail(run / "trail.sqlite", "small")
    append_json(orchestrator, "resume", "resume/1", body_of("resume", by="me"))
    done = ask_review(TRIVIAL, ConsultContext(runs=tmp_path / "runs", session="small"))
    assert done.error is None
    orchestrator.verify_chain()
    append_json(orchestrator, "pause", "pause/1", {"by": "me"})
    orchestrator.close()
    keys = [entry.key for entry in Trail(run / "trail.sqlite", "small").iterate()]
    assert keys[-4:] == ["resume/1", "question/1", "answer/1", "pause/1"]
    audit = verify_run(run, "trail.sqlite", "store")
    assert (audit.exit_code, audit.damage) == (2, [])


def test_hours_are_those_of_the_orchestrator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was killed after two hours; what others record eight hours later is not work of the session's."""
    hour = 3600 * 10**9
    clock = [0]
    monkeypatch.setattr("specs.system.steady_clock.ticks_ns", lambda: clock[0])
    trail = Trail(tmp_path / "run" / "trail.sqlite", "s")
    budget = Budget(max_cost_usd=1, machine_usd_per_hour=0, max_hours=24)
    for hours, kind, key in ((0, "open", "open"), (2, "plan", "plan/a.1")):
        clock[0] = hours * hour
        append_json(trail, kind, key, body_of(kind))  # type: ignore[arg-type]
    clock[0] = 10 * hour
    append_json(trail, "question", "question/1", body_of("question"))
    key = f"{REQUESTED}1"
    append_json(
        trail,
        "spend",
        f"reserve/{key}",
        {"what": "reserve", "job": key, "party": "reviewer", "stage": "requests", "usd": 0.1},
    )
    append_json(trail, "answer", "answer/1", body_of("answer"))
    append_json(trail, "override", "override/1", body_of("override"))
    assert balance_of(list(trail.iterate()), budget).hours == 2
    clock[0] = 11 * hour
    append_json(trail, "resume", "resume/1", body_of("resume"))
    clock[0] = 12 * hour
    append_json(trail, "plan", "plan/a.2", body_of("plan"))
    assert balance_of(list(trail.iterate()), budget).hours == 3


def test_a_folder_of_requests_is_no_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = ask_review(TRIVIAL, ConsultContext()).folder
    assert find_runs(Path("runs")) == [] and run_folder(Path("reviews")) == folder
    assert (trail_name(folder), trail_name(tmp_path)) == (request_record.TRAIL, "trail.sqlite")


def test_a_session_that_is_called_like_the_folder_is_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    small_run(tmp_path / "x", closed=False).rename(tmp_path / "reviews")
    with pytest.raises(UserError, match="is a session, not a folder of requested reviews"):
        ask_review(TRIVIAL, ConsultContext(runs=tmp_path))
    assert not (tmp_path / "reviews" / request_record.TRAIL).exists()


def test_nothing_is_added_to_a_trail_that_was_changed(tmp_path: Path) -> None:
    folder = ask_review(TRIVIAL, ConsultContext(runs=tmp_path)).folder
    path = folder / request_record.TRAIL
    data = path.read_bytes()
    assert data.count(b'"topic":"log"') == 1
    path.write_bytes(data.replace(b'"topic":"log"', b'"topic":"gol"'))
    with pytest.raises(AuditDamage):
        ask_review(TRIVIAL, ConsultContext(runs=tmp_path))
    assert verify_run(folder, request_record.TRAIL, "store").exit_code == 1
