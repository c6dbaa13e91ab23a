"""What Peergate itself costs: milliseconds a tool call and a gate, models and jobs left out, writes durable.

    .venv/bin/python -m bench.orchestrate [--calls 100] [--folder DIR]

Runs a whole session whose jobs leave their rows at once and whose reviewer is the embedded one, and makes many calls at
the builder's workbench. The peer is bare LangGraph in the same run: a graph of as many empty nodes with the same saver,
which keeps its checkpoints in memory. A call is an intent and a result in the trail; a gate is measuring, submitting,
checking, reviewing and deciding one attempt, in five steps of the graph.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

from agents.playbook import Playbook
from agents.workbench_protocol import Workbench
from sessions import graph
from sessions.session import State
from specs.system.vendors.conversation import ToolCall
from testing.fixtures.quick_session import drive, open_quick, quick_session

GATE = ("measure", "submit", "check", "review", "decide")
CALL_LIMIT_MS, GATE_LIMIT_MS = 15.0, 60.0


class Busy:
    """The playbook, but it makes calls before it submits and takes their time."""

    name = "playbook"

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self.took: dict[str, list[float]] = {"read_metrics": [], "write_note": [], "a refused call": []}

    def work(self, bench: Workbench) -> None:
        """Make the calls in turn while planning the second stage, then go on as the playbook."""
        if bench.phase == "plan" and bench.view.stage == "sample":
            for number in range(self.calls // 3):
                note = json.dumps({"text": f"note {number}"})
                bad = json.dumps({"name": f"none.{number}"})
                # The same call twice is one too many: an attempt that does not exist is named by number.
                metrics = json.dumps({"stage": "base", "attempt": 1} if number == 0 else {"stage": f"base{number}"})
                self._time(bench, "write_note", "write_note", note)
                self._time(bench, "read_metrics", "read_metrics", metrics)
                self._time(bench, "a refused call", "read_artifact", bad)
        Playbook().work(bench)

    def _time(self, bench: Workbench, what: str, name: str, arguments: str) -> None:
        began = time.perf_counter()
        bench.call(ToolCall(id=f"{what}-{len(self.took[what])}", name=name, arguments=arguments))
        self.took[what].append((time.perf_counter() - began) * 1000)


def timed_nodes(took: dict[str, list[float]], busy: dict[str, list[float]]) -> None:
    """Take the time of every node of the session's graph, and how much of it the processor worked."""
    for name, node in graph.NODES.items():

        def run(session: Any, state: State, name: str = name, node: Callable[..., State] = node) -> State:
            began, processor = time.perf_counter(), time.process_time()
            try:
                return node(session, state)
            finally:
                took.setdefault(name, []).append((time.perf_counter() - began) * 1000)
                busy.setdefault(name, []).append((time.process_time() - processor) * 1000)

        graph.NODES[name] = run


def bare_langgraph(rounds: int) -> float:
    """Return the milliseconds of five empty nodes with the saver of a session."""
    bare: Any = StateGraph(State)
    for name in GATE:
        bare.add_node(name, _nothing)
    bare.add_edge(START, GATE[0])
    for before, after in zip(GATE, GATE[1:], strict=False):
        bare.add_edge(before, after)
    bare.add_edge(GATE[-1], END)
    compiled = bare.compile(checkpointer=InMemorySaver())
    took: list[float] = []
    for number in range(rounds):
        began = time.perf_counter()
        config: Any = {"configurable": {"thread_id": str(number)}}
        compiled.invoke({"session": "bare"}, config, durability="exit")
        took.append((time.perf_counter() - began) * 1000)
    return statistics.median(took)


def _nothing(_: State) -> State:
    return {"route": "go"}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--folder", type=Path, help="where to write; the disk decides (default: a temporary folder)")
    namespace = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=namespace.folder) as made:
        folder = Path(made)
        bare = bare_langgraph(20)
        took: dict[str, list[float]] = {}
        busy: dict[str, list[float]] = {}
        timed_nodes(took, busy)
        builder = Busy(namespace.calls)
        began = time.perf_counter()
        session = quick_session(open_quick(folder), builder)
        drive(session)
        whole = time.perf_counter() - began
    gates = [sum(parts) for parts in zip(*(took[name] for name in GATE), strict=False)]
    print(f"a session of {len(gates)} gates: {whole:.1f} s")
    for what, times in builder.took.items():
        middle, most = statistics.median(times), statistics.quantiles(times, n=20)[-1]
        limit = f"limit {CALL_LIMIT_MS:g}{_over(middle, CALL_LIMIT_MS)}"
        print(f"  {what:16} {middle:6.1f} ms a call (95 %: {most:.1f}), {limit}")
    own = statistics.median(gates)
    parts = ", ".join(f"{name} {statistics.median(took[name]):.1f}" for name in GATE)
    print(f"  a gate's own work  {own:6.1f} ms: {parts}")
    print(
        f"    of the processor {statistics.median(map(sum, zip(*(busy[name] for name in GATE), strict=False))):6.1f} ms"
    )
    print(f"  five empty nodes   {bare:6.1f} ms (bare LangGraph, same saver)")
    print(
        f"  a gate in all      {own + bare:6.1f} ms, limit {GATE_LIMIT_MS:g}{_over(own + bare, GATE_LIMIT_MS)}; "
        f"{(own + bare) / bare:.1f} x bare LangGraph"
    )


def _over(value: float, limit: float) -> str:
    return "" if value <= limit else " OVER"


if __name__ == "__main__":
    main()
