"""The graph's state: small on purpose. Everything big lies in the store, everything that counts in the trail."""

from __future__ import annotations

from typing import Literal, TypedDict

Route = Literal["go", "next", "again", "human", "close", "design_gate", "plan", "submit", "review"]


class State(TypedDict, total=False):
    """What LangGraph keeps between nodes. Stage and attempt are read from the trail again wherever they matter."""

    session: str
    stage: str
    attempt: int
    route: Route
    outcome: str
