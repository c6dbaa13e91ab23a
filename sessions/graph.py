"""START READING HERE: the way of a session.

    open -> design_gate -> [plan -> build -> launch -> wait -> measure -> submit -> check -> review -> decide]* -> close
                 |            ^                                                                       |  |  |
                 |            +------ next stage (approve), another attempt (revise) -----------------+  |  |
                 |            +------ human (escalate; asked, answered, recorded) <----------------------+  |
                 +--> close   <------ accepted, null, reject, budget ---------------------------------------+

Every node may run twice: it records what it did under a key in the trail and finds it there the second time.
A session is finished only when the snapshot's ``next`` and ``tasks`` are both empty.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph

from sessions import building, gate, steps
from sessions.session import Session
from sessions.state import State

Node = Callable[[Session, State], State]

NODES: dict[str, Node] = {
    "open": steps.open_session,
    "design_gate": gate.design_gate,
    "plan": steps.plan,
    "build": steps.build,
    "launch": steps.launch,
    "wait": steps.wait,
    "measure": gate.measure,
    "submit": building.submit,
    "check": gate.check,
    "review": gate.review,
    "decide": gate.decide,
    "human": gate.human,
    "close": steps.close,
}


def build_graph(session: Session | None, saver: BaseCheckpointSaver[Any] | None = None) -> Any:
    """Compile the session graph; without a session it can be drawn but not run."""
    graph = StateGraph(State)
    for name, node in NODES.items():
        graph.add_node(name, _bind(node, session))

    graph.add_edge(START, "open")
    graph.add_edge("open", "design_gate")
    graph.add_conditional_edges("design_gate", _route, {"next": "plan", "human": "human", "close": "close"})
    graph.add_conditional_edges("plan", _route, {"go": "build", "human": "human"})
    graph.add_edge("build", "launch")
    graph.add_conditional_edges("launch", _route, {"go": "wait", "close": "close"})
    graph.add_edge("wait", "measure")
    graph.add_edge("measure", "submit")
    graph.add_edge("submit", "check")
    graph.add_edge("check", "review")
    graph.add_edge("review", "decide")
    graph.add_conditional_edges("decide", _route, {"next": "plan", "again": "plan", "human": "human", "close": "close"})
    graph.add_conditional_edges("human", _route, {"next": "plan", "again": "plan", "close": "close"})
    graph.add_edge("close", END)
    return graph.compile(checkpointer=saver)


def _route(state: State) -> str:
    return state["route"]  # pyright: ignore[reportTypedDictNotRequiredAccess]


def _bind(node: Node, session: Session | None) -> Any:
    def run(state: State) -> State:
        if session is None:
            raise RuntimeError("this graph was built for drawing only")
        session.checkpoint()
        return node(session, state)

    return run
