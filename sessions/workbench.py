"""The builder's workbench: every tool call is recorded, checked, carried out, and its result recorded.

Walls: tools find things by name in the trail, never by path; what they return has secrets and held-out prompts taken
out and is cut; what goes wrong with a call is its result. Loop care: the same call with the same result is refused the
third time, calls that fail in a row and calls in all are counted, and beyond the limits a person is asked.
"""

from __future__ import annotations

import os
import time
from typing import Any

from pydantic import ValidationError

from agents.turns import ToolCall, ToolResult, Turn
from agents.workbench import PastTurn, Phase
from reviews.requests.masking import Masker
from reviews.text import plain
from reviews.trail import Recorded
from sessions import ledger
from sessions.brief import write_brief
from sessions.grounds import view_of
from sessions.session import Cancelled, Paused, Session
from sessions.tools import CARRY_OUT
from sessions.tools.work import Refused, Work
from sessions.wall import Wall
from specs.errors import PeergateError
from specs.grants import StageView
from specs.stages import Stage
from specs.tools import TOOLS, Tool

MOST_RESULT = 24_000
"""Characters of one result. What is longer is read in pages."""
MOST_ARGUMENTS = 100_000
MOST_CALLS = 120
"""Calls in one phase of one attempt."""
MOST_ERRORS = 8
"""Failed calls in a row."""
SAME_RESULTS = 2
"""After a call has had the same result this often it is not carried out again."""
_MAY_REPEAT = ("job_status", "job_logs")


class SessionWorkbench:
    """An :class:`agents.workbench.Workbench` on a session."""

    def __init__(self, session: Session, stage: Stage, attempt: int, phase: Phase) -> None:
        self._session = session
        self._at = {"stage": stage.name, "attempt": attempt, "phase": phase}
        self._prefix = f"{stage.name}.{attempt}/{phase}"
        self.work = Work(session, stage, attempt, phase)
        self.gave_up = ""
        """Why a person is asked although the builder did not ask for one."""
        self._wall = Wall(session, Masker(os.environ))
        mine = self._mine()
        self._turns = sum(one.entry.kind == "turn" for one in mine)
        self._results: list[Recorded] = [one for one in mine if one.entry.kind == "result"]
        self._calls: list[Recorded] = [one for one in mine if one.entry.kind == "call"]
        self._end_interrupted()
        self._end_again()

    @property
    def phase(self) -> Phase:
        """Which phase this is."""
        return self.work.phase

    @property
    def view(self) -> StageView:
        """The stage that is open."""
        return view_of(self._session, self.work.stage, self.work.attempt)

    @property
    def brief(self) -> str:
        """What a model has to know to go on."""
        return self._wall.scrub(write_brief(self._session, self.work.stage, self.work.attempt, self.phase, self.view))

    @property
    def tools(self) -> tuple[Tool, ...]:
        """All tools, in a fixed order."""
        return TOOLS

    @property
    def done(self) -> bool:
        """Whether the phase has ended."""
        return self.work.done or bool(self.gave_up)

    def call(self, call: ToolCall) -> ToolResult:
        """Record the call, carry it out, record the result."""
        if self.done:
            return ToolResult(call=call.id, text="this phase has ended; nothing is carried out any more", is_error=True)
        self._session.checkpoint()
        number = len(self._calls) + 1
        arguments = self._wall.scrub(call.arguments[:MOST_ARGUMENTS])
        name = plain(call.name, 64)
        intent = self._session.trail.append(
            "call",
            f"call/{self._prefix}.{number}",
            {
                **self._at,
                "number": number,
                "turn": self._turns,
                "call_id": plain(call.id, 200),
                "tool": name,
                "arguments": self._session.store.put(arguments.encode("utf-8", "replace")),
            },
        )
        self._calls.append(intent)
        self._session.display.say(f"  {self._session.builder.name}: {name} {plain(arguments, 100)}")
        self.work.call = intent.entry.key
        try:
            if self._repeats(intent):
                raise Refused(
                    f"this call has had the same result {SAME_RESULTS} times; do something else: change the arguments, "
                    "go on to the next step, or ask a person"
                )
            told, is_error = self._carry_out(call), False
        except (Paused, Cancelled):
            raise
        except Refused as refused:
            told, is_error = str(refused), True
        except PeergateError as error:
            hint = f" ({error.hint})" if error.hint else ""
            told, is_error = f"{error.message}{hint}", True
        return self._record_result(intent, call.id, told, is_error)

    @property
    def sent_back(self) -> int:
        """How many submissions were refused, for claims the rows contradict or other reasons."""
        submitted = {one.entry.key for one in self._calls if one.body["tool"] == "submit_stage"}
        return sum(one.body["is_error"] and one.body["call"] in submitted for one in self._results)

    def history(self) -> tuple[PastTurn, ...]:
        """Return the recorded turns of this phase with the results of their calls."""
        store = self._session.store
        by_turn: dict[int, list[ToolResult]] = {}
        answered = {one.body["call"]: one for one in self._results}
        for call in self._calls:
            result = answered.get(call.entry.key)
            if result is not None:
                text = store.get(result.body["text"]).decode("utf-8", "replace")
                by_turn.setdefault(call.body["turn"], []).append(
                    ToolResult(call=call.body["call_id"], text=text, is_error=result.body["is_error"])
                )
        return tuple(
            PastTurn(Turn.model_validate(store.get_value(one.body["said"])), tuple(by_turn.get(one.body["number"], ())))
            for one in self._mine()
            if one.entry.kind == "turn"
        )

    def reserve(self, cap_usd: float) -> str:
        """Set aside what a turn may cost at most.

        Raises:
            BudgetExceeded: it does not fit in what is left for the builder.
        """
        self._session.checkpoint()
        budget = self._session.resolved.spec.budget
        return ledger.reserve_turn(self._session.trail, budget, self.work.stage, self.work.attempt, cap_usd)

    def wait(self, seconds: float, why: str) -> None:
        """Wait, until somebody stops the session, and say why."""
        self._session.display.say(f"  {self._session.builder.name}: waits {seconds:.0f} s: {plain(why, 200)}")
        until = time.monotonic() + seconds
        self._session.checkpoint()
        while (left := until - time.monotonic()) > 0:
            self._session.stop.wait(min(left, 1.0))
            self._session.checkpoint()

    def release(self, reservation: str, usd: float) -> None:
        """Settle a reservation whose turn never came."""
        ledger.settle_turn(self._session.trail, reservation, usd)

    def record(self, turn: Turn, reservation: str, request: bytes, response: bytes) -> None:
        """Record a turn before its calls are carried out, and settle what it cost."""
        store = self._session.store
        self._turns += 1
        scrubbed = turn.model_copy(
            update={
                "text": self._wall.scrub(turn.text),
                "calls": tuple(
                    one.model_copy(update={"arguments": self._wall.scrub(one.arguments)}) for one in turn.calls
                ),
            }
        )
        recorded = self._session.trail.append(
            "turn",
            f"turn/{self._prefix}.{self._turns}",
            {
                **self._at,
                "number": self._turns,
                "said": store.put_value(scrubbed),
                "request": store.put(self._wall.scrub_bytes(request)),
                "response": store.put(self._wall.scrub_bytes(response)),
                "model": plain(turn.model, 200),
                "stop": turn.stop,
                "usage": turn.usage.model_dump(mode="json") if turn.usage else None,
                "usd": turn.usd,
                "usd_is_measured": turn.usd_is_measured,
                "reservation": reservation,
            },
        )
        ledger.settle_turn(self._session.trail, recorded.body["reservation"], recorded.body["usd"])

    def _carry_out(self, call: ToolCall) -> str:
        tool = next((one for one in TOOLS if one.name == call.name), None)
        if tool is None:
            raise Refused(
                f"there is no tool '{plain(call.name, 64)}'; there are {', '.join(one.name for one in TOOLS)}"
            )
        if self.phase not in tool.phases:
            raise Refused(f"{tool.name} is not open now: this is the phase '{self.phase}'")
        if len(call.arguments) > MOST_ARGUMENTS:
            raise Refused(f"the arguments have {len(call.arguments)} characters, at most {MOST_ARGUMENTS} are read")
        try:
            arguments = tool.arguments.model_validate_json(call.arguments or "{}")
        except ValidationError as error:
            raise Refused(_what_is_wrong(error)) from error
        return CARRY_OUT[tool.name](self.work, arguments)

    def _record_result(self, intent: Recorded, id: str, told: str, is_error: bool) -> ToolResult:
        """Keep what a call came to; an effect on the phase has happened or is carried by this very entry."""
        text = plain(self._wall.scrub(told), MOST_RESULT)
        body: dict[str, Any] = {
            "stage": intent.body["stage"],
            "attempt": intent.body["attempt"],
            "call": intent.entry.key,
            "text": self._session.store.put(text.encode()),
            "is_error": is_error,
            "ends_phase": self.work.done,
        }
        recorded = self._session.trail.append("result", f"result/{intent.entry.key.partition('/')[2]}", body)
        self._results.append(recorded)
        if is_error:
            self._session.display.say(f"    refused: {plain(text, 160)}")
        self._count()
        return ToolResult(call=id, text=text, is_error=is_error)

    def _count(self) -> None:
        """Give up for a builder that goes round in circles."""
        if self.work.done:
            return
        in_a_row = 0
        for result in reversed(self._results):
            if not result.body["is_error"]:
                break
            in_a_row += 1
        if in_a_row >= MOST_ERRORS:
            self.gave_up = f"{in_a_row} calls in a row were refused"
        elif len(self._calls) >= MOST_CALLS:
            self.gave_up = f"{len(self._calls)} calls were made without an end"

    def _repeats(self, intent: Recorded) -> bool:
        """Say whether this very call has had the same result too often already."""
        if intent.body["tool"] in _MAY_REPEAT:
            return False
        same = {
            one.entry.key
            for one in self._calls
            if (one.body["tool"], one.body["arguments"]) == (intent.body["tool"], intent.body["arguments"])
        }
        texts = [one.body["text"] for one in self._results if one.body["call"] in same]
        return len(texts) >= SAME_RESULTS and len(set(texts[-SAME_RESULTS:])) == 1

    def _end_interrupted(self) -> None:
        """Answer calls during which the process died. Whatever they did is found under its key by whoever repeats."""
        answered = {one.body["call"] for one in self._results}
        for call in self._calls:
            if call.entry.key not in answered:
                told = "the session was stopped while this was carried out; call it again if it still matters"
                self._record_result(call, call.body["call_id"], told, True)

    def _end_again(self) -> None:
        """End the phase if a recorded call ended it: the process died before the session acted on that."""
        last = next((one for one in self._results if one.body["ends_phase"]), None)
        if last is None:
            return
        call = next(one for one in self._calls if one.entry.key == last.body["call"])
        tool = next(one for one in TOOLS if one.name == call.body["tool"])
        given = self._session.store.get(call.body["arguments"])
        CARRY_OUT[tool.name](self.work, tool.arguments.model_validate_json(given or b"{}"))

    def _mine(self) -> list[Recorded]:
        return [
            one
            for one in self._session.trail.iterate("turn", "call", "result")
            if one.entry.key.partition("/")[2].rpartition(".")[0] == self._prefix
        ]


def _what_is_wrong(error: ValidationError) -> str:
    """Say in one line a model can act on what is wrong with the arguments."""
    problems = error.errors(include_input=False, include_url=False)
    told = [f"{'.'.join(str(part) for part in one['loc']) or 'arguments'}: {one['msg']}" for one in problems[:5]]
    return f"malformed arguments: {'; '.join(told)}"
