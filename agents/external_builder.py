"""A builder outside this process: its calls wait in an exchange until the session's own thread carries them out.

The thread that runs the session owns the trail's connection, so it alone calls the workbench. Whoever speaks with the
client puts calls into the :class:`Exchange` and waits for their answers.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import ValidationError

from agents.turns import ToolCall, ToolResult
from agents.workbench_protocol import Workbench
from specs.errors import BuilderUnavailable
from specs.trail.builder_tools import JobStatus

NAME = "external"
BRIEF = "brief"
"""The one tool that is not recorded: what it returns is read from the trail and changes nothing."""
POLL_S = 0.2
STOPPED = "the session stops here, and the call with it; call again when the session goes on"


class Answer(NamedTuple):
    """What came of a call."""

    result: ToolResult
    ended: int = 0
    """The number of the phase that ended with it; 0 while that goes on."""


@dataclass(frozen=True)
class Asked:
    """A call of a client on its way. Whoever cancels ``answer`` withdraws the call, as long as nobody has begun it."""

    call: ToolCall
    answer: Future[Answer] = field(default_factory=Future[Answer])

    def text(self, told: str) -> None:
        """Answer with a text."""
        self.answer.set_result(Answer(ToolResult(call=self.call.id, text=told)))


class Exchange:
    """Where the client's side and the session's side meet. Each method may be called from any thread."""

    def __init__(self) -> None:
        self._asked: deque[Asked] = deque()
        self._changed = threading.Condition()
        self.phases = 0
        """How many phases have been opened so far."""
        self.heading = ""
        """Which phase is open and what to do in it; empty while none is."""
        self.doing = "the session begins"
        """What goes on while no phase is open."""
        self.ended = ""
        """Why no phase opens any more, or none before somebody else acts; empty while the session runs."""
        self.closed = False
        """Whether what has ended is closed for good."""
        self.heard = threading.Event()
        """Set when a client was told so."""

    def ask(self, call: ToolCall) -> Asked:
        """Put a call in."""
        asked = Asked(call)
        with self._changed:
            self._asked.append(asked)
            self._changed.notify_all()
        return asked

    def take(self, timeout_s: float) -> Asked | None:
        """Return the next call that was not withdrawn, or None when none came in time."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._asked), timeout_s)
            while self._asked:
                asked = self._asked.popleft()
                if not asked.answer.cancelled():
                    return asked
        return None

    def put_back(self, asked: list[Asked]) -> None:
        """Put calls back in front, for the next phase."""
        with self._changed:
            self._asked.extendleft(reversed(asked))

    def open_phase(self, heading: str) -> None:
        """Say that calls are carried out from now on."""
        self.heading = heading
        self.phases += 1

    def close_phase(self) -> None:
        """Say that no calls are carried out until the next phase opens."""
        self.heading = ""


class ExternalBuilder:
    """An :class:`agents.workbench_protocol.Builder` that does what comes out of an exchange."""

    name = NAME

    def __init__(self, exchange: Exchange, goes_on: Callable[[Workbench], bool]) -> None:
        """``goes_on`` is asked several times a second: False when the phase needs no builder any more.

        What it raises stops the session.
        """
        self._exchange = exchange
        self._goes_on = goes_on

    def work(self, bench: Workbench) -> None:
        """Carry out calls until the phase is done, or the job of ``watch`` has ended without anybody asking."""
        held: list[tuple[Asked, float]] = []
        # The first two paragraphs of a brief are its title and what to do in the phase.
        self._exchange.open_phase("\n\n".join(bench.brief.split("\n\n")[:2]))
        try:
            while not bench.done:
                goes_on = self._goes_on(bench)
                asked = self._exchange.take(POLL_S if goes_on else 0.0)
                if asked is not None:
                    wait_s = _wait_of(asked.call) if bench.phase == "watch" else 0
                    if wait_s:
                        held.append((asked, time.monotonic() + wait_s))
                    else:
                        self._carry_out(bench, asked)
                held = self._end_waits(bench, held, goes_on)
                if not goes_on:
                    return
        except BaseException:
            for one, _ in held:
                if one.answer.set_running_or_notify_cancel():
                    one.text(STOPPED)
            held = []
            raise
        finally:
            self._exchange.close_phase()
            self._exchange.put_back([one for one, _ in held])

    def _end_waits(self, bench: Workbench, held: list[tuple[Asked, float]], goes_on: bool) -> list[tuple[Asked, float]]:
        """Answer the waits that are over, and return the others.

        A wait is held here and not in the tool, so that other calls are carried out meanwhile and the client can
        withdraw it. One that ends before its job does is recorded as a call that does not wait.
        """
        left: list[tuple[Asked, float]] = []
        for asked, until in held:
            if bench.done or (goes_on and time.monotonic() < until):
                left.append((asked, until))
            elif goes_on:
                now = JobStatus(wait_seconds=0).model_dump_json()
                self._carry_out(bench, asked, asked.call.model_copy(update={"arguments": now}))
            else:
                self._carry_out(bench, asked)
        return [one for one in left if not one[0].answer.cancelled()]

    def _carry_out(self, bench: Workbench, asked: Asked, call: ToolCall | None = None) -> None:
        """Carry a call out, unless it was withdrawn, and answer it whatever happens."""
        if not asked.answer.set_running_or_notify_cancel():
            return
        try:
            if asked.call.name == BRIEF:
                asked.text(bench.brief)
            else:
                result = bench.call(call or asked.call)
                asked.answer.set_result(Answer(result, self._exchange.phases if bench.done else 0))
        except BaseException:
            asked.answer.set_result(Answer(ToolResult(call=asked.call.id, text=STOPPED, is_error=True)))
            raise


class AbsentBuilder:
    """The external builder of a session that is run without a client: what needs no builder is done, then it pauses."""

    name = NAME

    def work(self, bench: Workbench) -> None:
        """Raise, always.

        Raises:
            BuilderUnavailable: nobody is there.
        """
        raise BuilderUnavailable(
            "the builder is external and no client is connected",
            where=f"{bench.view.stage}.{bench.view.attempt}",
            hint="`peergate mcp NAME` serves the session's tools to an MCP client (docs/how-to/mcp.md)",
        )


def _wait_of(call: ToolCall) -> int:
    """Return for how long a call asks to wait for the job; malformed arguments wait for nothing."""
    if call.name != "job_status":
        return 0
    try:
        return JobStatus.model_validate_json(call.arguments or "{}").wait_seconds
    except ValidationError:
        return 0
