"""A builder outside this process: its calls wait in an exchange until the session's own thread carries them out.

That thread owns the trail's connection, so it alone calls the workbench.
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

from agents.workbench_protocol import Workbench
from specs.system.errors import BuilderUnavailable
from specs.system.vendors.conversation import ToolCall, ToolResult
from specs.trail.builder_tools import JobStatus

NAME = "external"
BRIEF = "brief"
"""The one tool whose calls are not recorded: it only reads the trail."""
LAUNCH = "launch_stage"
POLL_S = 0.2
STOPPED = "the session stops here, and the call with it; call again when the session continues"


class CallAnswer(NamedTuple):
    """The result of a call, and the number of the phase that it ended; 0 if the phase continues."""

    result: ToolResult
    ended: int = 0
    launches: str = ""
    """The attempt whose job the session starts next because of the call; empty if it starts none."""


@dataclass(frozen=True)
class PendingCall:
    """A client's call. Cancelling ``answer`` withdraws the call if it has not begun."""

    call: ToolCall
    answer: Future[CallAnswer] = field(default_factory=Future[CallAnswer])

    def text(self, text: str, *, is_error: bool = False) -> None:
        """Answer with a text."""
        self.answer.set_result(CallAnswer(ToolResult(call=self.call.id, text=text, is_error=is_error)))


class BuilderExchange:
    """Where the client's side and the session's side meet. Each method may be called from any thread."""

    def __init__(self) -> None:
        self._pending: deque[PendingCall] = deque()
        self._changed = threading.Condition()
        self.phases = 0
        """How many phases have been opened so far."""
        self.heading = ""
        """Which phase is open and what to do in it; empty between phases."""
        self.doing = "the session begins"
        """What happens while no phase is open."""
        self.ended = ""
        """Why no phase opens, unless someone else acts; empty while the session runs."""
        self.closed = False
        self.launched: set[str] = set()
        """The attempts whose jobs a launcher has taken."""
        self.refusal = ""
        """Why the last job that was to be launched was not."""
        self.heard = threading.Event()
        """Set when a client has heard that the session is closed."""

    def ask(self, call: ToolCall) -> PendingCall:
        """Put a call in."""
        request = PendingCall(call)
        with self._changed:
            self._pending.append(request)
            self._changed.notify_all()
        return request

    def take(self, timeout_s: float) -> PendingCall | None:
        """Return the next call that was not withdrawn; None if no call came in time."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._pending), timeout_s)
            while self._pending:
                request = self._pending.popleft()
                if not request.answer.cancelled():
                    return request
        return None

    def put_back(self, requests: list[PendingCall]) -> None:
        """Put calls back in front, for the next phase."""
        with self._changed:
            self._pending.extendleft(reversed(requests))

    def open_phase(self, heading: str) -> None:
        """Announce that calls are carried out until ``heading`` is emptied."""
        self.heading = heading
        self.phases += 1


class ExternalBuilder:
    """An :class:`agents.workbench_protocol.Builder` that does what comes out of an exchange."""

    name = NAME

    def __init__(self, exchange: BuilderExchange, goes_on: Callable[[Workbench], bool]) -> None:
        """``goes_on`` says several times a second whether the phase still needs a builder; its errors end it."""
        self._exchange = exchange
        self._goes_on = goes_on

    def work(self, bench: Workbench) -> None:
        """Carry out calls until the phase is done, or the job of ``watch`` has ended without a call."""
        pairs: list[tuple[PendingCall, float]] = []
        # The first two paragraphs of a brief are its title and what to do in the phase.
        self._exchange.open_phase("\n\n".join(bench.brief.split("\n\n")[:2]))
        try:
            while not bench.done:
                goes_on = self._goes_on(bench)
                request = self._exchange.take(POLL_S if goes_on else 0.0)
                if request is not None:
                    wait_s = _wait_of(request.call) if bench.phase == "watch" else 0
                    if wait_s:
                        pairs.append((request, time.monotonic() + wait_s))
                    else:
                        self._carry_out(bench, request)
                pairs = self._end_waits(bench, pairs, goes_on)
                if not goes_on:
                    return
        except BaseException:
            for value, _ in pairs:
                if value.answer.set_running_or_notify_cancel():
                    value.text(STOPPED)
            pairs = []
            raise
        finally:
            self._exchange.heading = ""
            self._exchange.put_back([value for value, _ in pairs])

    def _end_waits(
        self, bench: Workbench, pairs: list[tuple[PendingCall, float]], goes_on: bool
    ) -> list[tuple[PendingCall, float]]:
        """Answer the waits that are over, and return the others.

        Waits are held here and not in the tool, so that other calls are carried out meanwhile and the client can
        withdraw them. A wait that ends before its job is recorded as a call that does not wait.
        """
        remaining_pairs: list[tuple[PendingCall, float]] = []
        for request, until in pairs:
            if bench.done or (goes_on and time.monotonic() < until):
                remaining_pairs.append((request, until))
            else:
                now = {"arguments": _without_wait(request.call)} if goes_on else {}
                self._carry_out(bench, request, request.call.model_copy(update=now))
        return [pair for pair in remaining_pairs if not pair[0].answer.cancelled()]

    def _carry_out(self, bench: Workbench, request: PendingCall, call: ToolCall | None = None) -> None:
        """Carry a call out unless it was withdrawn, and always answer it."""
        if not request.answer.set_running_or_notify_cancel():
            return
        try:
            if request.call.name == BRIEF:
                request.text(bench.brief)
            else:
                result = bench.call(call or request.call)
                ended = self._exchange.phases if bench.done else 0
                launches = bool(ended) and request.call.name == LAUNCH and not result.is_error
                key = f"{bench.view.stage}.{bench.view.attempt}" if launches else ""
                request.answer.set_result(CallAnswer(result, ended, key))
        except BaseException:
            request.text(STOPPED, is_error=True)
            raise


class AbsentBuilder:
    """The external builder of a session without a client: the session pauses when it needs its builder."""

    name = NAME

    def work(self, bench: Workbench) -> None:
        """Raise BuilderUnavailable, always."""
        raise BuilderUnavailable(
            "the builder is external and no client is connected",
            where=f"{bench.view.stage}.{bench.view.attempt}",
            hint="`peergate mcp NAME` serves the session's tools to an MCP client (docs/how-to/mcp.md)",
        )


def _without_wait(call: ToolCall) -> str:
    """Return the arguments of a wait that is over: its alarms are looked at once more."""
    job_status = JobStatus.model_validate_json(call.arguments or "{}")
    return job_status.model_copy(update={"wait_seconds": 0}).model_dump_json(exclude_defaults=True)


def _wait_of(call: ToolCall) -> int:
    """Return how many seconds a call asks to wait for the job; malformed arguments do not wait."""
    if call.name != "job_status":
        return 0
    try:
        return JobStatus.model_validate_json(call.arguments or "{}").wait_seconds
    except ValidationError:
        return 0
