"""The savers of checkpoints that sessions use: LangGraph's own conformance suite, two writers, kills between writes.

The suite speaks to asynchronous savers; LangGraph's own are asked, and the synchronous ones of ``sessions/savers.py``
behind a thin front that only waits.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint

from reviews.log.postgres_table import begin_log
from reviews.trail import Trail
from sessions.savers import checkpoints
from specs.errors import LeaseLost

pytest.importorskip("langgraph.checkpoint.conformance", reason="langgraph-checkpoint-conformance is not installed")
from langgraph.checkpoint.conformance import checkpointer_test, validate

HOME = Path(__file__).parents[2]
Saver = BaseCheckpointSaver[Any]
Factory = Callable[[], AsyncGenerator[Saver, None]]


class Front(BaseCheckpointSaver[Any]):
    """A synchronous saver for callers that wait asynchronously."""

    def __init__(self, behind: Saver) -> None:
        super().__init__(serde=behind.serde)
        self.behind = behind

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self.behind.get_next_version(current, channel)

    async def aput(self, *arguments: Any, **named: Any) -> Any:
        return self.behind.put(*arguments, **named)

    async def aput_writes(self, *arguments: Any, **named: Any) -> None:
        self.behind.put_writes(*arguments, **named)

    async def aget_tuple(self, config: Any) -> Any:
        return self.behind.get_tuple(config)

    async def alist(self, config: Any, **chosen: Any) -> AsyncIterator[Any]:
        for one in self.behind.list(config, **chosen):
            yield one

    async def adelete_thread(self, thread_id: str) -> None:
        self.behind.delete_thread(thread_id)


def begun(folder: Path, address: str | None) -> Trail:
    """Begin the trail of a session ``small``, in Postgres if an address is given."""
    path = folder / "runs" / "small" / "trail.sqlite"
    path.parent.mkdir(parents=True)
    if address is not None:
        begin_log(path, "small", address)
    trail = Trail(path, "small")
    trail.append("workspace", "workspace", {})
    return trail


@pytest.fixture(params=["file", "postgres"])
def trail(request: pytest.FixtureRequest, tmp_path: Path) -> Trail:
    return begun(tmp_path, request.getfixturevalue("database") if request.param == "postgres" else None)


def conforms(name: str, factory: Factory) -> dict[str, tuple[int, int]]:
    """Run the suite; return what passed and failed by capability, of those the saver says it has."""
    report = asyncio.run(validate(checkpointer_test(name)(factory)))
    failures = {name: one.failures for name, one in report.results.items() if one.failures}
    assert not failures, failures
    assert report.passed_all_base()
    return {name: (one.tests_passed, one.tests_failed) for name, one in report.results.items() if one.detected}


BASE = {"put", "put_writes", "get_tuple", "list", "delete_thread"}


def test_the_savers_of_sessions_conform(trail: Trail) -> None:
    async def factory() -> AsyncGenerator[Saver, None]:
        with checkpoints(trail.path.parent, "small", trail) as place:
            yield Front(place.saver)

    found = conforms("ours", factory)
    trail.close()
    assert set(found) >= BASE and sum(passed for passed, _ in found.values()) >= 50, found


def test_langgraphs_saver_for_files_conforms(tmp_path: Path) -> None:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    async def factory() -> AsyncGenerator[Saver, None]:
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / f"{uuid.uuid4()}.sqlite")) as saver:
            yield saver

    assert set(conforms("AsyncSqliteSaver", factory)) >= BASE


def test_langgraphs_saver_for_postgres_conforms(database: str) -> None:
    from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver

    async def factory() -> AsyncGenerator[Saver, None]:
        async with AsyncPostgresSaver.from_conn_string(database) as saver:
            await saver.setup()
            yield saver

    assert set(conforms("AsyncPostgresSaver", factory)) >= BASE


def config(thread: str, **more: Any) -> Any:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ""} | more}


def test_of_two_writers_of_one_session_nothing_is_lost_or_torn(trail: Trail) -> None:
    """Two orchestrators are kept apart by the lease; should they meet, what each has written is whole."""
    count, faults = 30, list[BaseException]()
    begin = threading.Barrier(2)

    def writes(who: str) -> None:
        try:
            with checkpoints(trail.path.parent, "small", trail) as place:
                begin.wait()
                for number in range(count):
                    checkpoint: Any = empty_checkpoint() | {"channel_values": {"who": who, "n": number}}
                    checkpoint["channel_versions"] = {"who": number + 1, "n": number + 1}
                    kept = place.saver.put(
                        config(place.thread), checkpoint, {"step": number}, dict(checkpoint["channel_versions"])
                    )
                    place.saver.put_writes(kept, [("done", f"{who}.{number}")], task_id=f"{who}{number}")
        except BaseException as error:
            faults.append(error)

    writers = [threading.Thread(target=writes, args=(who,)) for who in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert not faults, faults
    with checkpoints(trail.path.parent, "small", trail) as place:
        found = list(place.saver.list(config(place.thread)))
        values = [(one.checkpoint["channel_values"]["who"], one.checkpoint["channel_values"]["n"]) for one in found]
        assert sorted(values) == sorted((who, number) for who in "ab" for number in range(count))
        for one, (who, number) in zip(found, values, strict=True):
            assert [write[1:] for write in one.pending_writes or []] == [("done", f"{who}.{number}")]
    trail.close()


def test_who_was_taken_over_keeps_no_checkpoint(trail: Trail) -> None:
    with ExitStack() as held:
        place = held.enter_context(checkpoints(trail.path.parent, "small", trail))
        trail.fence = 0
        kept = place.saver.put(config(place.thread), empty_checkpoint(), {}, {})
        other = Trail(trail.path, "small")
        lease = {"epoch": 3, "host": "elsewhere", "pid": 7, "over": None}
        other.append("resume", "resume/1", {"by": "ada", "lease": lease})
        with pytest.raises(LeaseLost):
            place.saver.put(config(place.thread), empty_checkpoint(), {}, {})
        with pytest.raises(LeaseLost):
            place.saver.put_writes(kept, [("done", 1)], "task")
        other.fence = 3
        with checkpoints(trail.path.parent, "small", other) as others:
            found = list(others.saver.list(config(place.thread)))
            assert len(found) == 1 and not found[0].pending_writes
        other.close()
    trail.close()


KILLED = """
import json, os, sys
from pathlib import Path
from typing import Any, TypedDict
from langgraph.graph import START, StateGraph
from reviews.trail import Trail
from sessions.savers import checkpoints

path, folder = Path(sys.argv[1]), Path(sys.argv[2])
class State(TypedDict, total=False):
    done: list

def node(name):
    def run(state):
        # As in a session: the effect is claimed under its key, and found the second time.
        with (folder / "calls").open("a") as file:
            file.write(name + "\\n")
        try:
            (folder / name).open("x").close()
        except FileExistsError:
            pass
        return {"done": [*state.get("done", []), name]}
    return run

def drive(fatal, after, proper):
    trail = Trail(path, "small")
    with checkpoints(path.parent, "small", trail) as place:
        saver, count = place.saver, 0
        def counted(method):
            def call(*arguments, **named):
                nonlocal count
                count += 1
                mine = count
                if mine == fatal and not after:
                    os._exit(9)
                kept = method(*arguments, **named)
                if mine == fatal and after:
                    os._exit(9)
                return kept
            return call
        saver.put, saver.put_writes = counted(saver.put), counted(saver.put_writes)
        graph = StateGraph(State)
        names = ["one", "two", "three"]
        for before, name in zip([START, *names], names):
            graph.add_node(name, node(name)); graph.add_edge(before, name)
        app = graph.compile(checkpointer=saver)
        thread = f"{place.thread}.{folder.name}"
        config = {"configurable": {"thread_id": thread}}
        seen = app.get_state(config)
        begun = bool(seen.next or (seen.tasks and proper))
        if not begun and seen.values.get("done") == names:
            os._exit(0)
        if not proper and not begun and fatal == 0:
            os._exit(0)
        app.invoke(None if begun else {"done": []}, config, durability="sync")
        done = app.get_state(config).values.get("done")
    os._exit(0 if done == names else 5)

def forked(*how):
    pid = os.fork()
    if pid == 0:
        try:
            drive(*how)
        except BaseException as error:
            print(error, file=sys.stderr)
            os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

told = []
home = folder
for fatal in range(1, 40 if sys.argv[3] == "proper" else 4):
    for after in (False, True):
        folder = home / f"{fatal}.{int(after)}"
        folder.mkdir()
        first = forked(fatal, after, True)
        second = forked(0, False, sys.argv[3] == "proper")
        effects = sorted(one.name for one in folder.iterdir() if one.name != "calls")
        calls = (folder / "calls").read_text().split() if (folder / "calls").exists() else []
        told.append([fatal, after, first, second, effects, calls])
    if first == 0:
        break
print(json.dumps(told))
"""


def killed(trail: Trail, folder: Path, how: str) -> list[Any]:
    folder.mkdir()
    command = [sys.executable, "-c", KILLED, str(trail.path), str(folder), how]
    done = subprocess.run(command, capture_output=True, text=True, cwd=HOME, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return cast(list[Any], json.loads(done.stdout))


def test_a_kill_before_or_after_any_write_leaves_something_to_go_on_from(trail: Trail, tmp_path: Path) -> None:
    """Also between a checkpoint and the writes that belong to it, which LangGraph makes in no fixed order."""
    trail.close()
    told = killed(trail, tmp_path / "kills", "proper")
    landed = [one for one in told if one[2] == 9]
    assert len(landed) >= 10, told
    for fatal, after, _, second, effects, calls in told:
        assert (second, effects) == (0, ["one", "three", "two"]), (fatal, after, second, effects, calls)
    # What a kill may cost is that a node runs again, never that one does not.
    assert any(len(one[5]) > 3 for one in landed)


def test_next_alone_does_not_say_that_a_session_has_ended(tmp_path: Path) -> None:
    """The rule that does not hold drops sessions: this is why ``drive`` asks for ``.tasks`` and begins again."""
    trail = begun(tmp_path, None)
    trail.close()
    told = killed(trail, tmp_path / "kills", "next")
    assert any(effects != ["one", "three", "two"] for *_, effects, _ in told), told
