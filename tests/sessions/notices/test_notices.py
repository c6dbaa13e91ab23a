"""Notices: what is told once, to whom, over a real server; and that one that fails stops nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from reviews.reviewers.person import Person
from reviews.trail.tables.open_table import read_entries
from sessions.exports.notices.delivery import deliver
from sessions.exports.notices.notifier import EVERYWHERE, RECORD, Notifier
from sessions.session import Session
from specs.notices.notify import Notify
from testing.factories.bodies import append_json
from testing.fixtures.command_sessions import called
from testing.fixtures.hostile_trail import Critical
from testing.fixtures.quick_session import CostlyPlaybook, QuickLauncher, drive, open_quick, quick_session, rows_with
from tests.sessions.report.test_page_in_browser import Refuses

pytestmark = pytest.mark.integration


class Receiver:
    """A webhook on this machine: keeps what it gets, and answers as it is told to."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.status = 200
        self.silent = threading.Event()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if receiver.silent.is_set():
                    threading.Event().wait(2)
                receiver.requests.append(json.loads(body))
                self.send_response(receiver.status)
                self.send_header("location", "http://127.0.0.1:1/")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}/a-secret-path-7319"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def events(self) -> list[str]:
        return [row["event"] for row in self.requests]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()


def connect_receivers(
    session: Session, environ: dict[str, str], *receivers: Notify, within_s: float = 20.0
) -> list[str]:
    """Connect a session to receivers, as its wiring does; returns the lines that are said."""
    messages: list[str] = []
    spec = session.resolved.spec.model_copy(update={"notify": receivers})
    resolved = session.resolved.model_copy(update={"spec": spec})
    parts = (session.run, session.trail, session.store, resolved, messages.append)
    session.notify = Notifier(*parts, environ=environ, within_s=within_s).look
    return messages


def recorded(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / RECORD).read_text(encoding="utf-8").splitlines()]


def test_a_waiting_session_reports_it_once_with_the_commands_that_answer(tmp_path: Path, receiver: Receiver) -> None:
    run = open_quick(tmp_path)
    for _ in range(2):
        session = quick_session(run, reviewer=Critical())
        connect_receivers(session, {EVERYWHERE: receiver.address})
        drive(session)
    assert receiver.events() == ["waiting"]
    notice = receiver.requests[0]
    assert notice["session"] == "small" and "small: waits for a person" in notice["text"]
    assert any("--answer stop" in command for command in notice["commands"])
    # Neither an item nor an answer nor a reason of the gate is in it.
    heldout = (run / "store").rglob("*")
    assert "Write one line" in "".join(path.read_text(errors="ignore") for path in heldout if path.is_file())
    assert not any(words in json.dumps(notice) for words in ("Write one line", "said", "points at nothing"))
    assert [row["delivered"] for row in recorded(run)] == [True]


def test_a_command_states_who_the_environment_names(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_quick(tmp_path)
    drive(quick_session(run, reviewer=Critical()))
    monkeypatch.setenv(EVERYWHERE, receiver.address)
    done = called("resume", run, "--answer", "stop", "--reason", "enough")
    assert done.returncode == 3 and receiver.events() == ["closed"], done.stderr
    assert read_entries(run / "trail.sqlite")[-1].raw["decision"] == "stop"


def test_who_waits_for_a_verdict_for_money_or_for_nothing_any_more_says_so(tmp_path: Path, receiver: Receiver) -> None:
    judged = open_quick(tmp_path, ("reviewer: {vendor: checklist}", "reviewer: {vendor: person}"), name="judged")
    session = quick_session(judged, reviewer=Person())
    connect_receivers(session, {EVERYWHERE: receiver.address})
    drive(session)
    assert receiver.requests[0]["text"].startswith(
        "judged: waits for a person, for a verdict\npeergate review show judged"
    )
    short = open_quick(tmp_path, name="short")
    session = quick_session(short, builder=CostlyPlaybook())
    connect_receivers(session, {EVERYWHERE: receiver.address})
    drive(session)
    assert receiver.events() == ["waiting", "waiting"] and "peergate amend short" in receiver.requests[1]["text"]
    (short / "cancel").touch()
    session = quick_session(short)
    connect_receivers(session, {EVERYWHERE: receiver.address})
    drive(session, {"answer": "stop", "reason": "enough", "by": "ada", "expires": None})
    assert receiver.requests[2]["text"] == "short: closed: cancelled"


def test_rejection_and_close_are_reported_to_who_asked_for_them(tmp_path: Path, receiver: Receiver) -> None:
    run = open_quick(tmp_path)
    session = quick_session(run, reviewer=Refuses())
    connect_receivers(session, {"HOOK": receiver.address}, Notify(env="HOOK", on=("rejected", "closed")))
    drive(session)
    assert receiver.events() == ["rejected", "closed"]
    assert receiver.requests[0]["text"] == "small: the gate of tuned.1 rejects"
    assert receiver.requests[1]["text"] == "small: closed: reject"
    only = Notify(env="HOOK", on=("waiting",))
    session = quick_session(run)
    connect_receivers(session, {"HOOK": receiver.address}, only)
    session.notify()
    session.trail.close()
    assert len(receiver.requests) == 2


def test_shares_of_the_budget_are_reported_as_they_are_reached(tmp_path: Path, receiver: Receiver) -> None:
    run = open_quick(tmp_path)
    session = quick_session(run)
    connect_receivers(session, {EVERYWHERE: receiver.address})
    most = session.resolved.spec.budget.max_cost_usd
    for number, share in enumerate((0.3, 0.25, 0.01, 0.3, 0.2)):
        body = {"what": "settle", "job": f"small.base.{number}", "party": "job", "usd": most * share}
        spend(session, number, body)
        session.notify()
    session.trail.close()
    assert [row["text"].split(" %")[0] for row in receiver.requests] == ["small: 50", "small: 80", "small: 100"]


def spend(session: Session, number: int, body: dict[str, Any]) -> None:
    from testing.factories.bodies import body_of

    append_json(session.trail, "spend", f"spend/{number}", body_of("spend", **body))


def test_a_lost_job_is_reported(tmp_path: Path, receiver: Receiver) -> None:
    from testing.factories.bodies import body_of

    session = quick_session(open_quick(tmp_path))
    connect_receivers(session, {EVERYWHERE: receiver.address})
    append_json(session.trail, "lost", "lost/small.base.1", body_of("lost", stage="base", attempt=1))
    session.notify()
    session.trail.close()
    assert receiver.requests[0]["text"] == "small: the job of base.1 is lost: how it ended is unknown"


def test_a_receiver_that_fails_stops_nothing_and_is_recorded_without_its_address(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sessions.exports.notices.delivery.PAUSES_S", (0.0, 0.01))
    receiver.status = 302
    run = open_quick(tmp_path)
    session = quick_session(run, launcher=QuickLauncher(rows_with(12)))
    gone = "http://127.0.0.1:1/gone"
    messages = connect_receivers(
        session, {"HOOK": receiver.address, EVERYWHERE: gone}, Notify(env="HOOK"), Notify(env="UNSET")
    )
    drive(session)
    assert read_entries(run / "trail.sqlite")[-1].kind == "close"
    why = {row["to"]: row["why"] for row in recorded(run)}
    assert why == {"HOOK": "the server answered 302", "UNSET": "variable UNSET is not set", EVERYWHERE: "ConnectError"}
    assert len(messages) == len(recorded(run)) == 3
    text = "".join(messages) + (run / RECORD).read_text(encoding="utf-8")
    assert "a-secret-path" not in text and "gone" not in text
    # Each was tried again.
    assert receiver.events() == ["closed", "closed"]


def test_a_server_that_does_not_answer_is_waited_for_a_bounded_time(receiver: Receiver) -> None:
    receiver.silent.set()
    assert deliver(receiver.address, {"title": "t", "text": "x"}, 0.3) == "no answer within 0.3 s"


def test_a_trail_that_cannot_be_read_ends_no_session(tmp_path: Path, receiver: Receiver) -> None:
    session = quick_session(open_quick(tmp_path))
    messages = connect_receivers(session, {EVERYWHERE: receiver.address})
    session.trail.close()
    session.notify()
    assert len(messages) == 1 and messages[0].startswith("notices: ") and receiver.requests == []


def test_a_key_is_masked_in_a_notice(tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "waits-for-a-person-88231")
    monkeypatch.setattr("sessions.exports.notices.news.DESIGN", "waits-for-a-person-88231")
    session = quick_session(open_quick(tmp_path))
    connect_receivers(session, {EVERYWHERE: receiver.address})
    from testing.factories.bodies import body_of

    append_json(
        session.trail, "decision", "decision/design.9", body_of("decision", stage=None, attempt=9, outcome="reject")
    )
    session.notify()
    session.trail.close()
    assert "88231" not in json.dumps(receiver.requests) and "SOME_API_KEY" in json.dumps(receiver.requests)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_apprise_delivers_to_its_own_addresses(receiver: Receiver) -> None:
    pytest.importorskip("apprise", reason="apprise is not installed (the extra 'notify')")
    address = receiver.address.replace("http://", "json://")
    assert deliver(address, {"title": "Peergate", "text": "closed"}) == ""
    assert receiver.requests[0]["message"] == "closed"
    assert deliver("no address", {"title": "t", "text": "x"}, 20) == "apprise reads no address in it"
