"""The builder that asks a model, turn by turn, until the phase is done.

A phase's conversation is built from the brief and the recorded turns alone, so a restart sends the same again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cached_property
from itertools import takewhile
from pathlib import Path

from agents.conversation import SIZES, conversation, next_step
from agents.turn_model import TokenCount, TooLong, TurnModel, make_model, take_turn
from agents.turns import ModelTurn
from agents.workbench_protocol import PastTurn, Workbench
from specs.system.errors import BuilderUnavailable
from specs.system.vendors.conversation import ToolCall, ToolResult
from specs.system.vendors.parties import BuilderSpec as BuilderSpec

PROMPTS = Path(__file__).parent / "prompts"
SILENT_TURNS = 2
"""Turns in a row without a call, after which a person is asked; after the first the model hears what is expected."""


class ModelBuilder:
    """An :class:`agents.workbench_protocol.Builder` that asks a model, wired when it is first needed."""

    def __init__(self, spec: BuilderSpec, environ: Mapping[str, str] = os.environ) -> None:
        self._spec = spec
        self._environ = environ
        self._system = (PROMPTS / "builder.md").read_text(encoding="utf-8")
        self._helper = (PROMPTS / "helper.md").read_text(encoding="utf-8")
        self.name = f"{spec.vendor}:{spec.model}"

    @cached_property
    def model(self) -> TurnModel:
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
        brief, tools, wait_s = bench.brief, bench.tools, bench.wait_s
        past = list(bench.history())
        before: TokenCount | None = None
        # As the last request was: a restart sends the same again.
        shortened = past[-1].turn.shortened if past else 0
        if past:
            past[-1] = _carried_out(bench, past[-1])
        while not bench.done:
            silent = takewhile(lambda past_turn: not past_turn.turn.calls, reversed(past))
            if sum(1 for _ in silent) >= SILENT_TURNS:
                _give_up(bench, past[-1].turn)
                return
            request = self.model.request(system, tools, conversation(brief, past, shortened), shortened, wait_s)
            try:
                turn = take_turn(bench, self.model, request, self._spec.outage_s, before)
            except TooLong as error:
                if (step := next_step(brief, past, shortened)) is None:
                    message = f"even its shortest conversation is too long for the model: {error}"
                    hint = "name a model with a larger window: `peergate amend`"
                    raise BuilderUnavailable(message, where=self.model.name, hint=hint) from error
                shortened = step
                bench.wait(0.0, f"the conversation is too long for the model and is shortened, step {shortened}")
                continue
            if is_window_full(turn, self._spec.max_output_tokens):
                shortened = min(shortened + 1, len(SIZES) - 1)
            before = self.model.read_token_count(request, turn)
            past.append(_carried_out(bench, PastTurn(turn, ())))


def is_window_full(turn: ModelTurn, most: int) -> bool:
    """Return whether an answer ended because the model's window was full, and not at its own limit."""
    return turn.stop == "length" and turn.usage is not None and turn.usage.output_tokens < most


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


def _give_up(bench: Workbench, turn: ModelTurn) -> None:
    """Ask a person, if the phase has a tool for it; elsewhere the phase ends when the builder returns."""
    why = {"length": "ended at the limit of their length", "refusal": "were refusals"}.get(turn.stop, "called no tool")
    reason = f"the model's last {SILENT_TURNS} answers {why}"
    if any(tool.name == "ask_person" and bench.phase in tool.phases for tool in bench.tools):
        bench.call(ToolCall(id="gave_up", name="ask_person", arguments=json.dumps({"reason": reason})))
