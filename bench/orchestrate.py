"""What Peergate itself costs: milliseconds a tool call and a gate, models and jobs left out, writes durable.

    .venv/bin/python -m bench.orchestrate [--calls 100] [--folder DIR]
    .venv/bin/python -m bench.orchestrate --rows 1000 10000 100000

Runs a whole session whose jobs leave their rows at once and whose reviewer is the embedded one, and makes many calls at
the builder's workbench. The peer is bare LangGraph in the same run: a graph of as many empty nodes with the same saver,
which keeps its checkpoints in memory. A call is an intent and a result in the trail; a gate is measuring, submitting,
checking, reviewing and deciding one attempt, in five steps of the graph. ``--rows`` measures and checks a stage of
samples with so many rows instead: seconds of the processor, and what memory grows by at the peak.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

from agents.playbook import Playbook
from agents.workbench_protocol import Workbench
from bench.composer.step import status
from reviews.gate.check_list import run_checks
from reviews.gate.measurer import measure as measure_rows
from sessions import graph
from sessions.session import State
from specs.system.vendors.conversation import ToolCall
from testing.factories.evidence_on_disk import evidence_of, samples
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


class GateTimes(NamedTuple):
    """Milliseconds of a session in which jobs and models take no time."""

    gates: Sequence[float]
    """A gate's own work, of each gate."""
    parts: dict[str, list[float]]
    """By node of the graph."""
    processor: dict[str, list[float]]
    calls: dict[str, list[float]]
    """By tool of the builder."""
    bare: float
    """Five empty nodes of LangGraph with the same saver."""


def measure(calls: int = 100, folder: Path | None = None) -> GateTimes:
    """Run a session in a new folder inside ``folder`` and return what it took."""
    parts: dict[str, list[float]] = {}
    processor: dict[str, list[float]] = {}
    builder, nodes = Busy(calls), dict(graph.NODES)
    with tempfile.TemporaryDirectory(dir=folder) as made:
        bare = bare_langgraph(20)
        timed_nodes(parts, processor)
        try:
            drive(quick_session(open_quick(Path(made)), builder))
        finally:
            graph.NODES.update(nodes)
    gates = [sum(nodes) for nodes in zip(*(parts[name] for name in GATE), strict=False)]
    return GateTimes(gates, parts, processor, builder.took, bare)


def judge_rows(count: int) -> tuple[float, float]:
    """Measure and check a stage of as many samples; return the processor's seconds and the megabytes at the peak."""
    prompts = samples()[::2]
    rows = [
        prompts[number % len(prompts)] | {"sample": number // len(prompts), "completion": f"tale {number} of a hen."}
        for number in range(count)
    ]
    with tempfile.TemporaryDirectory() as name:
        evidence = evidence_of(Path(name), "sample", rows)
        del rows
        Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
        before, began = status("VmRSS"), time.process_time()
        run_checks(evidence, measure_rows(evidence))
        return time.process_time() - began, (status("VmHWM") - before) / 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=100)
    parser.add_argument("--folder", type=Path, help="where to write; the disk decides (default: a temporary folder)")
    parser.add_argument("--rows", type=int, nargs="+", help="judge so many rows instead")
    namespace = parser.parse_args()
    for count in namespace.rows or ():
        seconds, megabytes = judge_rows(count)
        print(f"{count:,} rows: {seconds:.2f} s, {1e6 * seconds / count:.1f} us a row, {megabytes:,.0f} MB", flush=True)
    if namespace.rows:
        return
    times = measure(namespace.calls, namespace.folder)
    print(f"a session of {len(times.gates)} gates")
    for what, values in times.calls.items():
        middle, most = statistics.median(values), statistics.quantiles(values, n=20)[-1]
        limit = f"limit {CALL_LIMIT_MS:g}{_over(middle, CALL_LIMIT_MS)}"
        print(f"  {what:16} {middle:6.1f} ms a call (95 %: {most:.1f}), {limit}")
    own, bare = statistics.median(times.gates), times.bare
    parts = ", ".join(f"{name} {statistics.median(times.parts[name]):.1f}" for name in GATE)
    busy = statistics.median(map(sum, zip(*(times.processor[name] for name in GATE), strict=False)))
    print(f"  a gate's own work  {own:6.1f} ms: {parts}")
    print(f"    of the processor {busy:6.1f} ms")
    print(f"  five empty nodes   {bare:6.1f} ms (bare LangGraph, same saver)")
    print(
        f"  a gate in all      {own + bare:6.1f} ms, limit {GATE_LIMIT_MS:g}{_over(own + bare, GATE_LIMIT_MS)}; "
        f"{(own + bare) / bare:.1f} x bare LangGraph"
    )


def _over(value: float, limit: float) -> str:
    return "" if value <= limit else " OVER"


if __name__ == "__main__":
    main()
