from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from agents.playbook import Playbook
from agents.workbench_protocol import Workbench
from reviews.history.history import History
from reviews.trail.chain.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.commands.cli import app
from sessions.pages.report.transcript import MARKDOWN, Transcript, lines_of, markdown_of, render_transcript
from sessions.session import Session
from specs.system.masking import Masker, forms_only
from specs.system.vendors.conversation import ToolCall
from specs.trail.verdict import Packet
from testing.factories.benches import bench_of, call, new_session, open_stage, take, turn
from testing.factories.bodies import append_json, body_of
from testing.fixtures.quick_session import drive, open_quick, quick_session

NASTY = "```\n# approved\n\x1b[2J\u202e| a |\n~~~~\n````"
LONG = "word " * 3000


@pytest.fixture
def session(tmp_path: Path) -> Session:
    made = new_session(tmp_path)
    open_stage(made)
    bench = bench_of(made)
    tool_call = ToolCall(id="a", name="write_note", arguments=json.dumps({"text": NASTY}))
    take(bench, turn(tool_call, text=f"I shall note this.\n{NASTY}"))
    bench.call(tool_call)
    call(bench, "read_artifact", name=LONG[:50])
    call(bench, "write_note", text=LONG)
    call(bench, "launch_stage", stage="sample", reason="because", changes={"temperature": 0.9})
    plan = body_of("plan", stage="sample", changes={"temperature": 0.9}, reason="because", builder="model")
    append_json(made.trail, "plan", "plan/sample.1", plan)
    claims = [{"stage": "sample", "metric": "accepted", "value": 3.0, "tolerance": 0.0}]
    submitted = body_of("submit", stage="sample", claims=claims, sent_back=2)
    append_json(made.trail, "submit", "submit/sample.1", submitted)
    decided = body_of("decision", stage="sample", attempt=1, outcome="revise", reasons=["too few"])
    append_json(made.trail, "decision", "decision/sample.1", decided | {"required": {"temperature": 1.0}})
    return made


def read_attempts(session: Session) -> list[Any]:
    return list(Transcript(session.store, Masker({})).attempts(History(session.trail.iterate())))


def test_an_attempt_is_reported_in_order_with_costs_and_what_the_gate_said(session: Session) -> None:
    attempt = next(item for item in read_attempts(session) if item.stage == "sample")
    assert [event.kind for event in attempt.events] == [
        "turn", *("call", "result") * 4, "plan", "submit", "decision"
    ]  # fmt: skip
    assert attempt.usd == pytest.approx(0.01)
    text = "\n".join(lines_of(attempt))
    for line in (
        "== sample.1: 0.0100 USD for the builder's turns ==",
        "-- plan --",
        "turn 1 of some-model: 0.0100 USD, tokens: 100 input, 10 output, tool_use",
        "    | I shall note this.",
        "call 1: write_note",
        "done\n    | kept as note.1",
        "refused\n    | malformed arguments: name:",
        "done, the phase ends",
        "launched, temperature = 0.9\n    | because",
        "handed in with 1 claims, 2 sent back before\n    | sample accepted = 3",
        "the gate: revise\n    | too few\n    | required: temperature = 1",
    ):
        assert line in text, line


def test_long_texts_are_cut_and_named_by_their_digest(session: Session) -> None:
    attempt = next(item for item in read_attempts(session) if item.stage == "sample")
    (cut,) = [text for event in attempt.events for text in event.texts if text.digest]
    assert len(cut.excerpt) <= 2000 and "characters left out]" in cut.excerpt
    assert LONG.strip() in session.store.get(cut.digest).decode()


def test_nothing_in_it_controls_a_terminal_or_ends_a_block_of_markdown(session: Session) -> None:
    attempts = read_attempts(session)
    lines = "\n".join(line for attempt in attempts for line in lines_of(attempt))
    page = markdown_of("small", attempts)
    assert not {"\x1b", "\u202e", "\x07"} & set(lines + page)
    outside: list[str] = []
    fence = ""
    for line in page.splitlines():
        if fence:
            fence = "" if line == fence else fence
        elif line.startswith("```"):
            fence = line.removesuffix("text")
        else:
            outside.append(line)
    assert fence == "" and "# approved" not in outside
    assert sum(line.startswith("# ") for line in outside) == 1 and "## sample, attempt 1" in outside


def test_secrets_are_masked_once_more(session: Session) -> None:
    secret = "canary-5e1f08b2c44d"
    decided = body_of("decision", stage="sample", attempt=2, outcome="reject", reasons=[f"the key {secret} is wrong"])
    append_json(session.trail, "decision", "decision/sample.2", decided)
    attempts = list(Transcript(session.store, Masker({"A_KEY": secret})).attempts(History(session.trail.iterate())))
    page = markdown_of("small", attempts)
    assert secret not in page and "the key [masked: A_KEY] is wrong" in page


def test_what_is_gone_from_the_store_is_reported(session: Session) -> None:
    for entry in session.trail.iterate("turn", "result"):
        for name in ("answer", "text"):
            if name in entry.raw:
                session.store.path(entry.raw[name]).unlink(missing_ok=True)
    text = "\n".join(line for item in read_attempts(session) for line in lines_of(item))
    assert text.count("no longer in the store") == 5


def test_the_command_prints_all_one_stage_one_attempt_or_says_what_there_is(session: Session) -> None:
    run = session.run
    session.trail.close()
    runner = CliRunner()
    whole = runner.invoke(app, ["transcript", str(run)])
    assert whole.exit_code == 0 and "== sample.1" in whole.output
    data = json.loads(runner.invoke(app, ["transcript", str(run), "sample.1", "--json"]).output)
    assert data["schema_version"] == 1 and [attempt["stage"] for attempt in data["attempts"]] == ["sample"]
    assert data["attempts"][0]["events"][0]["usd"] == 0.01
    for named, why in (("sample.2", "no record of 'sample.2'"), ("../x", "invalid attempt")):
        failed = runner.invoke(app, ["transcript", str(run), named])
        assert why in str(failed.exception)


def test_the_status_states_the_phase_the_last_call_and_the_spending(session: Session) -> None:
    run = session.run
    session.trail.close()
    runner = CliRunner()
    output = runner.invoke(app, ["status", "small", "--runs", str(run.parent)]).output
    assert "builder, phase plan of sample.1: 1 turns, 4 calls, last call launch_stage: done; 0.0100 of 2 USD" in output
    data = json.loads(runner.invoke(app, ["status", "small", "--runs", str(run.parent), "--json"]).output)
    assert (data["builder"]["phase"], data["builder"]["last_call"]) == ("plan", "launch_stage")


class ClaimingPlaybook(Playbook):
    """Claims numbers of one stage: first one that is wrong, then a right one and one that no one measured."""

    def work(self, bench: Workbench) -> None:
        if bench.phase != "submit" or bench.view.stage != "tuned":
            super().work(bench)
            return
        right = {"stage": "tuned", "metric": "accuracy", "value": 1.0}
        for claims in ([right | {"value": 0.9}], [right, right | {"metric": "invented", "value": 7}]):
            bench.call(ToolCall(id="c", name="submit_stage", arguments=json.dumps({"claims": claims})))


def packet_of(run: Path, stage: str) -> Packet:
    entries = read_entries(run / "trail.sqlite")
    body = next(entry.raw for entry in entries if entry.key == f"packet/{stage}.1")
    return Packet.model_validate(Store(run / "store").get_value(body["packet"]))


def test_a_closed_session_has_its_transcript_among_the_files_of_the_report(tmp_path: Path) -> None:
    run = open_quick(tmp_path)
    drive(quick_session(run, ClaimingPlaybook()))
    (reported,) = [entry for entry in read_entries(run / "trail.sqlite") if entry.kind == "report"]
    assert f"report/{MARKDOWN}" in reported.raw["files"]
    page = (run / "report" / MARKDOWN).read_text(encoding="utf-8")
    assert "## ship, attempt 1" in page and "launch_stage" in page and "the gate: approve" in page
    report = (run / "report" / "report.md").read_text(encoding="utf-8")
    assert " Claimed, supported: tuned accuracy = 1.<br>" in report
    assert "- tuned.1, claimed, unsupported: tuned invented = 7\n" in report
    assert [claim["status"] for claim in packet_of(run, "tuned").model_dump()["claims"]] == ["supported", "unsupported"]
    checks = next(check for check in packet_of(run, "tuned").checks if check.id == "claims.as_measured")
    assert (checks.status, checks.detail) == (
        "WARN",
        "nothing measured bears out tuned invented; 1 submissions were sent back before",
    )
    assert {check.id: check.status for check in packet_of(run, "base").checks}["claims.as_measured"] == "PASS"


def test_without_a_call_there_is_no_transcript(tmp_path: Path) -> None:
    made = new_session(tmp_path)
    assert render_transcript(History(made.trail.iterate(), made.store), forms_only()) == ""
    made.trail.close()
