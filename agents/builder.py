"""The protocol every builder meets: it works with the tools of a workbench; it never measures, judges or decides."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from agents.workbench_protocol import Workbench


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
