"""The builder that asks a model, turn by turn, until the phase is done.

A phase's conversation is built from the brief and the recorded turns alone, so a restart sends the same again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from pathlib import Path

from agents.providers.turn_model import Counted, Model, make_model, take_turn
from agents.providers.turn_request import readable
from agents.turns import Message, Stop, ToolCall, ToolResult, Turn
from agents.workbench_protocol import PastTurn, Workbench
from specs.digests import digest_bytes
from specs.vendors.parties import Builder as BuilderSpec
from specs.vendors.untrusted_text import mark

LONGEST = 240_000
"""Characters of results in a conversation before older ones are replaced, some 60,000 tokens."""
KEPT_TURNS = 4
"""The results of the newest turns are never replaced."""
SHORT = 600
"""Characters of a result that is never replaced."""

_LAST = "A second answer without a call ends your work on this phase."
EXPECTED: dict[Stop, str] = {
    "end": "Your answer called no tool, so nothing happened. This phase ends only by a tool call: continue with one, "
    f"or with ask_person where that is open. {_LAST}",
    "length": "Your answer ended at the limit of its length, and nothing in it was carried out. Answer shorter: one "
    f"call at a time, long texts in parts. {_LAST}",
    "refusal": "Your answer was a refusal, so nothing happened. Continue with a tool call, or say what stops you with "
    f"ask_person where that is open. {_LAST}",
    "tool_use": "",
}
"""The reply to a turn without a call."""
PROMPTS = Path(__file__).parent / "prompts"
SILENT_TURNS = 2
"""Turns in a row without a call, after which a person is asked; the first was told what is expected."""


class ModelBuilder:
    """An :class:`agents.workbench_protocol.Builder` that asks a model, wired when it is first needed."""

    def __init__(self, spec: BuilderSpec, environ: Mapping[str, str] = os.environ) -> None:
        self._spec = spec
        self._environ = environ
        self._system = (PROMPTS / "builder.md").read_text(encoding="utf-8")
        self._helper = (PROMPTS / "helper.md").read_text(encoding="utf-8")
        self.name = f"{spec.vendor}:{spec.model}"

    @cached_property
    def model(self) -> Model:
        """The model; raises UserError if its key, package or price is missing."""
        return make_model(self._spec, self._environ)

    def work(self, bench: Workbench) -> None:
        """Take turns until the phase is done, continuing from what is recorded; raises as the protocol says."""
        self._continue(bench, self._system)

    def help(self, bench: Workbench) -> None:
        """Work on a bounded task, as a helper that knows only its bench; raises as the protocol says."""
        self._continue(bench, self._helper)

    def _continue(self, bench: Workbench, system: str) -> None:
        # Read once: it states the money that is left, and no cache holds a conversation whose beginning changes.
        brief, tools = bench.brief, bench.tools
        past = list(bench.history())
        before: Counted | None = None
        if past:
            past[-1] = _carried_out(bench, past[-1])
        while not bench.done:
            silent = takewhile(lambda one: not one.turn.calls, reversed(past))
            if sum(1 for _ in silent) >= SILENT_TURNS:
                _give_up(bench, past[-1].turn)
                return
            asking = self.model.asking(system, tools, conversation(brief, past))
            turn = take_turn(bench, self.model, asking, self._spec.outage_s, before)
            before = self.model.counted(asking, turn)
            past.append(_carried_out(bench, PastTurn(turn, ())))


def _carried_out(bench: Workbench, past: PastTurn) -> PastTurn:
    """Carry out the calls of a turn that have no result yet, in order, until the phase is done."""
    results: list[ToolResult] = []
    known = {result.call: result for result in past.results}
    for call in past.turn.calls:
        if call.id in known:
            results.append(known[call.id])
        elif not bench.done:
            results.append(bench.call(call))
    return PastTurn(past.turn, tuple(results))


def _give_up(bench: Workbench, turn: Turn) -> None:
    """Ask a person, if the phase has a tool for it; elsewhere the phase ends when the builder returns."""
    why = {"length": "ended at the limit of their length", "refusal": "were refusals"}.get(turn.stop, "called no tool")
    reason = f"the model's last {SILENT_TURNS} answers {why}"
    if any(tool.name == "ask_person" and bench.phase in tool.phases for tool in bench.tools):
        bench.call(ToolCall(id="gave_up", name="ask_person", arguments=json.dumps({"reason": reason})))


def conversation(brief: str, past: Sequence[PastTurn]) -> tuple[Message, ...]:
    """Return the messages of the next request: roles alternate, the next message answers each call."""
    replaced = _replaced(past)
    messages = [Message("user", text=brief)]
    for number, (turn, results) in enumerate(past):
        messages.append(Message("assistant", turn.text, turn.calls, turn.verbatim))
        if not turn.calls:
            messages.append(Message("user", text=EXPECTED[turn.stop]))
            continue
        by_call = {result.call: result for result in results}
        shown: list[ToolResult] = []
        for call in turn.calls:
            result = by_call.get(call.id) or ToolResult(call=call.id, text="it was not carried out", is_error=True)
            if number < replaced and len(result.text) > SHORT:
                text = _line(call, result)
            else:
                text = mark("error" if result.is_error else "result", result.text)
            shown.append(result.model_copy(update={"text": text}))
        messages.append(Message("user", results=tuple(shown)))
    return tuple(messages)


def _line(call: ToolCall, result: ToolResult) -> str:
    """Return one line in place of a long result; the artifact's name is the model's word."""
    named = readable(call.arguments).get("name")
    what = f"{named}, " if isinstance(named, str) and len(named) <= SHORT // 4 else ""
    digest = digest_bytes(result.text.encode())
    return mark("left out", f"{what}{len(result.text)} characters, {digest}; call the tool again if you need them")


def _replaced(past: Sequence[PastTurn]) -> int:
    """Return of how many turns the long results are replaced.

    It grows in steps, so that between two steps every request begins with the bytes of the one before and is cached.
    """
    replaced, length = 0, 0
    sizes = [sum(len(one.text) for one in turn.results if len(one.text) > SHORT) for turn in past]
    for number, size in enumerate(sizes):
        length += size
        if length > LONGEST and number + 1 > KEPT_TURNS:
            replaced = number + 1 - KEPT_TURNS
            length = sum(sizes[replaced : number + 1])
    return replaced
