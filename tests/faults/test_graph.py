"""What the graph may not do: run before the trail knows of the session, act before it asks, count attempts itself.

Each test is made once with the rule and once with the rule taken out, where it has to fail; and each with the trail in
a file and in Postgres. The graph is entered where the trail says: after a kill at any entry the session goes on there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.types import interrupt

from reviews.audit.verify import verify_run
from reviews.history.history import History
from reviews.history.people import last_question
from reviews.trail.tables.open_table import read_entries
from reviews.trail.trail import Trail
from sessions import graph
from sessions.jobs.launcher import JobState
from sessions.nodes import act, judge
from sessions.run import run_layout
from sessions.run.run_layout import is_run
from sessions.runtime import runtime
from sessions.session import Session, State
from specs.session.session_spec import ResolvedSpec
from specs.system.errors import PeergateError
from testing.factories.bodies import append_json
from testing.factories.evidence_on_disk import resolved_spec
from testing.fixtures.fault_houses import FILES, POSTGRES, FaultHouse, in_houses, in_houses_with
from testing.fixtures.quick_session import QuickLauncher, drive, open_quick, quick_session
from testing.fixtures.simulated_kill import SimulatedKill
from tests.sessions.test_answers import Away

pytestmark = pytest.mark.integration

RETRY: dict[str, Any] = {"answer": "retry", "reason": "it was lost", "by": "ada", "expires": None}
Node = Callable[[Session, State], State]


in_both = in_houses(FILES, POSTGRES)


class LosingLauncher(QuickLauncher):
    """Every attempt at a stage is lost, up to a number."""

    def __init__(self, stage: str = "sample", attempts: int = 1) -> None:
        super().__init__()
        self.lost = {f"small.{stage}.{n}" for n in range(1, attempts + 1)}

    def poll(self, folder: Path) -> JobState:
        return JobState("lost") if folder.name in self.lost else super().poll(folder)


def keys(run: Path) -> list[str]:
    return [entry.key for entry in read_entries(run / "trail.sqlite")]


# ---- the trail comes before the graph -----------------------------------------------------------------------


def begun(folder: Path, monkeypatch: pytest.MonkeyPatch, register: Callable[..., Any] | None = None) -> list[str]:
    """Start a session that is killed as its graph begins; return the trail's keys, or nothing without a trail."""
    resolved: ResolvedSpec = resolved_spec(folder)

    def killed(*_: object, **__: object) -> None:
        raise SimulatedKill

    with monkeypatch.context() as patched:
        patched.setattr("sessions.graph.build_graph", killed)
        if register is not None:
            patched.setattr(runtime, "register", register)
        with pytest.raises((SimulatedKill, PeergateError)):
            runtime.start(resolved.path("spec.yaml"), folder / "runs", "small", quick_display())
    run = folder / "runs" / "small"
    return keys(run) if is_run(run) else []


def quick_display() -> Any:
    from testing.fixtures.quick_session import Silent

    return Silent()


@in_both
def test_the_trail_knows_of_a_session_before_its_graph_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, house: FaultHouse
) -> None:
    assert begun(tmp_path, monkeypatch)[:1] == ["open"]
    # The graph has left nothing: what there is, is in the trail, and `peergate resume` finds it.
    assert run_layout.require_run(tmp_path / "runs" / "small").is_dir()


def test_a_session_that_is_registered_by_its_graph_would_be_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def later(run: Path, *_: object) -> None:
        run.mkdir(parents=True)

    assert begun(tmp_path, monkeypatch, later) == []
    with pytest.raises(PeergateError, match=r"no session|'open' entry"):
        runtime.resume(tmp_path / "runs" / "small", quick_display())


# ---- no effect before a question ----------------------------------------------------------------------------


def effects_before_the_answer(run: Path, human: Node, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """Return what the trail says when a person is asked, and after the question was reached twice more."""
    monkeypatch.setitem(graph.NODES, "human", human)
    drive(quick_session(run, launcher=LosingLauncher()))
    requests = keys(run)
    for _ in range(2):
        session = quick_session(run, launcher=LosingLauncher())
        config: Any = {"configurable": {"thread_id": "small"}}
        again = graph.build_graph(session)
        again.update_state(config, {"route": "human"}, as_node="decide")
        again.invoke(None, config)
        session.trail.close()
    return requests, keys(run)


@in_both
def test_asking_a_person_has_no_effect_however_often_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, house: FaultHouse
) -> None:
    run = open_quick(tmp_path)
    requests, again = effects_before_the_answer(run, judge.human, monkeypatch)
    assert again == requests
    drive(quick_session(run, launcher=LosingLauncher()), RETRY)
    answered = [key for key in keys(run) if key.startswith("human/")]
    assert answered == ["human/decision/sample.1"]
    assert read_entries(run / "trail.sqlite")[-1].raw["decision"] == "approve"


@in_both
def test_an_effect_before_the_question_would_be_had_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, house: FaultHouse
) -> None:
    def acts_first(session: Session, state: State) -> State:
        number = sum(1 for _ in session.trail.iterate("pause")) + 1
        append_json(session.trail, "pause", f"pause/{number}", {"by": "the node"})
        entry = last_question(History(session.trail.iterate()))
        interrupt({"session": session.name, "question": entry.key, "reasons": []})
        raise AssertionError("no one answers here")

    requests, again = effects_before_the_answer(open_quick(tmp_path), acts_first, monkeypatch)
    assert len([key for key in again if key.startswith("pause/")]) == 3
    assert again != requests


# ---- the trail says where the graph is entered --------------------------------------------------------------


def killed_after(run: Path, key: str, monkeypatch: pytest.MonkeyPatch, launcher: Any = None, **arguments: Any) -> None:
    """Kill a session when an entry was recorded, before anything that follows it."""
    append = Trail.append

    def last(trail: Trail, body: Any, name: str | None = None, *lines: Any) -> Any:
        recorded = append(trail, body, name, *lines)
        if recorded.key == key:
            raise SimulatedKill
        return recorded

    with monkeypatch.context() as patched:
        patched.setattr(Trail, "append", last)
        with pytest.raises(SimulatedKill):
            drive(quick_session(run, launcher=launcher), **arguments)


def nodes_of(run: Path, monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any] | None = None) -> list[str]:
    """Go on with a session; return the nodes that ran, in their order."""
    ran: list[str] = []

    def seen(name: str, node: Node) -> Node:
        def run_node(session: Session, state: State) -> State:
            ran.append(name)
            return node(session, state)

        return run_node

    with monkeypatch.context() as patched:
        for name, node in list(graph.NODES.items()):
            patched.setitem(graph.NODES, name, seen(name, node))
        drive(quick_session(run), answer)
    return ran


ENTERED = {
    "open": "open",
    "verdict/design.1": "open",
    "decision/design.1": "plan",
    "plan/sample.1": "build",
    "grant/small.sample.1": "launch",
    "launch/small.sample.1": "launch",
    "exit/small.sample.1": "wait",
    "metrics/sample.1": "submit",
    "submit/sample.1": "check",
    "checks/sample.1": "review",
    "packet/sample.1": "review",
    "verdict/sample.1": "review",
    "decision/sample.1": "plan",
    "report": "close",
}
"""The node that is entered after a kill right after an entry."""


QUICK = ("plan/sample.1", "launch/small.sample.1", "exit/small.sample.1", "verdict/sample.1", "report")
"""The kills of every run: before a job, when it was launched, when it has ended, before its decision, at the end."""


@in_houses_with(
    "key",
    {FILES: tuple(ENTERED)[1:], POSTGRES: ("launch/small.sample.1", "verdict/sample.1")},
    slow=set(ENTERED) - set(QUICK),
)
def test_after_a_kill_the_graph_is_entered_where_the_trail_says(
    tmp_path: Path, house: FaultHouse, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_quick(tmp_path)
    killed_after(run, key, monkeypatch)
    before = keys(run)
    assert before[-1] == key
    ran = nodes_of(run, monkeypatch)
    assert ran[0] == ENTERED[key]
    assert keys(run)[: len(before)] == before and len(set(keys(run))) == len(keys(run))
    assert read_entries(run / "trail.sqlite")[-1].raw["decision"] == "approve"
    assert verify_run(run, "trail.sqlite", "store").exit_code == 0


@in_both
def test_a_session_that_is_led_from_the_beginning_again_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, house: FaultHouse
) -> None:
    """Without its position the graph would begin anew; that it does no harm is the trail's doing."""
    run = open_quick(tmp_path)
    killed_after(run, "launch/small.sample.1", monkeypatch)
    before = keys(run)

    def nowhere(*_: object) -> None:
        return None

    with monkeypatch.context() as patched:
        patched.setattr(runtime, "position", nowhere)
        drive(quick_session(run))
    assert keys(run)[: len(before)] == before and len(set(keys(run))) == len(keys(run))
    assert read_entries(run / "trail.sqlite")[-1].raw["decision"] == "approve"


@in_both
@pytest.mark.parametrize("anew", [False, True], ids=["position", "anew"])
def test_a_design_that_a_person_approved_is_not_asked_about_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, house: FaultHouse, anew: bool
) -> None:
    """From the beginning the edges of the graph lead to the answered question again: it is entered further on."""
    run = open_quick(tmp_path)
    drive(quick_session(run, reviewer=Away()))
    assert keys(run)[-1] == "decision/design.1"
    killed_after(run, "launch/small.base.1", monkeypatch, answer=RETRY | {"answer": "approve"})

    def nowhere(*_: object) -> None:
        return None

    if anew:
        monkeypatch.setattr(runtime, "position", nowhere)
    ran = nodes_of(run, monkeypatch)
    assert ran == ["open", "design_gate", "human"] if anew else ran[0] == "launch"
    assert (read_entries(run / "trail.sqlite")[-1].kind == "close") is not anew


# ---- attempt numbers come from the trail --------------------------------------------------------------------


def attempts(run: Path, stage: str = "sample") -> list[int]:
    return [
        entry.raw["attempt"]
        for entry in read_entries(run / "trail.sqlite")
        if entry.kind == "launch" and entry.raw["stage"] == stage
    ]


@in_both
def test_attempts_are_counted_by_the_trail(tmp_path: Path, house: FaultHouse) -> None:
    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=LosingLauncher(attempts=2)))
    drive(quick_session(run, launcher=LosingLauncher(attempts=2)), RETRY)
    drive(quick_session(run, launcher=LosingLauncher(attempts=2)), RETRY)
    assert attempts(run) == [1, 2, 3]
    assert read_entries(run / "trail.sqlite")[-1].raw["decision"] == "approve"


@in_both
def test_attempts_counted_by_the_graph_would_begin_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, house: FaultHouse
) -> None:
    """With numbers in the graph's state, which nothing keeps, a session finds its old attempt and ends there."""
    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=LosingLauncher(attempts=1)))
    real = act.open_stage

    def remembered(session: Session) -> Any:
        # What a counter in the state says that begins at one.
        return real(session)._replace(attempt=1)

    monkeypatch.setattr(act, "open_stage", remembered)
    drive(quick_session(run, launcher=LosingLauncher(attempts=1)), RETRY)
    assert attempts(run) == [1], "the second attempt was counted after all"
    assert read_entries(run / "trail.sqlite")[-1].kind != "close"
