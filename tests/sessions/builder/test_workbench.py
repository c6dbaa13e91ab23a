"""What the workbench records, how it goes on, and when it stops a builder that goes round in circles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sessions.builder import loop_detection
from sessions.builder.tools import CARRY_OUT
from sessions.builder.workbench import INTERRUPTED, SessionWorkbench
from sessions.nodes import build
from sessions.run.money import ledger
from sessions.session import PauseSignal, Session
from specs.system.errors import BudgetExceeded
from specs.system.vendors.conversation import ToolCall
from testing.factories.benches import bench_of, call, job_folder, measure, new_session, open_stage, take, turn
from testing.factories.bodies import append_json, body_of


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    session = new_session(tmp_path_factory.mktemp("bench"), ("max_rounds: 3", "max_rounds: 9"))
    session.trail.close()
    return session.run


def keys(session: Session, *kinds: Any) -> list[str]:
    return [entry.key for entry in session.trail.iterate(*kinds)]


def asks(id: str, tool: str, **arguments: Any) -> ToolCall:
    return ToolCall(id=id, name=tool, arguments=json.dumps(arguments))


def test_a_call_is_on_record_before_it_is_carried_out_and_its_result_after(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []

    def look(*_: Any) -> str:
        seen.append(keys(session, "call", "result"))
        return "done"

    monkeypatch.setitem(CARRY_OUT, "read_spec", look)
    bench = bench_of(session)
    call(bench, "read_spec")
    call(bench, "read_spec", section="/name")
    first = ["call/sample.1/plan.1"]
    assert seen[0] == first
    assert seen[1] == [*first, "result/sample.1/plan.1", "call/sample.1/plan.2"]


def test_turns_are_settled_with_their_record_and_both_go_on_after_a_restart(session: Session) -> None:
    bench = bench_of(session)
    calls = (asks("a", "read_spec", section="/name"), asks("b", "write_note", text="n"), asks("c", "list_artifacts"))
    take(bench, turn(*calls, text="I read."), b'{"ask": 1}', b'{"say": 1}')
    assert [bench.call(tool_call).is_error for tool_call in calls[:2]] == [False, False]
    take(bench, turn(asks("d", "read_spec")))
    again = bench_of(session)
    first, second = again.history()
    assert (first.turn.text, first.turn.calls) == ("I read.", calls)
    assert [(result.call, result.text) for result in first.results] == [("a", '"small"'), ("b", "kept as note.1")]
    assert second.results == () and again.call(second.turn.calls[0]).call == "d"
    assert keys(session, "turn") == ["turn/sample.1/plan.1", "turn/sample.1/plan.2"]
    accounts = ledger.Accounts(session.trail.iterate("spend"), session.resolved.spec.budget)
    assert (accounts.sum_spent("builder"), accounts.sum_reserved("builder")) == (pytest.approx(0.02), 0)


def test_calls_with_the_same_id_are_answered_one_by_one(session: Session) -> None:
    bench = bench_of(session)
    calls = (asks("same", "read_spec", section="/name"), asks("same", "read_spec", section="/task"))
    take(bench, turn(*calls))
    lines = [bench.call(tool_call).text for tool_call in calls]
    (past,) = bench_of(session).history()
    assert [result.text for result in past.results] == lines == ['"small"', '"format_instructions"']


def test_nothing_is_recorded_or_carried_out_after_the_end(session: Session) -> None:
    bench = bench_of(session)
    assert not call(bench, "ask_person", reason="I cannot go on").is_error
    size = session.trail.head().size
    for tool in ("write_note", "launch_stage", "nothing"):
        result = call(bench, tool, text="x", stage="sample", reason="r")
        assert result.is_error and result.text.startswith("this phase has ended")
    assert session.trail.head().size == size
    assert bench.work.launch is not None and bench.work.launch.escalate


def test_a_turn_that_does_not_fit_is_not_reserved(session: Session) -> None:
    with pytest.raises(BudgetExceeded):
        bench_of(session).reserve(1000.0)
    assert keys(session, "spend") == []


@pytest.mark.parametrize("tool", ["read_spec", "read_artifact", "launch_stage"])
def test_the_same_call_is_not_carried_out_a_third_time(session: Session, tool: str) -> None:
    bench = bench_of(session)
    arguments = {"name": "nothing"} if tool == "read_artifact" else {"stage": "train", "reason": "r"}
    arguments = {} if tool == "read_spec" else arguments
    lines = [call(bench, tool, **arguments).text for _ in range(5)]
    assert lines[0] == lines[1] != lines[2] == lines[3] == lines[4]
    assert lines[2].startswith("this call has had the same result 2 times; do something else")


def test_the_same_call_may_be_made_again_once_something_has_happened(session: Session) -> None:
    bench = bench_of(session)
    before = [call(bench, "list_artifacts").text for _ in range(2)]
    assert call(bench, "list_artifacts").is_error
    call(bench, "write_note", text="new")
    result = call(bench, "list_artifacts")
    assert not result.is_error and result.text != before[0] and "note.1" in result.text
    call(bench, "write_note", text="newer")
    assert [call(bench, "list_artifacts").is_error for _ in range(4)] == [False, False, True, True]


def test_polling_a_job_is_no_repetition(session: Session) -> None:
    session.launcher.poll = lambda _: RunningJob()  # type: ignore[method-assign]
    bench = bench_of(session, "watch")
    (job_folder(session) / "log.txt").write_text("x\n")
    assert not any(call(bench, "job_status", wait_seconds=0).is_error for _ in range(5))
    assert not any(call(bench, "job_logs").is_error for _ in range(5))


class RunningJob:
    state = "running"
    exit = None


def test_errors_in_a_row_end_the_phase_and_one_success_in_between_does_not(session: Session) -> None:
    bench = bench_of(session)
    for number in range(loop_detection.MOST_ERRORS - 1):
        call(bench, f"nothing_{number}")
    call(bench, "read_spec")
    for number in range(loop_detection.MOST_ERRORS - 1):
        call(bench, f"nothing_{number}")
    assert not bench.done
    call(bench, "nothing")
    assert bench.done and bench.gave_up == "8 calls in a row were refused"
    assert bench_of(session).gave_up == bench.gave_up


def test_calls_without_an_end_end(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_detection, "MOST_CALLS", 5)
    bench = bench_of(session)
    for number in range(5):
        assert not bench.done
        call(bench, "write_note", text=f"note {number}")
    assert bench.gave_up == "5 calls were made without an end"


def test_turns_that_bring_nothing_new_end(session: Session) -> None:
    bench = bench_of(session)
    take(bench, turn(asks("0", "read_spec", section="/name")))
    call(bench, "read_spec", section="/name")
    for _ in range(loop_detection.MOST_IDLE_TURNS):
        assert not bench.done
        take(bench, turn(text="thinking"))
    assert not bench.done
    take(bench, turn(text="thinking"))
    assert bench.gave_up == "10 turns in a row brought nothing new"
    assert bench_of(session).gave_up == bench.gave_up


def test_calls_that_bring_nothing_new_end_for_builders_without_turns(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_detection, "MOST_IDLE_CALLS", 6)
    bench = bench_of(session)
    call(bench, "read_spec", section="/name")
    call(bench, "read_spec", section="/task")
    for number in range(6):
        assert not bench.done
        # What was told once is not news, however it was asked for.
        call(bench, "read_spec", section=("/name", "/task")[number % 2])
    assert bench.gave_up == "6 calls in a row brought nothing new"


def test_pauses_are_no_errors_of_the_builder(session: Session) -> None:
    def stopped(_: Path) -> Any:
        session.stop.set()
        return RunningJob()

    session.launcher.poll = stopped  # type: ignore[method-assign]
    bench = bench_of(session, "submit")
    for _ in range(loop_detection.MOST_ERRORS + 2):
        with pytest.raises(PauseSignal):
            call(bench, "job_status", wait_seconds=9)
        session.stop.clear()
        bench = bench_of(session, "submit")
    assert not bench.done
    results = [session.store.get(entry.raw["text"]).decode() for entry in session.trail.iterate("result")]
    assert set(results) == {INTERRUPTED}


class Builder:
    """Does in each phase what it was told."""

    name = "scripted"

    def __init__(self, **phases: Any) -> None:
        self.phases = phases
        self.seen_phases: list[str] = []

    def work(self, bench: SessionWorkbench) -> None:
        self.seen_phases.append(bench.phase)
        if bench.phase in self.phases:
            self.phases[bench.phase](bench)


def at_work(session: Session, **phases: Any) -> Builder:
    session.builder = Builder(**phases)  # pyright: ignore[reportAttributeAccessIssue]
    return session.builder  # pyright: ignore[reportReturnType]


def test_a_builder_that_gives_up_has_a_person_asked(session: Session) -> None:
    stage = session.resolved.spec.stage("sample")
    at_work(session)
    wish = build.work_through(session, stage, 1)
    assert wish.escalate and wish.reason == "the builder stopped: it requested no launch"

    def circles(bench: SessionWorkbench) -> None:
        while not bench.done:
            call(bench, "nothing")

    at_work(session, plan=circles)
    assert build.work_through(session, stage, 1).reason == "the builder stopped: 8 calls in a row were refused"


def test_three_revisions_in_a_row_ask_a_person_and_a_retry_counts_anew(session: Session) -> None:
    stage = session.resolved.spec.stage("train")
    open_stage(session, "train")

    def launches(bench: SessionWorkbench) -> None:
        call(bench, "launch_stage", stage="train", reason="again")

    builder = at_work(session, plan=launches)
    for attempt in (1, 2, 3):
        assert not build.work_through(session, stage, attempt).escalate
        open_stage(session, "train", attempt + 1)
    wish = build.work_through(session, stage, 4)
    assert wish.escalate and wish.reason == "the gate sent back 3 attempts in a row"
    assert builder.seen_phases == ["plan"] * 3
    body = body_of("human", stage="train", attempt=4, answer="retry", opens={"stage": "train", "attempt": 5})
    append_json(session.trail, "human", "human/x", body)
    assert not build.work_through(session, stage, 5).escalate


def test_a_submission_is_recorded_once_with_its_claims(session: Session) -> None:
    measure(session, "sample", {"accepted": 3.0})
    claims = [{"stage": "sample", "metric": "accepted", "value": 4.0}]

    def submits(bench: SessionWorkbench) -> None:
        call(bench, "submit_stage", claims=claims)
        call(bench, "submit_stage", claims=[claims[0] | {"value": 3.0}], answers={"f1": "done"})

    builder = at_work(session, submit=submits)
    state: Any = {"stage": "sample", "attempt": 1}
    assert build.submit(session, state) == build.submit(session, state) == {"route": "go"}
    (recorded,) = session.trail.iterate("submit")
    assert builder.seen_phases == ["submit"]
    assert recorded.raw == {
        "stage": "sample",
        "attempt": 1,
        "claims": [{"stage": "sample", "metric": "accepted", "value": 3.0, "tolerance": 0.0}],
        "answers": {"f1": "done"},
        "sent_back": 1,
        "unsubmitted": "",
    }


def test_without_a_submission_there_are_no_claims_and_it_is_said_why(session: Session) -> None:
    at_work(session)
    build.submit(session, {"stage": "sample", "attempt": 1})
    (recorded,) = session.trail.iterate("submit")
    assert recorded.raw["claims"] == [] and recorded.raw["unsubmitted"] == "the builder handed nothing in"
