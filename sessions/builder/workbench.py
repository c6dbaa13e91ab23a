"""The builder's workbench: every tool call is recorded, checked, carried out, and its result recorded.

Tools find things by name in the trail, never by path. Results and records are redacted and cut. A call during which the
process died is not carried out twice, and an answer that was paid for is not lost.
"""

from __future__ import annotations

import base64
import os
from contextlib import suppress
from typing import Any

from agents.turns import ModelTurn
from agents.workbench_protocol import PastTurn
from reviews.trail.chain.envelope import FormT, RecordedEntry
from sessions.builder.brief import write_brief
from sessions.builder.loop_detection import SAME_RESULTS, PhaseRecord
from sessions.builder.redaction import Redactor
from sessions.builder.stage_view import expected_s, view_of
from sessions.builder.tools import CARRY_OUT
from sessions.builder.tools.review_tools import format_review_answer
from sessions.builder.tools.stage_tools import SENT_BACK, describe_note_name, note_key
from sessions.builder.tools.tool_context import MOST_ARGUMENTS, OpenHelper, PhaseWork, ToolCallRefusal, read_arguments
from sessions.run.money import ledger
from sessions.session import CancelSignal, PauseSignal, Session
from specs.jobs.grant_and_claim import StageView
from specs.stages.registry import Stage
from specs.system.digests import digest_bytes
from specs.system.errors import AuditDamage, DiskUnwritable, PeergateError
from specs.system.vendors.conversation import ToolCall, ToolResult
from specs.trail.builder_tools import TOOLS
from specs.trail.gate_bodies import ToolCallEntry, ToolResultEntry, TurnEntry
from specs.trail.requested_review import ANSWERS, AnswerEntry, Mode, QuestionEntry
from specs.trail.session_bodies import SpendEntry
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
        self._turns = self._list_entries(TurnEntry)
        self._results = self._list_entries(ToolResultEntry)
        self._calls = self._list_entries(ToolCallEntry)
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
        """Return whether the phase has ended."""
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
        self._session.display.call_begins(intent.body.tool)
        return self._record_result(intent, call.id, *self._try_call(intent, call, arguments))

    def _try_call(self, intent: RecordedEntry[ToolCallEntry], call: ToolCall, arguments: str) -> tuple[str, bool]:
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
            self._session.display.say(f"{intent.body.tool}: {type(error).__name__}: {error}")
            return f"this tool failed ({type(error).__name__}) and did nothing that counts", True

    def _record_call(self, call: ToolCall) -> tuple[RecordedEntry[ToolCallEntry], str]:
        """Record a call; return it with its redacted arguments, which are carried out."""
        text, number = call.arguments, len(self._calls) + 1
        whole = len(text) <= MOST_ARGUMENTS
        arguments = self._wall.scrub_json(text) if whole else self._wall.scrub(text[:MOST_ARGUMENTS])
        body = ToolCallEntry(
            **self._at,
            number=number,
            turn=len(self._turns),
            call_id=self._wall.clean(call.id, 200),
            tool=self._wall.clean(call.name, 64),
            arguments=self._session.store.put(arguments.encode("utf-8", "replace")),
        )
        intent = self._session.trail.append(body, ToolCallEntry.key_of(self._prefix, number))
        self._calls.append(intent)
        return intent, arguments

    @property
    def sent_back(self) -> int:
        """How many submissions were sent back for their claims."""
        submitted = {call.key for call in self._calls if call.body.tool == "submit_stage"}
        results = [result.body for result in self._results]
        refused = [result for result in results if result.is_error and result.call in submitted]
        return sum(self._session.store.get(result.text).startswith(SENT_BACK.encode()) for result in refused)

    def history(self) -> tuple[PastTurn, ...]:
        """Return the recorded turns of this phase with the results of their calls."""
        store = self._session.store
        by_turn: dict[int, list[ToolResult]] = {}
        answered = {result.body.call: result.body for result in self._results}
        for call in self._calls:
            if (recorded := answered.get(call.key)) is not None:
                text, image = self._text(recorded.text), self._image(recorded.image)
                result = ToolResult(call=call.body.call_id, text=text, is_error=recorded.is_error, image=image)
                by_turn.setdefault(call.body.turn, []).append(result)
        return tuple(
            PastTurn(
                ModelTurn.model_validate(store.get_value(turn.body.answer)), tuple(by_turn.get(turn.body.number, ()))
            )
            for turn in self._turns
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
        number = len(self._turns) + 1
        body = TurnEntry(
            **self._at,
            number=number,
            answer=store.put_value(reported_turn),
            request=store.put(wall.scrub_bytes(request)),
            response=store.put(IN_PIECES if in_pieces else wall.scrub_bytes(response)),
            model=reported_turn.model,
            stop=turn.stop,
            usage=turn.usage.model_dump(mode="json") if turn.usage else None,
            usd=turn.usd,
            usd_is_measured=turn.usd_is_measured,
            reservation=reservation,
        )

        def record() -> RecordedEntry[TurnEntry]:
            recorded = self._session.trail.append(body, TurnEntry.key_of(self._prefix, number))
            ledger.settle(self._session.trail, recorded.body.reservation, recorded.body.usd)
            return recorded

        self._turns.append(self._session.trail.together(record))
        self.written += turn.usage.output_tokens if turn.usage else 0
        budget = self._session.resolved.spec.budget
        accounts = ledger.Accounts(self._session.trail.iterate(SpendEntry), budget)
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
            raise ToolCallRefusal(f"unknown tool '{name}'; the tools are {', '.join(tool.name for tool in self.tools)}")
        if self.phase not in tool.phases:
            raise ToolCallRefusal(f"{tool.name} is not open now: this is the phase '{self.phase}'")
        if len(call.arguments) > MOST_ARGUMENTS:
            arguments = call.arguments
        return CARRY_OUT[tool.name](self.work, read_arguments(tool, arguments))

    def _record_result(
        self, intent: RecordedEntry[ToolCallEntry], id: str, reported_text: str, is_error: bool
    ) -> ToolResult:
        """Record the result of a call; its effect on the phase has happened or follows from this entry."""
        text = self._wall.clean(reported_text, MOST_RESULT)
        body = ToolResultEntry(
            stage=intent.body.stage,
            attempt=intent.body.attempt,
            call=intent.key,
            text=self._session.store.put(text.encode()),
            is_error=is_error,
            ends_phase=self.work.done,
        )
        drawn, self.work.image = self.work.image, None
        if drawn is not None and not is_error:
            body = body.model_copy(update={"image": self._session.store.put(drawn)})
        key = ToolResultEntry.key_of(intent.key.partition("/")[2])
        self._results.append(self._session.trail.append(body, key))
        self._session.display.call(intent.body.tool, self._text(intent.body.arguments), text, is_error)
        self._look_after()
        return ToolResult(call=id, text=text, is_error=is_error, image=self._image(body.image))

    def _phase_record(self) -> PhaseRecord:
        return PhaseRecord(self._calls, self._results, len(self._turns), digest_bytes(INTERRUPTED.encode()))

    def _look_after(self) -> None:
        """Stop a builder that repeats itself."""
        if not self.done:
            self.gave_up = self._phase_record().why_stop()
            if self.gave_up:
                self._session.display.say(f"  {self._session.builder.name} is stopped: {self.gave_up}")

    def _answer_interrupted(self) -> None:
        """Answer calls during which the process died, with their effect; calls that end a phase are carried out now."""
        answered = {result.body.call for result in self._results}
        for intent in self._calls:
            if intent.key in answered:
                continue
            id, tool = intent.body.call_id, intent.body.tool
            if tool in ENDING:
                input_text = self._text(intent.body.arguments)
                text, is_error = self._try_call(intent, ToolCall(id=id, name=tool, arguments=input_text), input_text)
            else:
                effect = what_came_of(self._session, self._wall, intent)
                text, is_error = effect or INTERRUPTED, effect is None
            self._record_result(intent, id, text, is_error)

    def _end_again(self) -> None:
        """End the phase if a recorded call ended it before the process died, unless an amendment forbids it since."""
        calls = {call.key: call for call in self._calls}
        for last in [result.body for result in self._results if result.body.ends_phase]:
            call = calls[last.call]
            tool = next((tool for tool in self.tools if tool.name == call.body.tool), None)
            if tool is None or self.work.done:
                continue
            self.work.call = call.key
            with suppress(ToolCallRefusal):
                CARRY_OUT[tool.name](self.work, read_arguments(tool, self._text(call.body.arguments)))

    def _list_entries(self, form: type[FormT]) -> list[RecordedEntry[FormT]]:
        """Return the entries of a kind of this phase."""
        entries = self._session.trail.iterate(form)
        return [entry for entry in entries if entry.key.partition("/")[2].rpartition(".")[0] == self._prefix]


def what_came_of(session: Session, wall: Redactor, call: RecordedEntry[ToolCallEntry]) -> str | None:
    """Return the result of a call by its recorded effect; None if it had none."""
    tool = call.body.tool
    if tool in _NOTES and session.trail.find(note_key(call.key)) is not None:
        return describe_note_name(session, note_key(call.key))
    if tool in _REVIEWS:
        return _review(session, wall, call, _REVIEWS[tool])
    return None


def _review(session: Session, wall: Redactor, call: RecordedEntry, mode: Mode) -> str | None:
    """Return the recorded answer to the request that a call sent, if there is one."""
    # One call is carried out at a time, so requests after its entry are its own.
    later = (entry.body for entry in session.trail.iterate(QuestionEntry) if entry.seq > call.seq)
    sent = next((body for body in later if body.mode == mode and body.by == session.builder.name), None)
    result = session.find(AnswerEntry, sent.number) if sent else None
    if result is None:
        return None
    answered = result.body
    answer = ANSWERS[mode].model_validate_json(session.store.get(answered.answer)) if answered.answer else None
    return format_review_answer(wall, answered, answer) if answer else None
