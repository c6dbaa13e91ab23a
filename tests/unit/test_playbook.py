from __future__ import annotations

from typing import Any

from agents.playbook import Playbook
from specs.grants import StageView


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
        proposal = Playbook().propose(view(opened_by="approval", attempt=attempt, required={}))
        assert (proposal.changes, proposal.escalate) == ({}, False)


def test_a_required_change_is_added_to_what_was_changed_before() -> None:
    assert Playbook().propose(view()).changes == {"epochs": 2, "learning_rate": 5e-5}


def test_a_required_change_outside_the_ranges_goes_to_a_person() -> None:
    assert Playbook().propose(view(required={"learning_rate": 1e-3})).escalate
    assert Playbook().propose(view(required={"batch_size": 4})).escalate
    assert Playbook().propose(view(required={})).escalate


def test_a_person_may_ask_for_the_same_again() -> None:
    proposal = Playbook().propose(view(opened_by="retry", required={}))
    assert (proposal.changes, proposal.escalate) == ({"epochs": 2}, False)


def test_it_states_no_numbers() -> None:
    assert Playbook().propose(view()).claims == ()
