"""One session: its folder, trail, store and parties, built only in ``wiring.py``, and the state of its graph."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

from agents.workbench_protocol import Builder
from reviews.evidence.evidence import Evidence
from reviews.evidence.gather import gather
from reviews.gate.panel import ReviewPanel
from reviews.gate.reviewer import PacketReviewer
from reviews.history.history import History
from reviews.reviewers.process.client import ReviewerProcess
from reviews.trail.chain.envelope import FormT, RecordedEntry
from reviews.trail.chain.store import Store
from reviews.trail.trail import Trail
from sessions.jobs.launcher import Launcher
from sessions.run.pause import CANCEL, PAUSE
from specs.session.session_spec import ResolvedSpec
from specs.stages.base.metric import MetricSet
from specs.system.errors import PeergateError

if TYPE_CHECKING:
    from sessions.pages.report.live_display import Terminal

Route = Literal["go", "next", "again", "human", "close", "design_gate", "plan", "witness", "submit", "review"]


class State(TypedDict, total=False):
    """What LangGraph keeps between nodes; the trail holds everything that counts."""

    session: str
    stage: str
    attempt: int
    route: Route
    outcome: str


class PauseSignal(Exception):
    """The session (named in the only argument) was asked to stop here; ``peergate resume`` continues it."""


class CancelSignal(Exception):
    """The session was asked to end for good."""


@dataclass
class Session:
    """Everything the nodes of the graph work with."""

    name: str
    run: Path
    cache: Path
    resolved: ResolvedSpec
    trail: Trail
    store: Store
    launcher: Launcher
    builder: Builder
    wire_reviewer: Callable[[], PacketReviewer | ReviewPanel]
    reviewing: ReviewerProcess
    display: Terminal
    stop: threading.Event = field(default_factory=threading.Event)
    on_launch: Callable[[str], None] = lambda _: None
    """Called with the key of each job that its launcher has taken; a launcher that refuses raises instead."""
    notify: Callable[[], None] = lambda: None
    """Tells people what is new in the trail; raises nothing."""
    _history: tuple[tuple[RecordedEntry, ...], History] | None = field(default=None, init=False, repr=False)

    @cached_property
    def reviewer(self) -> PacketReviewer | ReviewPanel:
        """The reviewer, wired at its first use: ending or reading a session needs no key."""
        return self.wire_reviewer()

    @property
    def history(self) -> History:
        """What is recorded so far."""
        entries = self.trail.entries()
        if self._history is None or self._history[0] is not entries:
            self._history = entries, History(entries, self.store)
        return self._history[1]

    def find(self, form: type[FormT], *parts: object) -> RecordedEntry[FormT] | None:
        """Return the entry of a kind that ``parts`` name, if there is one."""
        return self.trail.find(form.key_of(*parts), form)

    def entry(self, form: type[FormT], *parts: object) -> FormT:
        """Return the body of the entry of a kind that ``parts`` name, or raise PeergateError if there is none."""
        recorded = self.find(form, *parts)
        if recorded is None:
            raise PeergateError(f"the trail has no entry '{form.key_of(*parts)}'", where=self.name)
        return recorded.body

    def evidence(self, stage: str, attempt: int) -> Evidence:
        """Return the evidence of an attempt."""
        return gather(self.run, self.history, stage, attempt)

    def metrics(self, stage: str, attempt: int) -> MetricSet | None:
        """Return the metrics of an attempt; None if nothing was measured."""
        return self.history.attempt(stage, attempt).metric_set

    def checkpoint(self) -> None:
        """Stop here if someone asked to.

        Raises:
            Paused: Ctrl-C, SIGTERM or ``peergate pause``.
            Cancelled: ``peergate cancel``.
        """
        if jump := self.trail.clock.jump():
            self.display.say(jump)
        if (self.run / CANCEL).exists():
            raise CancelSignal
        if self.stop.is_set() or (self.run / PAUSE).exists():
            raise PauseSignal(self.name)

    def wait(self, seconds: float) -> None:
        """Wait so long; raises as :meth:`checkpoint` does if someone asks to stop meanwhile."""
        until = time.monotonic() + seconds
        self.checkpoint()
        while (remaining := until - time.monotonic()) > 0:
            self.stop.wait(min(remaining, 1.0))
            self.checkpoint()
