"""The process may die before or after anything it records: what comes of it is the same, and nothing is done twice."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agents.workbench_protocol import PastTurn
from reviews.trail.trail import Trail
from sessions.builder.workbench import INTERRUPTED, SessionWorkbench
from sessions.nodes import build
from sessions.run.money import ledger
from sessions.session import Session
from specs.system.vendors.conversation import ToolCall
from testing.factories.benches import copy_of, end_job, measure, new_session, open_stage, rows, take, turn
from testing.fixtures.quick_session import quick_session
from testing.fixtures.simulated_kill import SimulatedKill

Step = tuple[str, dict[str, Any]]

PLAN: tuple[tuple[Step, ...], ...] = (
    (("propose_plan", {"plan": "raise the temperature"}), ("read_spec", {"section": "/name"})),
    (("write_note", {"text": "one"}), ("write_note", {"text": "two"}), ("write_note", {"text": "one"})),
    (("request_review", {"artifacts": ["data.prompts"], "kind": "code"}),),
    (
        ("launch_stage", {"stage": "train", "reason": "not open"}),
        ("launch_stage", {"stage": "sample", "reason": "why", "changes": {"temperature": 0.9}}),
        ("write_note", {"text": "too late"}),
    ),
)
SUBMIT: tuple[tuple[Step, ...], ...] = (
    (("read_metrics", {"stage": "sample"}),),
    (("submit_stage", {"claims": [{"stage": "sample", "metric": "accepted", "value": 9.0}]}),),
    (("write_note", {"kind": "complete", "text": "done"}),),
    (("submit_stage", {"claims": [{"stage": "sample", "metric": "accepted", "value": 3.0}]}),),
)


class Model:
    """Takes the turns of its script, and makes a call again that was broken off."""

    name = "model"

    def __init__(self, script: tuple[tuple[Step, ...], ...]) -> None:
        self.script = script

    def work(self, bench: SessionWorkbench) -> None:
        past = list(bench.history())
        if past:
            past[-1] = self.finish(bench, past[-1])
        while not bench.done:
            broken = (
                [
                    call
                    for call, result in zip(past[-1].turn.calls, past[-1].results, strict=False)
                    if result.text == INTERRUPTED
                ]
                if past
                else []
            )
            if broken:
                again = tuple(call.model_copy(update={"id": f"{call.id}+"}) for call in broken)
            else:
                number = sum(not any(call.id.endswith("+") for call in past_turn.turn.calls) for past_turn in past)
                if number == len(self.script):
                    return
                again = tuple(
                    ToolCall(id=f"{number}.{place}", name=name, arguments=json.dumps(arguments))
                    for place, (name, arguments) in enumerate(self.script[number])
                )
            take(bench, turn(*again))
            past.append(self.finish(bench, PastTurn(turn(*again), ())))

    def finish(self, bench: SessionWorkbench, past: PastTurn) -> PastTurn:
        known = {result.call: result for result in past.results}
        results: list[Any] = []
        for call in past.turn.calls:
            if call.id in known:
                results.append(known[call.id])
            elif not bench.done:
                results.append(bench.call(call))
        return PastTurn(past.turn, tuple(results))


@contextmanager
def killed_at(place: int | None, after: bool) -> Generator[None]:
    """Kill anyone who appends for the so-manieth time, before or after the entry is there."""
    whole, count = Trail.append, 0

    def append(self: Trail, body: Any, key: str | None = None, *values: Any) -> Any:
        nonlocal count
        # What is repeated under a key that is there appends nothing.
        count += self.find(key or body.entry_key()) is None
        if count == place and not after:
            raise SimulatedKill
        entry = whole(self, body, key, *values)
        if count == place:
            raise SimulatedKill
        return entry

    Trail.append = append  # type: ignore[method-assign]
    try:
        yield
    finally:
        Trail.append = whole  # type: ignore[method-assign]


class Outcome(NamedTuple):
    """What is left of both phases."""

    launch: Any
    submitted: list[Any]
    notes: list[tuple[str, str]]
    answered: int


def outcome_of(session: Session, launch: Any) -> Outcome:
    notes = [
        (entry.raw["what"], session.store.get(entry.raw["text"]).decode()) for entry in session.trail.iterate("note")
    ]
    return Outcome(
        launch,
        [entry.raw for entry in session.trail.iterate("submit")],
        # A call that was broken off is made again after those that followed it.
        sorted(notes),
        sum(1 for _ in session.trail.iterate("answer")),
    )


def both_phases(run: Path, kills: list[tuple[int, bool]]) -> Outcome:
    """Work through both phases, as often as it takes."""
    remaining = list(kills)
    launch: Any = None
    while True:
        session = quick_session(run)
        place, after = remaining.pop(0) if remaining else (None, False)
        try:
            with killed_at(place, after):
                session.builder = Model(PLAN)  # pyright: ignore[reportAttributeAccessIssue]
                launch = build.work_through(session, session.resolved.spec.stage("sample"), 1)
                session.builder = Model(SUBMIT)  # pyright: ignore[reportAttributeAccessIssue]
                build.submit(session, {"stage": "sample", "attempt": 1})
        except SimulatedKill:
            session.trail._table.close()  # pyright: ignore[reportPrivateUsage]
            continue
        outcome = outcome_of(session, launch)
        budget = session.resolved.spec.budget
        accounts = ledger.Accounts(session.trail.iterate("spend"), budget)
        assert accounts.sum_reserved("builder") == 0
        # A turn that was lost with its process may have been billed: its cap counts.
        turns = sum(1 for _ in session.trail.iterate("turn"))
        lost = sum(1 for _ in accounts.select("builder")) - turns
        assert accounts.sum_spent("builder") == pytest.approx(turns * 0.01 + lost * 0.02) and lost <= len(kills)
        session.trail.verify_chain()
        session.trail.close()
        return outcome


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    session = new_session(tmp_path_factory.mktemp("restart"))
    open_stage(session)
    end_job(session, "sample", {"rows": rows("x")})
    measure(session, "sample", {"accepted": 3.0})
    session.trail.close()
    return session.run


@pytest.fixture(scope="module")
def undisturbed(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return both_phases(fresh(prepared, tmp_path_factory.mktemp("undisturbed")), [])


def fresh(prepared: Path, folder: Path) -> Path:
    session = copy_of(prepared, folder)
    session.trail.close()
    return session.run


def test_undisturbed_everything_happens_once(undisturbed: Outcome) -> None:
    assert undisturbed.launch.changes == {"temperature": 0.9}
    notes = [("complete", "done"), ("free", "one"), ("free", "two"), ("plan", "raise the temperature")]
    assert undisturbed.notes == notes
    assert undisturbed.answered == 1
    (submitted,) = undisturbed.submitted
    assert submitted["sent_back"] == 1 and submitted["claims"][0]["value"] == 3.0


SLOW = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
KILLS = st.lists(st.tuples(st.integers(1, 55), st.booleans()), min_size=1, max_size=6)


def check_killed(prepared: Path, undisturbed: Outcome, kills: list[tuple[int, bool]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert both_phases(fresh(prepared, Path(folder)), kills) == undisturbed


@pytest.mark.parametrize(
    "kills",
    [
        [(4, True), (7, False)],  # a call that was not carried out
        [(5, True), (10, True)],  # a note without the result of its call
        [(2, True), (1, True)],  # a turn that is not on record
        [(26, False), (1, True)],  # an answered review without the result of its call
        [(32, True)],  # a launch that was not carried out, before another call
        [(33, True), (1, False)],  # a launch without a plan
        [(54, True), (1, False)],  # a submission without its entry
    ],
)
def test_killed_where_it_matters_the_outcome_is_the_same(
    prepared: Path, undisturbed: Outcome, kills: list[tuple[int, bool]]
) -> None:
    check_killed(prepared, undisturbed, kills)


@pytest.mark.nightly
@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(KILLS)
@example([(number, True) for number in (1, 2, 3, 4, 5, 6)])
def test_killed_anywhere_the_outcome_is_the_same(
    prepared: Path, undisturbed: Outcome, kills: list[tuple[int, bool]]
) -> None:
    check_killed(prepared, undisturbed, kills)


@pytest.mark.nightly
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("place", range(1, 56))
def test_killed_at_every_entry_the_outcome_is_the_same(
    prepared: Path, undisturbed: Outcome, place: int, after: bool
) -> None:
    check_killed(prepared, undisturbed, [(place, after)])


def test_an_amendment_in_between_may_refuse_what_ended_the_phase(prepared: Path, tmp_path: Path) -> None:
    """The range is narrower now; the builder goes on planning instead of the session breaking."""
    run = fresh(prepared, tmp_path)
    session = quick_session(run)
    session.builder = Model(PLAN)  # pyright: ignore[reportAttributeAccessIssue]
    stage = session.resolved.spec.stage("sample")
    with suppress(SimulatedKill):
        build.work_through(session, stage, 1)
    narrow = stage.model_copy(update={"ranges": {}})
    bench = build.open_bench(session, narrow, 1, "plan")
    assert not bench.done and bench.work.launch is None
    session.trail.close()
