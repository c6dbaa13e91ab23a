"""A reviewer that gives no verdict, over the real wire: the cause is on record and named wherever a person looks."""

from __future__ import annotations

import io
import json
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from reviews.audit.verify import verify_run
from reviews.evidence.readable_evidence import MOST_ANSWER
from reviews.gate.panel import ReviewPanel
from reviews.history.history import History
from reviews.reviewers.process import messages
from reviews.reviewers.process.client import ReviewerProcess
from reviews.reviewers.vendors.looking import MOST_CALLS
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.commands.cli import app
from sessions.pages.report.live_display import Terminal
from sessions.pages.report.trail_page import trail_page
from sessions.requests.lookups import may_look
from sessions.runtime.wiring import make_reviewer
from sessions.session import Session
from specs.system.vendors import http_exchange
from specs.system.vendors.parties import LOOKS
from specs.trail.verdict import HELP, Cause, Packet
from testing.factories.bodies import append_json
from testing.factories.evidence_on_disk import evidence_of
from testing.fixtures.loopback_api import (
    ANTHROPIC,
    OPENAI,
    Api,
    ReceivedRequest,
    Step,
    answered,
    failed,
    loopback_api,
    refused,
    truncated,
)
from testing.fixtures.model_answers import ANSWER
from testing.fixtures.quick_session import drive, open_quick, quick_session
from testing.fixtures.reviewer_here import ReviewerHere
from testing.fixtures.scripted_builder import Call, Reply, turn_step
from tests.reviews.gate.test_packet import packet_of
from tests.reviews.reviewers.test_reviewer_process import send
from tests.reviews.reviewers.test_vendors import KEY, ask, reviewer_at
from tests.sessions.report.test_trail_page import Page

pytestmark = pytest.mark.integration

MODELS = {OPENAI: "gpt-5-mini", ANTHROPIC: "claude-opus-5"}
FREE = "usd_per_million_tokens: {input: 0, output: 0}"
Fault = Callable[[str], Step]
FAULTS: dict[str, tuple[Fault, Cause, str]] = {
    "401": (lambda vendor: failed(vendor, 401), "key_refused", "the model's server answered 401 (key refused)"),
    "403": (lambda vendor: failed(vendor, 403), "key_refused", "the model's server answered 403 (not allowed)"),
    "404": (lambda vendor: failed(vendor, 404), "request_refused", "the model's server answered 404"),
    "429": (lambda vendor: failed(vendor, 429), "rate_limited", "the model's server answered 429"),
    "500": (lambda vendor: failed(vendor, 500), "server_error", "the model's server answered 500"),
    "redirect": (lambda vendor: Step(b"", 302, {"location": "/"}), "request_refused", "server answered 302"),
    "timeout": (lambda vendor: Step(hang_s=60), "timed_out", "did not answer in time"),
    "cut": (lambda vendor: Step(b'{"a": 1', cut=True), "cut_off", "was cut off"),
    "no JSON": (lambda vendor: Step(b"{"), "malformed", "not in the form of the API"),
    "truncated": (lambda vendor: truncated(vendor, json.dumps(ANSWER)), "incomplete", "the answer is incomplete"),
    "refusal": (refused, "refused", "the model refused"),
    "half a verdict": (
        lambda vendor: answered(vendor, json.dumps(ANSWER)[:-20]),
        "out_of_schema",
        "the answer does not fit the schema",
    ),
    "prose": (lambda vendor: answered(vendor, "I approve."), "out_of_schema", "the answer does not fit the schema"),
    "empty": (lambda vendor: answered(vendor, ""), "out_of_schema", "the answer is empty"),
    "three megabytes": (lambda vendor: answered(vendor, "x" * 3_000_000), "out_of_schema", "does not fit the schema"),
    # Of calls only a session can be asked: without tools to look with nothing is called.
    "calls without end": (
        lambda vendor: turn_step(vendor, Reply(calls=(Call("rm", {}, "c1"),)), {"model": MODELS[vendor]}),
        "out_of_schema",
        "the answer calls tools although nothing more can be looked up",
    ),
    "two calls of one name": (
        lambda vendor: turn_step(vendor, Reply(calls=(Call("grep", {}, "c1"),) * 2), {"model": MODELS[vendor]}),
        "malformed",
        "the answer calls tools under names that cannot be answered",
    ),
}


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    monkeypatch.setattr(http_exchange, "BACKOFF_S", 0.01)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    with loopback_api() as running:
        point_at(monkeypatch, running.address)
        yield running


@pytest.fixture
def packet(tmp_path: Path) -> Packet:
    return packet_of(evidence_of(tmp_path, "sample"))


def point_at(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    for vendor in MODELS:
        monkeypatch.setitem(http_exchange.ADDRESSES, vendor, address)


def reviewer(vendor: str, timeout_s: int = 60) -> str:
    effort = f"{{timeout_s: {timeout_s}, max_cost_usd: 0.5, reasoning: not_sent}}"
    efforts = ", ".join(f"{tier}: {effort}" for tier in ("low", "medium", "high"))
    return f"{{vendor: {vendor}, model: {MODELS[vendor]}, effort: {{{efforts}}}, outage_s: 0, {FREE}}}"


def judged_by(folder: Path, who: str) -> tuple[Session, io.StringIO]:
    """Open a quick session at a terminal, with a reviewer that is asked over the wire."""
    return at_a_terminal(open_quick(folder, ("reviewer: {vendor: checklist}", who)))


def at_a_terminal(run: Path) -> tuple[Session, io.StringIO]:
    screen = io.StringIO()
    session = quick_session(run, display=Terminal(Console(file=screen, width=4000)))
    trail, spec = session.trail, session.resolved.spec
    process = ReviewerHere(run.name, spec.reviewers(), trail.keys.path("reviewer"))
    session.reviewing = trail.reviewer = process
    session.__dict__["reviewer"] = make_reviewer(spec, process)
    return session, screen


def peergate(*arguments: str | Path) -> str:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


def one_entry(run: Path, key: str) -> RecordedEntry:
    (entry,) = [recorded_entry for recorded_entry in read_entries(run / "trail.sqlite") if recorded_entry.key == key]
    return entry


def everywhere(run: Path, at: str) -> dict[str, str]:
    """Return what a person sees of a session that waits at a gate, by place."""
    runs, entries, store = run.parent, read_entries(run / "trail.sqlite"), Store(run / "store")
    page = Page(trail_page(History(entries, store)))
    return {
        "status": peergate("status", "small", "--runs", runs),
        "report.md": peergate("report", "small", "--runs", runs),
        "report.json": json.dumps(json.loads(peergate("report", "small", "--runs", runs, "--json"))["why"]),
        "transcript": peergate("transcript", run),
        "transcript --json": peergate("transcript", run, "--json"),
        "audit show": peergate("audit", "show", run, f"verdict/{at}"),
        "audit show decision": peergate("audit", "show", run, f"decision/{at}"),
        "audit log": peergate("audit", "log", run),
        "page": " ".join(" ".join(page.text).split()),
        "question": "\n".join(one_entry(run, f"decision/{at}").raw["reasons"]),
    }


def check_told(run: Path, screen: str, at: str, cause: Cause, message: str) -> None:
    """Check that the trail and every view name the cause and what helps, and none speaks of a refusal to approve."""
    judged = one_entry(run, f"verdict/{at}")
    verdict = Store(run / "store").get_value(judged.raw["verdict"])
    assert judged.raw["cause"] == verdict["no_verdict"]["cause"] == cause and not verdict["approve"]
    assert message in judged.raw["error"]
    views = {"terminal": screen} | everywhere(run, at)
    for place, text in views.items():
        # Markdown and JSON put backslashes before some characters.
        output = text.replace("\\", "")
        assert "no verdict" in output or "no_verdict" in output, (place, output)
        assert message in output, (place, output)
        assert "cites nothing that blocks" not in output, place
    for place in ("terminal", "status", "report.md", "report.json", "transcript", "question", "page"):
        assert HELP[cause] in views[place].replace("\\", ""), (place, views[place])


@pytest.mark.parametrize("vendor", [OPENAI, ANTHROPIC])
@pytest.mark.parametrize("name", [name for name in FAULTS if "calls" not in name])
def test_the_cause_of_a_fault_is_known(
    api: Api, packet: Packet, monkeypatch: pytest.MonkeyPatch, vendor: str, name: str
) -> None:
    fault, cause, message = FAULTS[name]
    api.steps = [fault(vendor)]
    error = ask(reviewer_at(api, vendor, monkeypatch, timeout_s=1 if cause == "timed_out" else 20), packet).error
    assert error is not None and error.cause == cause and message in error.message


OFTEN = {
    ("401", OPENAI): "more",
    ("timeout", OPENAI): "",
    ("truncated", ANTHROPIC): "more",
    ("half a verdict", ANTHROPIC): "",
}
"""What is followed through a session by `make test` or `make test-more`: the server's answer, none, one that is not
whole, one of no form."""
CASES = [
    pytest.param(name, vendor, marks=[getattr(pytest.mark, mark)] if mark else [])
    for name in FAULTS
    for vendor in MODELS
    for mark in [OFTEN.get((name, vendor), "slow")]
]


@pytest.mark.parametrize(("name", "vendor"), CASES)
def test_the_cause_is_named_everywhere_at_the_design_and_at_a_stage(
    api: Api, tmp_path: Path, vendor: str, name: str
) -> None:
    fault, cause, message = FAULTS[name]
    api.steps = [fault(vendor)]
    # Where silence is the fault it is waited for; a loaded machine takes seconds for a healthy answer.
    who = reviewer(vendor, 3 if cause == "timed_out" else 60)
    session, screen = judged_by(tmp_path, f"reviewer: {who}")
    drive(session)
    check_told(session.run, screen.getvalue(), "design.1", cause, message)
    # Asked once more the reviewer approves the design, and fails again at the first stage.
    api.steps = [answered(vendor, json.dumps(ANSWER)), fault(vendor)]
    again, later = at_a_terminal(session.run)
    drive(again, {"answer": "retry", "reason": "it works again", "by": "ada", "expires": None})
    check_told(session.run, later.getvalue(), "base.1", cause, message)
    assert KEY not in screen.getvalue() + later.getvalue()
    assert not verify_run(session.run, "trail.sqlite", "store").damage


def test_a_model_that_does_not_approve_is_still_reported_as_that(api: Api, tmp_path: Path) -> None:
    """The control: an answer that approves nothing is a verdict."""
    api.steps = [answered(OPENAI, json.dumps(ANSWER | {"approve": False}))]
    session, screen = judged_by(tmp_path, f"reviewer: {reviewer(OPENAI)}")
    drive(session)
    assert "does not approve and cites nothing that blocks" in screen.getvalue()
    assert "no verdict" not in screen.getvalue()
    judged = one_entry(session.run, "verdict/design.1").raw
    assert judged["error"] == "" and judged.get("cause") is None


@pytest.mark.parametrize("vendor", [OPENAI, ANTHROPIC])
def test_a_server_that_is_not_there(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vendor: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    point_at(monkeypatch, f"http://127.0.0.1:{port}")
    session, screen = judged_by(tmp_path, f"reviewer: {reviewer(vendor)}")
    drive(session)
    message = "the model's server was not reached"
    check_told(session.run, screen.getvalue(), "design.1", "unreachable", message)


def test_a_panel_without_its_quorum_names_each_member_that_is_missing(api: Api, tmp_path: Path) -> None:
    api.steps = [failed(OPENAI, 401), failed(ANTHROPIC, 500)]
    members = f"panel:\n  members: [{reviewer(OPENAI)}, {reviewer(ANTHROPIC)}, {{vendor: checklist}}]\n  quorum: 2"
    session, screen = judged_by(tmp_path, members)
    drive(session)
    message = "1 of 3 members of the panel gave a verdict, 2 required"
    check_told(session.run, screen.getvalue(), "design.1", "no_quorum", message)
    for text in ("openai:gpt-5-mini: the model's server answered 401 (key refused)", "answered 500 (server error)"):
        assert text in screen.getvalue() and text in peergate("status", "small", "--runs", session.run.parent)
    assert one_entry(session.run, "verdict/design.1/1").raw["cause"] == "key_refused"


@pytest.mark.more
def test_each_member_of_a_panel_looks_things_up_at_every_gate(api: Api, tmp_path: Path) -> None:
    def step(request: ReceivedRequest) -> Step:
        vendor, body = ANTHROPIC if request.path.endswith("messages") else OPENAI, request.value()
        if "answer 1: " in request.body.decode() or "answer 2: " in request.body.decode():
            return answered(vendor, json.dumps(ANSWER))
        name = "rows" if "\\nrows: what the attempt left" in request.body.decode() else "data.prompts"
        query = Call("query_rows", {"name": name, "limit": 2}, "call_1")
        return turn_step(vendor, Reply(calls=(query,), usage=(900, 50, 0, 0)), body)

    api.steps = [step]
    members = f"panel:\n  members: [{reviewer(OPENAI)}, {reviewer(ANTHROPIC)}]\n  quorum: 2"
    session, _ = judged_by(tmp_path, members)
    drive(session)
    every = read_entries(session.run / "trail.sqlite")
    looks = {entry.key: entry.raw for entry in every if entry.kind == "look"}
    gates = {key.rpartition("/")[0].partition("/")[2] for key in looks}
    assert gates == {"design.1", "base.1", "sample.1", "train.1", "tuned.1", "ship.1"}
    for gate in gates:
        for number, who in enumerate(("openai:gpt-5-mini", "anthropic:claude-opus-5"), 1):
            look, judged = looks[f"look/{gate}/{number}"], one_entry(session.run, f"verdict/{gate}/{number}").raw
            assert look["reviewer"] == judged["reviewer"] == who and not look["is_error"]
            assert judged["looked"] == [{"entry": f"look/{gate}/{number}", "answer": look["answer"]}]
    text = Store(session.run / "store").get(looks["look/base.1/1"]["answer"]).decode()
    assert '"output": {"characters": ' in text
    assert not verify_run(session.run, "trail.sqlite", "store").damage


def test_a_process_that_looks_on_and_on_is_stopped(api: Api, tmp_path: Path) -> None:
    session, _ = judged_by(tmp_path, f"reviewer: {reviewer(OPENAI)}")
    append_json(
        session.trail, "packet", "packet/design.1", {"stage": "design", "attempt": 1, "packet": "sha256:" + "0" * 64}
    )
    look = messages.Look(tool="grep", arguments='{"text": "owl"}', most=10**9)
    who = session.reviewer
    assert not isinstance(who, ReviewPanel)
    with may_look(session, "design", 1, "sha256:" + "0" * 64, who):
        for _ in range(LOOKS * MOST_CALLS):
            assert len(session.reviewing.look(look).text.encode()) <= MOST_ANSWER
        with pytest.raises(ValueError, match="it looks up more than 4 answers"):
            session.reviewing.look(look)
    assert len(list(session.trail.iterate("look"))) == LOOKS * MOST_CALLS
    with pytest.raises(ValueError, match="lookups are not available"):
        session.reviewing.look(look)


@pytest.mark.apart
def test_a_killed_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reviewer's own process, in its walls, is killed while its model thinks."""
    monkeypatch.setenv("PEERGATE_REVIEWER_KEY", KEY)
    with loopback_api() as api:
        who = f'{{vendor: openai, model: tiny, base_url: "{api.address}", {FREE}}}'
        run = open_quick(tmp_path, ("reviewer: {vendor: checklist}", f"reviewer: {who}"))
        screen = io.StringIO()
        session = quick_session(run, display=Terminal(Console(file=screen, width=4000)))
        spec = session.resolved.spec
        process = ReviewerProcess("small", spec.reviewers(), session.trail.keys.path("reviewer"), run)
        session.reviewing = session.trail.reviewer = process
        session.__dict__["reviewer"] = make_reviewer(spec, process)

        def kill(_: Any) -> Step:
            send(process, signal.SIGKILL)
            return Step(hang_s=5)

        api.steps = [kill]
        drive(session)
        process.close()
    check_told(run, screen.getvalue(), "design.1", "process_lost", "the reviewer's process gave no answer")


def test_a_cap_that_pays_for_no_review(api: Api, tmp_path: Path) -> None:
    """A cap that does not pay for the request: nothing is sent."""
    api.steps = [answered(OPENAI, json.dumps(ANSWER))]
    efforts = ", ".join(
        f"{tier}: {{timeout_s: 2, max_cost_usd: 0.001, reasoning: not_sent}}" for tier in ("low", "medium", "high")
    )
    who = f"reviewer: {{vendor: openai, model: gpt-5-mini, effort: {{{efforts}}}}}"
    session, screen = judged_by(tmp_path, who)
    drive(session)
    check_told(session.run, screen.getvalue(), "design.1", "cost_cap", "max_cost_usd 0.001 does not pay for a request")
    assert api.requests == []
