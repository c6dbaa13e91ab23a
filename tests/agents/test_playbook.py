from __future__ import annotations

from typing import Any

from agents.playbook import Playbook, propose_plan
from specs.jobs.grant_and_claim import StageView
from specs.system.vendors.conversation import ToolCall, ToolResult
from specs.trail.builder_tools import AskPerson, LaunchStage


def view(**changes: Any) -> StageView:
    plain: dict[str, Any] = {
        "stage": "train",
        "kind": "sft",
        "attempt": 2,
        "opened_by": "revision",
        "objective": "o",
        "parameters": {"learning_rate": 1e-5},
        "changes": {"epochs": 2},
        "ranges": {"learning_rate": (1e-6, 1e-4), "epochs": (1, 3)},
        "required": {"learning_rate": 5e-5},
    }
    return StageView.model_validate(plain | changes)


def test_a_stage_that_is_entered_anew_is_the_spec_to_the_letter() -> None:
    for attempt in (1, 3):
        wish = propose_plan(view(opened_by="approval", attempt=attempt, required={}, changes={}))
        assert isinstance(wish, LaunchStage) and (wish.stage, wish.changes) == ("train", {})


def test_a_required_change_is_added_to_what_was_changed_before() -> None:
    wish = propose_plan(view())
    assert isinstance(wish, LaunchStage) and wish.changes == {"epochs": 2, "learning_rate": 5e-5}


def test_a_required_change_outside_the_ranges_goes_to_a_person() -> None:
    for required in ({"learning_rate": 1e-3}, {"batch_size": 4}, {}):
        assert isinstance(propose_plan(view(required=required)), AskPerson)


def test_a_person_may_ask_for_the_same_again() -> None:
    wish = propose_plan(view(opened_by="retry", required={}))
    assert isinstance(wish, LaunchStage) and wish.changes == {"epochs": 2}


class SingleCall:
    """A workbench that takes down what it is called with."""

    def __init__(self, phase: str) -> None:
        self.phase, self.view, self.brief, self.tools, self.done = phase, view(), "", (), False
        self.calls: list[ToolCall] = []

    def call(self, call: ToolCall) -> ToolResult:
        self.calls.append(call)
        return ToolResult(call=call.id, text="")


def test_it_makes_one_call_where_one_is_needed_and_states_no_numbers() -> None:
    made: dict[str, list[tuple[str, str]]] = {}
    for phase in ("plan", "watch", "submit"):
        bench: Any = SingleCall(phase)
        Playbook().work(bench)
        made[phase] = [(call.name, call.arguments) for call in bench.calls]
    assert [name for name, _ in made["plan"]] == ["launch_stage"]
    assert made["watch"] == [] and made["submit"] == [("submit_stage", "{}")]
