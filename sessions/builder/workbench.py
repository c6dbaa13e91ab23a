"""The builder's workbench: every tool call is recorded, checked, carried out, and its result recorded.

Tools find things by name in the trail, never by path. Results and records are redacted and cut. A call during which the
process died is not carried out twice, and an answer that was paid for is not lost.
"""

from __future__ import annotations

import base64
import os
from contextlib import suppress
from typing import Any

from agents.turns import ModelTurn, ToolCall, ToolResult
from agents.workbench_protocol import PastTurn
from reviews.trail.chain.envelope import RecordedEntry
from sessions.builder.brief import write_brief
from sessions.builder.loop_detection import SAME_RESULTS, PhaseRecord
from sessions.builder.redaction import Redactor
from sessions.builder.stage_view import expected_s, view_of
from sessions.builder.tools import CARRY_OUT
from sessions.builder.tools.review_tools import format_review_answer
from sessions.builder.tools.stage_tools import SENT_BACK, kept_as, note_key
from sessions.builder.tools.tool_context import MOST_ARGUMENTS, OpenHelper, PhaseWork, ToolCallRefusal, read_arguments
from sessions.run.money import ledger
from sessions.session import CancelSignal, PauseSignal, Session
from specs.jobs.grant_and_claim import StageView
from specs.stages.registry import Stage
from specs.system.digests import digest_bytes
from specs.system.errors import AuditDamage, DiskUnwritable, PeergateError
from specs.trail.builder_tools import TOOLS
from specs.trail.requested_review import ANSWERS, AnsweredEntry, AskedEntry, Mode
from specs.trail.tool_arguments import Phase, Tool

INTERRUPTED = "the session was stopped while this was carried out; call it again if it still matters"
ENDING = ("launch_stage", "submit_stage", "ask_person", "hand_in")
"""Tools that end a phase and can be repeated without another effect."""
_NOTES = ("propose_plan", "propose_amendment", "propose_stage", "propose_sweep", "write_note")
_REVIEWS: dict[str, Mode] = {"ask_review": "question", "request_review": "review", "adversarial_review": "adversarial"}
MOST_RESULT = 24_000
"""Characters of one result; longer texts are read in pages."""
IN_PIECES = b"[withheld: the stream spelled out, in pieces, what is masked in the turn]"
_REPEATED = (
    f"this call has had the same result {SAME_RESULTS} times; do something else: change the arguments, take the next "
    "step, or ask a person"
)
_ENDED = "this phase has ended; nothing is carried out any more"


class SessionWorkbench:
    """An :class:`agents.workbench_protocol.Workbench` on a session."""

    def __init__(
        self,
        session: Session,
        stage: Stage,
        attempt: int,
        phase: Phase,
        helper: str = "",
        open_helper: OpenHelper | None = None,
    ) -> None:
        self._session = session
        self._at: dict[str, Any] = {"stage": stage.name, "attempt": attempt, "phase": phase}
        self._prefix = f"{stage.name}.{attempt}/{phase}"
        if helper:
            self._at["helper"] = helper
            self._prefix += f"/helper-{helper}"
        self._wall = Redactor(session, os.environ)
        self.work = PhaseWork(session, stage, attempt, phase, self._wall, open_helper)
        self.written = 0
        """Tokens of the answers so far."""
        self.gave_up = ""
        """Why a person is asked although the builder did not ask."""
        mine = self._mine()
        self._turns = sum(value.kind == "turn" for value in mine)
        self._results: list[RecordedEntry] = [value for value in mine if value.kind == "result"]
        self._calls: list[RecordedEntry] = [value for value in mine if value.kind == "call"]
        self._answer_interrupted()
        self._end_again()
        self._look_after()

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
        """Everything a model has to know to continue."""
        return self._wall.scrub(write_brief(self.work, self.view))

    @property
    def tools(self) -> tuple[Tool, ...]:
        """All tools, in a fixed order."""
        return TOOLS

    @property
    def wait_s(self) -> float:
        """How many seconds the job of the stage is expected to run; 0 if nothing is known."""
        return expected_s(self._session, self.work.stage)

    @property
    def done(self) -> bool:
        """Whether the phase has ended."""
        return self.work.done or bool(self.gave_up)

    def call(self, call: ToolCall) -> ToolResult:
        """Record the call, carry it out, record the result. A call after the phase has ended is not recorded.

        Raises:
            Paused: someone stops the session; the call is answered when the session continues.
            Cancelled: the session is ended for good.
            AuditDamage: the trail or its evidence is damaged.
        """
        if self.done:
            return ToolResult(call=call.id, text=_ENDED, is_error=True)
        self._session.checkpoint()
        intent, arguments = self._record_call(call)
        self._session.display.call_begins(intent.raw["tool"])
        return self._record_result(intent, call.id, *self._try_call(intent, call, arguments))

    def _try_call(self, intent: RecordedEntry, call: ToolCall, arguments: str) -> tuple[str, bool]:
        """Carry a call out and return its result, and whether that is an error."""
        self.work.call = intent.key
        try:
            if self._phase_record().repeats(intent, digest_bytes(_REPEATED.encode())):
                raise ToolCallRefusal(_REPEATED)
            return self._carry_out(call, arguments), False
        except (PauseSignal, CancelSignal, AuditDamage, DiskUnwritable):
            raise
        except ToolCallRefusal as refused:
            return str(refused), True
        except PeergateError as error:
            return f"{error.message}{f' ({error.hint})' if error.hint else ''}", True
        except Exception as error:
            # Every call gets a result, without details of a fault: they may quote what is withheld.
            self._session.display.say(f"{intent.raw['tool']}: {type(error).__name__}: {error}")
            return f"this tool failed ({type(error).__name__}) and did nothing that counts", True

    def _record_call(self, call: ToolCall) -> tuple[RecordedEntry, str]:
        """Record a call; return it with its redacted arguments, which are carried out."""
        text, number = call.arguments, len(self._calls) + 1
        whole = len(text) <= MOST_ARGUMENTS
        arguments = self._wall.scrub_json(text) if whole else self._wall.scrub(text[:MOST_ARGUMENTS])
        body = {
            **self._at,
            "number": number,
            "turn": self._turns,
            "call_id": self._wall.clean(call.id, 200),
            "tool": self._wall.clean(call.name, 64),
            "arguments": self._session.store.put(arguments.encode("utf-8", "replace")),
        }
        intent = self._session.trail.append_raw("call", f"call/{self._prefix}.{number}", body)
        self._calls.append(intent)
        return intent, arguments

    @property
    def sent_back(self) -> int:
        """How many submissions were sent back for their claims."""
        submitted = {call.key for call in self._calls if call.raw["tool"] == "submit_stage"}
        refused = [result for result in self._results if result.raw["is_error"] and result.raw["call"] in submitted]
        return sum(self._session.store.get(value.raw["text"]).startswith(SENT_BACK.encode()) for value in refused)

    def history(self) -> tuple[PastTurn, ...]:
        """Return the recorded turns of this phase with the results of their calls."""
        store = self._session.store
        by_turn: dict[int, list[ToolResult]] = {}
        answered = {result.raw["call"]: result for result in self._results}
        for call in self._calls:
            if (value := answered.get(call.key)) is not None:
                text, is_error = self._text(value.raw["text"]), value.raw["is_error"]
                image = self._image(value.raw.get("image"))
                result = ToolResult(call=call.raw["call_id"], text=text, is_error=is_error, image=image)
                by_turn.setdefault(call.raw["turn"], []).append(result)
        return tuple(
            PastTurn(
                ModelTurn.model_validate(store.get_value(value.raw["said"])),
                tuple(by_turn.get(value.raw["number"], ())),
            )
            for value in self._mine()
            if value.kind == "turn"
        )

    def reserve(self, cap_usd: float) -> str:
        """Reserve the most a turn may cost; raises BudgetExceeded if it does not fit."""
        self._session.checkpoint()
        budget = self._session.resolved.spec.budget
        return ledger.reserve_turn(self._session.trail, budget, self.work.stage, self.work.attempt, cap_usd)

    def wait(self, seconds: float, why: str) -> None:
        """Wait and show why; someone may stop the session meanwhile."""
        message = f"waits {seconds:.0f} s: {self._wall.clean(why, 200)}"
        self._session.display.say(f"  {self._session.builder.name}: {message}")
        self._session.wait(seconds)

    def release(self, reservation: str, usd: float) -> None:
        """Settle a reservation whose turn never came."""
        ledger.settle(self._session.trail, reservation, usd)

    def record(self, turn: ModelTurn, reservation: str, request: bytes, response: bytes) -> None:
        """Record a turn before its calls are carried out, and settle what it cost, both or nothing."""
        store, wall = self._session.store, self._wall
        reported_turn = turn.model_copy(
            update={
                "text": wall.scrub(turn.text),
                "model": wall.clean(turn.model, 200),
                "verbatim": wall.scrub_json(turn.verbatim) if turn.verbatim else "",
                "calls": tuple(
                    ToolCall(
                        id=wall.clean(call.id, 200),
                        name=wall.clean(call.name, 64),
                        arguments=wall.scrub_json(call.arguments[:MOST_ARGUMENTS]),
                    )
                    for call in turn.calls
                ),
            }
        )
        # A stream spells texts in pieces, and no piece can be recognized as withheld.
        in_pieces = b"data:" in response and (reported_turn.text, reported_turn.calls) != (turn.text, turn.calls)
        body = {
            **self._at,
            "number": self._turns + 1,
            "said": store.put_value(reported_turn),
            "request": store.put(wall.scrub_bytes(request)),
            "response": store.put(IN_PIECES if in_pieces else wall.scrub_bytes(response)),
            "model": reported_turn.model,
            "stop": turn.stop,
            "usage": turn.usage.model_dump(mode="json") if turn.usage else None,
            "usd": turn.usd,
            "usd_is_measured": turn.usd_is_measured,
            "reservation": reservation,
        }

        def record() -> None:
            recorded = self._session.trail.append_raw("turn", f"turn/{self._prefix}.{self._turns + 1}", body)
            ledger.settle(self._session.trail, recorded.raw["reservation"], recorded.raw["usd"])

        self._session.trail.together(record)
        self._turns += 1
        self.written += turn.usage.output_tokens if turn.usage else 0
        budget = self._session.resolved.spec.budget
        accounts = ledger.Accounts(self._session.trail.iterate("spend"), budget)
        self._session.display.turn(reported_turn, accounts.sum_committed("builder", "helper"), budget.builder_usd)
        self._look_after()

    def _image(self, digest: str | None) -> str:
        return base64.b64encode(self._session.store.get(digest)).decode() if digest else ""

    def _text(self, digest: str) -> str:
        return self._session.store.get(digest).decode("utf-8", "replace")

    def _carry_out(self, call: ToolCall, arguments: str) -> str:
        tool = next((tool for tool in self.tools if tool.name == call.name), None)
        if tool is None:
            name = self._wall.clean(call.name, 64)
            raise ToolCallRefusal(f"there is no tool '{name}'; there are {', '.join(tool.name for tool in self.tools)}")
        if self.phase not in tool.phases:
            raise ToolCallRefusal(f"{tool.name} is not open now: this is the phase '{self.phase}'")
        if len(call.arguments) > MOST_ARGUMENTS:
            arguments = call.arguments
        return CARRY_OUT[tool.name](self.work, read_arguments(tool, arguments))

    def _record_result(self, intent: RecordedEntry, id: str, reported_text: str, is_error: bool) -> ToolResult:
        """Record the result of a call; its effect on the phase has happened or follows from this entry."""
        text = self._wall.clean(reported_text, MOST_RESULT)
        body: dict[str, Any] = {
            "stage": intent.raw["stage"],
            "attempt": intent.raw["attempt"],
            "call": intent.key,
            "text": self._session.store.put(text.encode()),
            "is_error": is_error,
            "ends_phase": self.work.done,
        }
        drawn, self.work.image = self.work.image, None
        if drawn is not None and not is_error:
            body["image"] = self._session.store.put(drawn)
        recorded = self._session.trail.append_raw("result", f"result/{intent.key.partition('/')[2]}", body)
        self._results.append(recorded)
        self._session.display.call(intent.raw["tool"], self._text(intent.raw["arguments"]), text, is_error)
        self._look_after()
        return ToolResult(call=id, text=text, is_error=is_error, image=self._image(body.get("image")))

    def _phase_record(self) -> PhaseRecord:
        return PhaseRecord(self._calls, self._results, self._turns, digest_bytes(INTERRUPTED.encode()))

    def _look_after(self) -> None:
        """Stop a builder that repeats itself."""
        if not self.done:
            self.gave_up = self._phase_record().why_stop()
            if self.gave_up:
                self._session.display.say(f"  {self._session.builder.name} is stopped: {self.gave_up}")

    def _answer_interrupted(self) -> None:
        """Answer calls during which the process died, with their effect; those that end a phase are carried out now."""
        answered = {result.raw["call"] for result in self._results}
        for intent in self._calls:
            if intent.key in answered:
                continue
            id, tool = intent.raw["call_id"], intent.raw["tool"]
            if tool in ENDING:
                input_text = self._text(intent.raw["arguments"])
                text, is_error = self._try_call(intent, ToolCall(id=id, name=tool, arguments=input_text), input_text)
            else:
                effect = what_came_of(self._session, self._wall, intent)
                text, is_error = effect or INTERRUPTED, effect is None
            self._record_result(intent, id, text, is_error)

    def _end_again(self) -> None:
        """End the phase if a recorded call ended it before the process died, unless an amendment forbids it since."""
        calls = {call.key: call for call in self._calls}
        for last in [result for result in self._results if result.raw["ends_phase"]]:
            call = calls[last.raw["call"]]
            tool = next((tool for tool in self.tools if tool.name == call.raw["tool"]), None)
            if tool is None or self.work.done:
                continue
            self.work.call = call.key
            with suppress(ToolCallRefusal):
                CARRY_OUT[tool.name](self.work, read_arguments(tool, self._text(call.raw["arguments"])))

    def _mine(self) -> list[RecordedEntry]:
        return [
            value
            for value in self._session.trail.iterate("turn", "call", "result")
            if value.key.partition("/")[2].rpartition(".")[0] == self._prefix
        ]


def what_came_of(session: Session, wall: Redactor, call: RecordedEntry) -> str | None:
    """Return the result of a call by its recorded effect; None if it had none."""
    tool = call.raw["tool"]
    if tool in _NOTES and session.trail.find(note_key(call.key)) is not None:
        return kept_as(session, note_key(call.key))
    if tool in _REVIEWS:
        return _review(session, wall, call, _REVIEWS[tool])
    return None


def _review(session: Session, wall: Redactor, call: RecordedEntry, mode: Mode) -> str | None:
    """Return the recorded answer to the request that a call sent, if there is one."""
    # One call is carried out at a time, so requests after its entry are its own.
    later = (value for value in session.trail.iterate("asked") if value.seq > call.seq)
    sent = [AskedEntry.model_validate(value.raw) for value in later]
    asked_entry = next(
        (asked_entry for asked_entry in sent if asked_entry.mode == mode and asked_entry.by == session.builder.name),
        None,
    )
    result = session.trail.find(f"answered/{asked_entry.number}") if asked_entry else None
    if result is None:
        return None
    answered = AnsweredEntry.model_validate(result.raw)
    answer = ANSWERS[mode].model_validate_json(session.store.get(answered.answer)) if answered.answer else None
    return format_review_answer(wall, answered, answer) if answer else None
