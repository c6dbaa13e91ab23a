"""Every check of the design: passes on a sound one, fails on its flaw."""

from __future__ import annotations

from pathlib import Path

import pytest

from reviews.gate.design_checks import design_checks
from specs.stages.artifacts import Item
from tests.factories.evidence_on_disk import heldout_items, prompt_items, resolved_spec


def design(folder: Path, *changes: tuple[str, str], leaked: tuple[Item, ...] = ()) -> dict[str, str]:
    resolved = resolved_spec(folder, *changes)
    results = design_checks(resolved, heldout_items(), {"prompts": (*prompt_items(), *leaked)})
    return {one.id: one.status for one in results}


POWERED = (("  minimum_effect: 0.1\n", "  minimum_effect: 0.8\n"),)


def test_a_sound_design_passes(tmp_path: Path) -> None:
    found = design(tmp_path, *POWERED)
    assert {id for id, status in found.items() if status != "PASS"} == {"design.seeds", "design.answers"}
    assert found["design.answers"] == "NOT_APPLICABLE"


def test_too_little_power_fails_and_cannot_be_repaired(tmp_path: Path) -> None:
    resolved = resolved_spec(tmp_path)
    result = next(one for one in design_checks(resolved, heldout_items(), {}) if one.id == "design.power")
    assert (result.status, result.repairable) == ("FAIL", False)
    assert "items would do" in result.detail


@pytest.mark.parametrize(
    ("prompt", "how"),
    [
        ("Write one line on elm.", "exact"),
        ("WRITE one line -- on ELM!", "normalised"),
        ("please write one line on elm, and do it today with your own words and good cheer.", None),
    ],
)
def test_leaks_stop_the_design_and_are_shown(tmp_path: Path, prompt: str, how: str | None) -> None:
    leaked = Item(id="x", group="x", kind="lowercase", prompt=prompt, constraint={})
    resolved = resolved_spec(tmp_path)
    results = design_checks(resolved, heldout_items(), {"prompts": (*prompt_items(), leaked)})
    result = next(one for one in results if one.id == "design.overlap")
    assert [row["how"] for row in result.shown] == ([how] if how else [])
    assert result.status == ("FAIL" if how else "PASS")


def test_a_shared_topic_stops_the_design(tmp_path: Path) -> None:
    shared = Item(id="x", group="hg1", kind="lowercase", prompt="Something else entirely.", constraint={})
    assert design(tmp_path, *POWERED, leaked=(shared,))["design.groups"] == "FAIL"


def test_repeated_prompts_are_a_warning(tmp_path: Path) -> None:
    again = tuple(item.model_copy(update={"id": f"again-{item.id}"}) for item in prompt_items())
    assert design(tmp_path, *POWERED, leaked=again)["design.duplicates"] == "WARN"


def test_a_reviewer_of_the_builders_vendor_stops_the_design(tmp_path: Path) -> None:
    resolved = resolved_spec(tmp_path, *POWERED)
    same = resolved.spec.builder.model_copy(update={"vendor": resolved.spec.reviewer.vendor})
    own = resolved.model_copy(update={"spec": resolved.spec.model_copy(update={"builder": same})})
    result = next(one for one in design_checks(own, heldout_items(), {}) if one.id == "design.independence")
    assert (result.status, result.repairable) == ("FAIL", False)


def test_stages_that_cost_more_than_the_budget_stop_the_design(tmp_path: Path) -> None:
    resolved = resolved_spec(tmp_path, *POWERED)
    poor = resolved.spec.budget.model_copy(update={"max_cost_usd": 0.01})
    own = resolved.model_copy(update={"spec": resolved.spec.model_copy(update={"budget": poor})})
    result = next(one for one in design_checks(own, heldout_items(), {}) if one.id == "design.cost")
    assert (result.status, result.repairable) == ("FAIL", False)


def test_a_held_out_question_asked_twice_stops_the_design(tmp_path: Path) -> None:
    again = heldout_items()[0].model_copy(update={"id": "again", "prompt": heldout_items()[0].prompt.upper()})
    results = design_checks(resolved_spec(tmp_path, *POWERED), (*heldout_items(), again), {})
    result = next(one for one in results if one.id == "design.unique")
    assert (result.status, result.repairable) == ("FAIL", False)
    assert [(row["heldout"], row["repeats"]) for row in result.shown] == [("again", heldout_items()[0].id)]


def test_a_held_out_question_asked_nearly_twice_is_shown_to_the_reviewer(tmp_path: Path) -> None:
    first = heldout_items()[0]
    long = f"{first.prompt} Mind that somebody reads it aloud at a table with many guests"
    near = [first.model_copy(update={"id": id, "prompt": text}) for id, text in (("one", long), ("two", f"{long}, so"))]
    results = design_checks(resolved_spec(tmp_path, *POWERED), (*heldout_items(), *near), {})
    result = next(one for one in results if one.id == "design.unique")
    assert result.status == "WARN" and ("two", "one") in [(row["train"], row["heldout"]) for row in result.shown]
