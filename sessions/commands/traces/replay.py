"""Asks every teacher in every chosen state, once: a reply that was paid for is kept before the next call is made.

``replies.jsonl`` holds a line before each call and one after it. A call without its reply, because the process was
killed, may have been billed: its cap counts as spent, and the call is repeated.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from agents.turn_model import LONGEST_WAIT_S, TurnModel
from specs.system.digests import digest_value
from specs.system.errors import AuditDamage, BudgetExceeded, BuilderUnavailable
from specs.system.masking import current
from specs.system.regular_files import read_regular
from specs.system.text import plural
from specs.system.vendors.conversation import ConversationMessage, ModelRequest
from specs.system.vendors.http_exchange import RETRIES, backoff_s
from specs.system.vendors.model_call import FailedCall
from specs.traces.teachers import FailureRecord, QuestionRecord, ReplyRecord, Teacher, TeacherFile
from training.rules.traces.pairs import AnsweredState
from training.rules.traces.rendering import INSTRUCTIONS
from training.rules.traces.shown_states import ShownState, teacher_prompt_of

REPLIES = "replies.jsonl"
_ROWS: dict[str, type[QuestionRecord | ReplyRecord | FailureRecord]] = {
    "question": QuestionRecord,
    "reply": ReplyRecord,
    "failure": FailureRecord,
}
_STOPS = {"end": "end", "tool_use": "end", "length": "length", "refusal": "refusal"}


class TeacherCall(NamedTuple):
    """One question to one teacher."""

    key: str
    state_prompt: ShownState
    teacher: Teacher
    model: TurnModel
    request: ModelRequest

    @property
    def cap_usd(self) -> float:
        """Return the most it can cost."""
        return self.model.cap_usd(self.request)


def calls_of(
    file: TeacherFile, models: Mapping[str, TurnModel], visible: Sequence[ShownState]
) -> Iterator[TeacherCall]:
    """Yield every question; its key names all that the answer depends on."""
    for value in visible:
        for teacher in file.teachers:
            model = models[teacher.id]
            request = model.request(INSTRUCTIONS, (), (ConversationMessage("user", value.prompt),))
            of = [teacher.id, teacher.vendor, teacher.model, teacher.base_url, teacher.max_output_tokens]
            key = digest_value([*of, INSTRUCTIONS, value.state.id, value.prompt])
            yield TeacherCall(key, value, teacher, model, request)


class Replies:
    """The replies of a folder, kept as they come."""

    def __init__(self, folder: Path) -> None:
        """Read existing answers; raises AuditDamage if a line other than the last is not readable."""
        self._path = folder / REPLIES
        self.by_key: dict[str, ReplyRecord] = {}
        self.spent_usd = 0.0
        open_calls: dict[str, float] = {}
        data = read_regular(self._path) if self._path.exists() else b""
        whole, _, cut = data.rpartition(b"\n")
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                row = _ROWS[json.loads(line)["type"]].model_validate_json(line)
            except (ValueError, TypeError, KeyError) as error:
                raise AuditDamage("is not a line of a replies file", where=f"{self._path}:{number}") from error
            if isinstance(row, QuestionRecord):
                # A second question without an answer in between: the first may have been billed as well.
                self.spent_usd += open_calls.pop(row.key, 0.0)
                open_calls[row.key] = row.usd
            else:
                open_calls.pop(row.key, None)
                self.spent_usd += row.usd
                if isinstance(row, ReplyRecord):
                    self.by_key[row.key] = row
        self.spent_usd += sum(open_calls.values())
        if cut:
            # Killed while it wrote: the line is of no use.
            with self._path.open("r+b") as file:
                file.truncate(len(data) - len(cut))

    def keep(self, row: QuestionRecord | ReplyRecord | FailureRecord) -> None:
        """Append a line, and wait for the disk."""
        with self._path.open("ab") as file:
            file.write(row.model_dump_json().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if not isinstance(row, QuestionRecord):
            self.spent_usd += row.usd
        if isinstance(row, ReplyRecord):
            self.by_key[row.key] = row


def replay(
    calls: Iterable[TeacherCall], replies: Replies, budget_usd: float, progress: Callable[[str], None] | None = None
) -> None:
    """Make every call that has no reply.

    Raises:
        BudgetExceeded: the next call exceeds the remaining budget; earlier answers are kept.
        BuilderUnavailable: a teacher gives no answer; what was answered is kept.
    """
    waiting = [call for call in calls if call.key not in replies.by_key]
    for number, call in enumerate(waiting, 1):
        cap = call.cap_usd
        if replies.spent_usd + cap > budget_usd:
            message = (
                f"the next call may cost {cap:.4f} USD, and {replies.spent_usd:.4f} of {budget_usd:.4f} USD are spent"
            )
            text = f"{len(waiting) - number + 1} of {plural(len(waiting), 'call is', 'calls are')} left"
            where, hint = f"teacher '{call.teacher.id}'", f"{text}; repeat it with a larger --budget"
            raise BudgetExceeded(message, where=where, hint=hint)
        if progress is not None:
            progress(f"call {number} of {len(waiting)}: {call.teacher.id}, {replies.spent_usd:.4f} USD spent")
        _ask(call, cap, replies)


def _ask(call: TeacherCall, cap: float, replies: Replies) -> None:
    """Ask until there is an answer; a call that may have been billed counts as spent."""
    for repeats in range(RETRIES + 1):
        replies.keep(QuestionRecord(key=call.key, usd=cap))
        try:
            turn, _, _ = call.model.call(call.request, cap)
        except FailedCall as failure:
            replies.keep(FailureRecord(key=call.key, usd=cap if failure.may_be_billed else 0.0, why=str(failure)))
            if not failure.can_repeat or repeats == RETRIES:
                hint = "repeat the command" + ("" if failure.can_repeat else " when the cause is fixed")
                where = f"teacher '{call.teacher.id}'"
                raise BuilderUnavailable(f"gave no answer: {failure}", where=where, hint=hint) from failure
            time.sleep(backoff_s(repeats, failure.wait_s, LONGEST_WAIT_S))
            continue
        reply = ReplyRecord(
            key=call.key,
            state=call.state_prompt.state.id,
            teacher=call.teacher.id,
            model=turn.model,
            text=current().text(turn.text),
            stop=_STOPS[turn.stop],  # pyright: ignore[reportArgumentType]
            usd=turn.usd,
            usd_is_measured=turn.usd_is_measured,
        )
        replies.keep(reply)
        return


def collect_replies(calls: Iterable[TeacherCall], replies: Replies) -> list[AnsweredState]:
    """Return each state with the replies that are there."""
    results: dict[str, AnsweredState] = {}
    for call in calls:
        state = results.setdefault(
            call.state_prompt.state.id, AnsweredState(call.state_prompt.state, teacher_prompt_of(call.state_prompt), {})
        )
        if (reply := replies.by_key.get(call.key)) is not None:
            results[call.state_prompt.state.id] = state._replace(replies={**state.replies, call.teacher.id: reply})
    return list(results.values())
