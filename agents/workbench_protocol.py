"""Builders, and what they work at: one phase of one attempt of one stage, and its tools."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from agents.turns import ModelTurn
from specs.jobs.grant_and_claim import StageView
from specs.system.vendors.conversation import ToolCall, ToolResult
from specs.trail.tool_arguments import Phase, Tool


class PastTurn(NamedTuple):
    """A recorded turn, and the results of its calls that have one."""

    turn: ModelTurn
    results: tuple[ToolResult, ...]


class Workbench(Protocol):
    """One phase of an attempt, made by ``sessions``: all that a builder reaches."""

    @property
    def phase(self) -> Phase:
        """Which phase this is."""
        ...

    @property
    def view(self) -> StageView:
        """The open stage, for builders that need no prose."""
        ...

    @property
    def brief(self) -> str:
        """Everything a model has to know to continue, in words."""
        ...

    @property
    def tools(self) -> tuple[Tool, ...]:
        """All tools of this session, in a fixed order, including tools that are closed in this phase."""
        ...

    @property
    def wait_s(self) -> float:
        """How many seconds the job of the stage is expected to run; 0 if nothing is known."""
        ...

    @property
    def done(self) -> bool:
        """Return whether the phase has ended; then nothing may be called any more."""
        ...

    def history(self) -> tuple[PastTurn, ...]:
        """Return the recorded turns of this phase: a restarted builder continues from them."""
        ...

    def call(self, call: ToolCall) -> ToolResult:
        """Record and carry out one call of the newest turn. Its faults are in the result, never an exception."""
        ...

    def reserve(self, cap_usd: float) -> str:
        """Reserve the most a turn may cost; raises BudgetExceeded if it does not fit in what the builder has left."""
        ...

    def wait(self, seconds: float, why: str) -> None:
        """Wait before the model is asked again, and show why. A person can end the wait."""

    def release(self, reservation: str, usd: float) -> None:
        """Settle a reservation whose turn never came: at 0, or at its cap where a call may have been billed."""

    def record(self, turn: ModelTurn, reservation: str, request: bytes, response: bytes) -> None:
        """Record a turn before its calls are carried out, and settle its cost."""


class Builder(Protocol):
    """Works through the phases of every attempt."""

    name: str

    def work(self, bench: Workbench) -> None:
        """Call tools until the phase is done.

        A builder that returns earlier has given up: in ``plan`` a person is asked, in ``submit`` the gate judges
        without claims, and in ``watch`` the session itself waits for the job.

        Raises:
            BuilderUnavailable: the builder cannot be reached; the session pauses and loses nothing.
            BudgetExceeded: too little is left for the builder.
        """


@runtime_checkable
class Delegating(Protocol):
    """A builder that can work as its own helper, with a fresh context."""

    def help(self, bench: Workbench) -> None:
        """Work on the bench's task until it is handed in or the bench is done. May run in several threads at once.

        Raises:
            BuilderUnavailable: the model cannot be reached.
            BudgetExceeded: too little is left for the task.
        """
