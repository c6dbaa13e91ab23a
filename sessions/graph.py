"""START READING HERE: the stations of a session.

    open -> design_gate -> [plan -> build -> launch -> wait -> witness
                 |            ^       -> measure -> submit -> check -> review -> decide]* -> close
                 |            |                                                  |  |  |
                 |            +------ next stage (approve), another attempt (revise) |
                 |            +------ human (escalate; asked, answered, recorded) <--+
                 +--> close   <------ accepted, null, reject

A person is also asked before a step that the budget does not cover; after an amendment the node is entered again.
Every node may run twice: it records its effect under a key in the trail and finds it there the second time.
The graph keeps nothing between two starts: the trail says where to enter it (``sessions/nodes/position.py``), and its
entry `close` that the session has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

from sessions.nodes import act, build, judge, witness
from sessions.nodes.budget import BUYING, ask_for_budget
from sessions.session import Session, State
from specs.system.errors import BudgetExceeded

Node = Callable[[Session, State], State]

NODES: dict[str, Node] = {
    "open": act.open_session,
    "design_gate": judge.design_gate,
    "plan": act.plan,
    "build": act.build,
    "launch": act.launch,
    "wait": act.wait,
    "witness": witness.witness,
    "measure": judge.measure,
    "submit": build.submit,
    "check": judge.check,
    "review": judge.review,
    "decide": judge.decide,
    "human": judge.human,
    "close": act.close,
}


def build_graph(session: Session | None) -> Any:
    """Compile the session graph; without a session it can be drawn but not run."""
    graph = StateGraph(State)
    for name, node in NODES.items():
        graph.add_node(name, _bind(name, node, session))

    graph.add_edge(START, "open")
    graph.add_edge("open", "design_gate")
    graph.add_conditional_edges("design_gate", _route, {"next": "plan", "human": "human", "close": "close"})
    graph.add_conditional_edges("plan", _route, {"go": "build", "human": "human"})
    graph.add_edge("build", "launch")
    graph.add_conditional_edges("launch", _route, {"go": "wait", "human": "human"})
    graph.add_edge("wait", "witness")
    graph.add_conditional_edges("witness", _route, {"go": "measure", "human": "human"})
    graph.add_edge("measure", "submit")
    graph.add_conditional_edges("submit", _route, {"go": "check", "human": "human"})
    graph.add_edge("check", "review")
    graph.add_conditional_edges("review", _route, {"go": "decide", "human": "human"})
    graph.add_conditional_edges("decide", _route, {"next": "plan", "again": "plan", "human": "human", "close": "close"})
    entered_again = {name: name for name in BUYING if name != "launch"}
    graph.add_conditional_edges("human", _route, {"next": "plan", "again": "plan", "close": "close", **entered_again})
    graph.add_edge("close", END)
    return graph.compile(checkpointer=InMemorySaver())


def _route(state: State) -> str:
    return state["route"]  # pyright: ignore[reportTypedDictNotRequiredAccess]


def _bind(name: str, node: Node, session: Session | None) -> Any:
    def run(state: State) -> State:
        if session is None:
            raise RuntimeError("this graph was built for drawing only")
        session.checkpoint()
        try:
            after = node(session, state)
            session.notify()
            return after
        except BudgetExceeded as error:
            if name not in BUYING:
                raise
            return ask_for_budget(session, name, state, error)

    return run
