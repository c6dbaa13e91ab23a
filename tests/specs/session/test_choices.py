"""Choices: parameters that are words or switches, and the values that a builder may give them."""

from __future__ import annotations

from pathlib import Path

import pytest

from specs.stages.registry import resolve_parameters
from testing.factories.evidence_on_disk import resolved_spec
from testing.factories.spec_files import list_problems, write_spec

CHOICES = ("    max_minutes: 30\n", "    max_minutes: 30\n    choices: {scheduler: [linear, cosine]}\n")


def test_a_parameter_of_choice_is_moved_inside_its_choices(tmp_path: Path) -> None:
    stage = resolved_spec(tmp_path, CHOICES).spec.stage("train")
    assert stage.parameters.scheduler == "linear"
    assert resolve_parameters(stage, {"scheduler": "cosine"}).scheduler == "cosine"
    for value in ("constant", True, 1, None):
        with pytest.raises(ValueError, match="is not among the registered choices"):
            resolve_parameters(stage, {"scheduler": value})
    with pytest.raises(ValueError, match="'method' has no allowed range in stage 'train'"):
        resolve_parameters(stage, {"method": "lora"})


def test_choices_that_are_not_stated_leave_a_registration_as_it_was(tmp_path: Path) -> None:
    resolved = resolved_spec(tmp_path)
    assert "choices" not in resolved.spec.model_dump_json()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{nothing: [a, b]}", "sft has no parameter 'nothing'"),
        ("{scheduler: [cosine, constant]}", "scheduler = 'linear' is not among its own choices"),
        ("{scheduler: [linear, backwards]}", "scheduler cannot be 'backwards' in this stage"),
        ("{scheduler: [linear]}", "at least 2"),
    ],
)
def test_choices_that_cannot_be_made_are_one_problem_at_their_place(tmp_path: Path, text: str, problem: str) -> None:
    change = (CHOICES[0], f"    max_minutes: 30\n    choices: {text}\n")
    (message,) = list_problems(write_spec(tmp_path, change))
    assert problem in message


def test_an_arm_of_the_analysis_has_no_choices(tmp_path: Path) -> None:
    arm = "parameters: {max_new_tokens: 32, seed: 7}\n    gate:"
    change = (arm, f"choices: {{device: [auto, cpu]}}\n    {arm}")
    (message,) = list_problems(write_spec(tmp_path, change))
    assert "this stage is an arm of the registered analysis, a builder cannot move its parameters" in message
