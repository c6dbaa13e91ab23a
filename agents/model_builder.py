"""The builder that asks a model: turn by turn, until the phase is done."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from agents.phase_conversation import conversation
from agents.providers.turn_model import Counted, Model, make_model
from agents.providers.turn_retries import take_turn
from agents.turns import ToolCall, ToolResult, Turn
from agents.workbench_protocol import PastTurn, Workbench
from specs.session.session_spec import Builder as BuilderSpec

PROMPTS = Path(__file__).parent / "prompts"
SILENT_TURNS = 2
"""After so many turns in a row without a call a person is asked: the first of them was told what is expected."""


class ModelBuilder:
    """An :class:`agents.builder.Builder` that asks a model, which is wired when it is first needed."""

    def __init__(self, spec: BuilderSpec, environ: Mapping[str, str] = os.environ) -> None:
        self._spec = spec
        self._environ = environ
        self._system = (PROMPTS / "builder.md").read_text(encoding="utf-8")
        self._helper = (PROMPTS / "helper.md").read_text(encoding="utf-8")
        self.name = f"{spec.vendor}:{spec.model}"

    @cached_property
    def model(self) -> Model:
        """The model.

        Raises:
            UserError: its key is not set, its package is not installed, or no price is known of it.
        """
        return make_model(self._spec, self._environ)

    def work(self, bench: Workbench) -> None:
        """Take turns until the phase is done, going on from what is on record.

        Raises:
            BuilderUnavailable: the model cannot be reached; the session pauses and nothing is lost.
            BudgetExceeded: what is left for the builder does not reach.
        """
        self._go_on(bench, self._system)

    def help(self, bench: Workbench) -> None:
        """Work on a bounded task, as a helper that knows nothing but its bench.

        Raises:
            BuilderUnavailable: the model cannot be reached.
            BudgetExceeded: what is left for the task does not reach.
        """
        self._go_on(bench, self._helper)

    def _go_on(self, bench: Workbench, system: str) -> None:
        # Read once: it tells the money that is left, and a conversation that changes where it begins is cached nowhere.
        brief, tools = bench.brief, bench.tools
        past = list(bench.history())
        before: Counted | None = None
        if past:
            past[-1] = _carried_out(bench, past[-1])
        while not bench.done:
            if _silent(past) >= SILENT_TURNS:
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


def _silent(past: list[PastTurn]) -> int:
    """Return how many of the newest turns in a row called nothing."""
    count = 0
    for one in reversed(past):
        if one.turn.calls:
            break
        count += 1
    return count


def _give_up(bench: Workbench, turn: Turn) -> None:
    """Have a person asked, where the phase has a way to; elsewhere it ends when the builder returns."""
    why = {"length": "ended at the limit of their length", "refusal": "were refusals"}.get(turn.stop, "called no tool")
    reason = f"the model's last {SILENT_TURNS} answers {why}"
    if any(tool.name == "ask_person" and bench.phase in tool.phases for tool in bench.tools):
        bench.call(ToolCall(id="gave_up", name="ask_person", arguments=json.dumps({"reason": reason})))
