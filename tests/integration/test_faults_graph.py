"""What the graph may not do: run before the trail knows of the session, act before it asks, count attempts itself.

Each test is made once with the rule and once with the rule taken out, where it has to fail; and each with the graph's
checkpoints in a file and in Postgres.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import interrupt

from reviews.answers import last_question
from reviews.standing import next_attempt
from reviews.trail import read_entries
from sessions import gate, graph, runtime, steps
from sessions.folders import is_run
from sessions.jobs.launcher import JobState
from sessions.savers import STATE, FencedSqlite, checkpoints
from sessions.session import Session
from sessions.state import State
from specs.errors import PeergateError
from specs.session import ResolvedSpec
from tests.fixtures.fault_houses import FILES, POSTGRES, FaultHouse, in_houses, in_houses_with
from tests.fixtures.quick_session import QuickLauncher, drive, open_quick, quick_session
from tests.unit.evidence_on_disk import resolved_spec

TABLES = ("checkpoints", "checkpoint_writes", "checkpoint_blobs")
RETRY: dict[str, Any] = {"answer": "retry", "reason": "it was lost", "by": "ada", "expires": None}
Node = Callable[[Session, State], State]


in_savers = in_houses(FILES, POSTGRES)


class Lost(QuickLauncher):
    """Every attempt at a stage is lost, up to a number."""

    def __init__(self, stage: str = "sample", attempts: int = 1) -> None:
        super().__init__()
        self.lost = {f"small.{stage}.{n}" for n in range(1, attempts + 1)}

    def poll(self, folder: Path) -> JobState:
        return JobState("lost") if folder.name in self.lost else super().poll(folder)


@pytest.fixture(autouse=True)
def nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(*_: object) -> list[str]:
        return []

    monkeypatch.setattr("sessions.plots.draw", draw)


def keys(run: Path) -> list[str]:
    return [one.entry.key for one in read_entries(run / "trail.sqlite")]


# ---- the trail comes before the graph -----------------------------------------------------------------------


class Killed(BaseException):
    """Stands for SIGKILL: nothing cleans up."""


class Finished(BaseException):
    """Whoever looks takes the session for finished."""


def begun(folder: Path, monkeypatch: pytest.MonkeyPatch, register: Callable[..., Any] | None = None) -> list[str]:
    """Start a session that is killed as its graph begins; return the trail's keys, or nothing without a trail."""
    resolved: ResolvedSpec = resolved_spec(folder)

    def killed(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(runtime, "build_graph", killed)
        if register is not None:
            patched.setattr(runtime, "register", register)
        with pytest.raises((Killed, PeergateError)):
            runtime.start(resolved.path("spec.yaml"), folder / "runs", "small", quick_display())
    run = folder / "runs" / "small"
    return keys(run) if is_run(run) else []


def quick_display() -> Any:
    from tests.fixtures.quick_session import Silent

    return Silent()


@in_savers
def test_the_trail_knows_of_a_session_before_its_graph_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, house: FaultHouse
) -> None:
    assert begun(tmp_path, monkeypatch)[:1] == ["open"]
    # The graph has left nothing: what there is, is in the trail, and `peergate resume` finds it.
    assert runtime.require_run(tmp_path / "runs" / "small").is_dir()


def test_a_session_that_is_registered_by_its_graph_would_be_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def later(run: Path, *_: object) -> None:
        run.mkdir(parents=True)

    assert begun(tmp_path, monkeypatch, later) == []
    with pytest.raises(PeergateError, match=r"no session|'open' entry"):
        runtime.resume(tmp_path / "runs" / "small", quick_display())


# ---- no effect before a question ----------------------------------------------------------------------------


def effects_before_the_answer(
    house: FaultHouse, run: Path, human: Node, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[str], list[str]]:
    """Return what the trail says when a person is asked, and after the graph was replayed twice up to the question."""
    monkeypatch.setitem(graph.NODES, "human", human)
    drive(quick_session(run, launcher=Lost()))
    asked = keys(run)
    for _ in range(2):
        # The same node again, from the checkpoint before it: what a kill in the middle of it comes to.
        back_before_the_question(house, run)
        drive(quick_session(run, launcher=Lost()))
    return asked, keys(run)


def back_before_the_question(house: FaultHouse, run: Path) -> None:
    """Take the interrupt out of the graph's newest checkpoint: the node runs again."""
    if house.name == POSTGRES:
        newest = "(SELECT max(checkpoint_id) FROM checkpoints)"
        house.sql(f"DELETE FROM checkpoint_writes WHERE checkpoint_id = {newest}")
        return
    with sqlite3.connect(run / STATE) as connection:
        saver = SqliteSaver(connection)
        newest = saver.get_tuple({"configurable": {"thread_id": "small"}})
        assert newest is not None
        where: Any = newest.config.get("configurable")
        removed = connection.execute("DELETE FROM writes WHERE checkpoint_id = ?", (where["checkpoint_id"],)).rowcount
        assert removed, "the graph does not stand before a question"
    connection.close()


@in_savers
def test_asking_a_person_has_no_effect_however_often_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, house: FaultHouse
) -> None:
    run = open_quick(tmp_path)
    asked, again = effects_before_the_answer(house, run, gate.human, monkeypatch)
    assert again == asked
    drive(quick_session(run, launcher=Lost()), RETRY)
    answered = [key for key in keys(run) if key.startswith("human/")]
    assert answered == ["human/decision/sample.1"]
    assert read_entries(run / "trail.sqlite")[-1].body["decision"] == "approve"


@in_savers
def test_an_effect_before_the_question_would_be_had_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, house: FaultHouse
) -> None:
    def acts_first(session: Session, state: State) -> State:
        number = sum(1 for _ in session.trail.iterate("pause")) + 1
        session.trail.append("pause", f"pause/{number}", {"by": "the node"})
        asked = last_question(list(session.trail.iterate()), session.name)
        interrupt({"session": session.name, "asked": asked.entry.key, "reasons": []})
        raise AssertionError("nobody answers here")

    asked, again = effects_before_the_answer(house, open_quick(tmp_path), acts_first, monkeypatch)
    assert len([key for key in again if key.startswith("pause/")]) == 3
    assert again != asked


# ---- finished is what has neither next nor tasks ------------------------------------------------------------


def saver_of(house: FaultHouse) -> Any:
    """Return the class that writes the checkpoints."""
    if house.name != POSTGRES:
        return FencedSqlite
    from langgraph.checkpoint.postgres import PostgresSaver

    return PostgresSaver


def killed_before_the_checkpoint(house: FaultHouse, run: Path, node: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Kill a session when a node has run and kept what it wrote, before the checkpoint that takes it in.

    Returns what the graph then says of itself.
    """
    saver = saver_of(house)
    put_writes, ran, written = saver.put_writes, threading.Event(), threading.Event()

    def kept(self: Any, *given: Any, **named: Any) -> None:
        put_writes(self, *given, **named)
        if ran.is_set():
            written.set()

    def killed(*_: object, **__: object) -> None:
        # Both are made by threads, in no fixed order.
        assert written.wait(10)
        raise Killed

    real = graph.NODES[node]

    def last(session: Session, state: State) -> State:
        told = real(session, state)
        patched.setattr(saver, "put", killed)
        ran.set()
        return told

    with monkeypatch.context() as patched:
        patched.setattr(saver, "put_writes", kept)
        patched.setitem(graph.NODES, node, last)
        with pytest.raises(Killed):
            drive(quick_session(run))
    assert written.is_set()
    session = quick_session(run)
    with checkpoints(run, "small", session.trail) as place:
        found = graph.build_graph(session, place.saver).get_state({"configurable": {"thread_id": place.thread}})
    session.trail.close()
    return found


@in_houses_with("node", {FILES: ("open", "launch", "review"), POSTGRES: ("open", "launch")})
def test_a_session_whose_graph_has_no_next_has_tasks_and_goes_on(
    tmp_path: Path, house: FaultHouse, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_quick(tmp_path)
    found = killed_before_the_checkpoint(house, run, node, monkeypatch)
    # What looks like an end to those who look at `next` only.
    assert found.next == () and [one.name for one in found.tasks] == [node]
    before = keys(run)
    assert "close" not in before
    drive(quick_session(run))
    assert keys(run)[: len(before)] == before
    assert read_entries(run / "trail.sqlite")[-1].body["decision"] == "approve"


@in_savers
def test_a_session_would_be_dropped_by_those_who_look_at_next_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, house: FaultHouse
) -> None:
    run = open_quick(tmp_path)
    killed_before_the_checkpoint(house, run, "launch", monkeypatch)
    real = runtime._snapshot  # pyright: ignore[reportPrivateUsage]

    def told(session: Session, compiled: Any, config: Any) -> Any:
        snapshot = real(session, compiled, config)
        if not snapshot.next:
            raise Finished
        return snapshot

    with monkeypatch.context() as patched:
        patched.setattr(runtime, "_snapshot", told)
        with pytest.raises(Finished):
            drive(quick_session(run))
    assert keys(run)[-1].startswith("launch/")


@in_savers
def test_a_session_that_was_led_from_the_beginning_again_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, house: FaultHouse
) -> None:
    """Without `tasks` the graph would be given a beginning; that it does no harm is the trail's doing."""
    run = open_quick(tmp_path)
    killed_before_the_checkpoint(house, run, "launch", monkeypatch)
    before = keys(run)
    real = runtime._snapshot  # pyright: ignore[reportPrivateUsage]

    def told(session: Session, compiled: Any, config: Any) -> Any:
        return real(session, compiled, config)._replace(tasks=())

    with monkeypatch.context() as patched:
        patched.setattr(runtime, "_snapshot", told)
        drive(quick_session(run))
    assert keys(run)[: len(before)] == before and len(set(keys(run))) == len(keys(run))
    assert read_entries(run / "trail.sqlite")[-1].body["decision"] == "approve"


# ---- attempt numbers come from the trail --------------------------------------------------------------------


def attempts(run: Path, stage: str = "sample") -> list[int]:
    return [
        one.body["attempt"]
        for one in read_entries(run / "trail.sqlite")
        if one.entry.kind == "launch" and one.body["stage"] == stage
    ]


def without_the_graph(house: FaultHouse, run: Path) -> None:
    """Remove all the graph knows."""
    if house.name == POSTGRES:
        house.sql(*(f"DELETE FROM {table}" for table in TABLES))
        return
    for path in run.glob(f"{STATE}*"):
        path.unlink()


def kept_graph(house: FaultHouse, run: Path) -> Callable[[], None]:
    """Return what puts the graph back to what it knows now."""
    if house.name == POSTGRES:
        house.sql(*(f"CREATE TABLE old_{table} AS SELECT * FROM {table}" for table in TABLES))
        return lambda: house.sql(*(f"INSERT INTO {table} SELECT * FROM old_{table}" for table in TABLES))
    old = (run / STATE).read_bytes()

    def put_back() -> None:
        (run / STATE).write_bytes(old)

    return put_back


@in_savers
def test_attempts_are_counted_by_the_trail_though_the_graph_forgets(tmp_path: Path, house: FaultHouse) -> None:
    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=Lost(attempts=2)))
    without_the_graph(house, run)
    drive(quick_session(run, launcher=Lost(attempts=2)), RETRY)
    without_the_graph(house, run)
    drive(quick_session(run, launcher=Lost(attempts=2)), RETRY)
    assert attempts(run) == [1, 2, 3]
    assert read_entries(run / "trail.sqlite")[-1].body["decision"] == "approve"


@in_savers
def test_attempts_counted_by_the_graph_would_begin_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, house: FaultHouse
) -> None:
    """With numbers in the graph's state, a session whose checkpoints are gone finds its old attempt and ends there."""
    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=Lost(attempts=1)))
    without_the_graph(house, run)
    real = steps.open_stage

    def remembered(session: Session) -> Any:
        # What a counter in the state says that begins at one.
        return real(session)._replace(attempt=1)

    monkeypatch.setattr(steps, "open_stage", remembered)
    drive(quick_session(run, launcher=Lost(attempts=1)), RETRY)
    assert attempts(run) == [1], "the second attempt was counted after all"
    assert read_entries(run / "trail.sqlite")[-1].entry.kind != "close"


@in_savers
def test_a_number_is_never_given_twice_whatever_the_state_says(tmp_path: Path, house: FaultHouse) -> None:
    """Going back to an old checkpoint of the graph reuses no number: what is open says the trail."""
    run = open_quick(tmp_path)
    drive(quick_session(run, launcher=Lost(attempts=1)))
    put_back = kept_graph(house, run)
    drive(quick_session(run, launcher=Lost(attempts=1)), RETRY)
    before = keys(run)
    entries = read_entries(run / "trail.sqlite")
    assert attempts(run) == [1, 2] and next_attempt(entries, "sample") == 3
    # The session is closed; its graph is put back to where it asked. There is nothing it could open.
    put_back()
    drive(quick_session(run, launcher=Lost(attempts=1)))
    assert keys(run) == before
    assert attempts(run) == [1, 2]
