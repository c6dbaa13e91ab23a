"""Builders, and what they work at: one phase of one attempt of one stage, and the tools that are open in it.

The workbench is made by ``sessions``; a builder reaches nothing else. Every call goes through :meth:`Workbench.call`,
which records it before it is carried out and its result after.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from agents.turns import ToolCall, ToolResult, Turn
from specs.trail.builder_tools import Phase, Tool
from specs.trail.grant_and_claim import StageView


class PastTurn(NamedTuple):
    """A turn that is on record, and the results of those of its calls that have been carried out."""

    turn: Turn
    results: tuple[ToolResult, ...]


class Workbench(Protocol):
    """One phase of an attempt. A builder calls tools until the phase is done."""

    @property
    def phase(self) -> Phase:
        """Which phase this is."""
        ...

    @property
    def view(self) -> StageView:
        """The stage that is open, for builders that need no prose."""
        ...

    @property
    def brief(self) -> str:
        """Everything a model has to know to go on, in words: it may know nothing else."""
        ...

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools of this session, in a fixed order. One that is not open in this phase says so when called."""
        ...

    @property
    def done(self) -> bool:
        """Whether the phase has ended. Nothing may be called any more then."""
        ...

    def history(self) -> tuple[PastTurn, ...]:
        """Return the turns of this phase that are on record: after a restart a builder goes on from there."""
        ...

    def call(self, call: ToolCall) -> ToolResult:
        """Carry out one call of the newest turn. What goes wrong with it is its result, never an exception."""
        ...

    def reserve(self, cap_usd: float) -> str:
        """Set aside what a turn may cost at most, before it is asked for, and return the reservation.

        Raises:
            BudgetExceeded: it does not fit in what is left for the builder.
        """
        ...

    def wait(self, seconds: float, why: str) -> None:
        """Wait before the model is asked again, and tell whoever watches why. A person can end the wait."""
        ...

    def release(self, reservation: str, usd: float) -> None:
        """Settle a reservation whose turn never came: at 0, or at its cap where a call may have been billed."""
        ...

    def record(self, turn: Turn, reservation: str, request: bytes, response: bytes) -> None:
        """Record a turn, before its calls are carried out, and settle what it cost."""
        ...


class Builder(Protocol):
    """Works through the phases of every attempt."""

    name: str

    def work(self, bench: Workbench) -> None:
        """Call tools until the phase is done.

        Whoever returns before that has given up: in ``plan`` a person is asked, in ``submit`` the gate judges without
        claims, and in ``watch`` the session itself waits for the job.

        Raises:
            BuilderUnavailable: the builder cannot be reached; the session pauses and nothing is lost.
            BudgetExceeded: what is left for the builder does not reach.
        """
        ...


@runtime_checkable
class Delegating(Protocol):
    """A builder that can work as its own helper: with a fresh context, at a workbench that only reads."""

    def help(self, bench: Workbench) -> None:
        """Work on the bench's task until it is handed in or the bench is done. May run in several threads at once.

        Raises:
            BuilderUnavailable: the model cannot be reached.
            BudgetExceeded: what is left for the task does not reach.
        """
        ...
