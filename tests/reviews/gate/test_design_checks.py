"""Every check of the design: passes on a sound one, fails on its flaw."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reviews.checks.leakage_checks import common_subject
from reviews.stages.finetuning.scaling_checks import most_rows, schedules_of
from specs.session.session_spec import SessionSpec
from specs.stages.base.artifacts import Item
from specs.stages.base.stage import ParameterRange
from specs.trail.verdict import CheckResult
from testing.factories.evidence_on_disk import design_results, heldout_items, prompt_items, resolved_spec


def design(folder: Path, *changes: tuple[str, str], leaked: tuple[Item, ...] = ()) -> dict[str, str]:
    resolved = resolved_spec(folder, *changes)
    results = design_results(resolved, heldout_items(), {"prompts": (*prompt_items(), *leaked)})
    return {result.id: result.status for result in results}


POWERED = (("  minimum_effect: 0.1\n", "  minimum_effect: 0.8\n"),)


def test_a_sound_design_passes(tmp_path: Path) -> None:
    results = design(tmp_path, *POWERED)
    assert {id for id, status in results.items() if status != "PASS"} == {
        "design.seeds",
        "design.principles",
        "design.transfer",
        "design.answers",
        "design.common_answer",
        "design.distinct",
        "design.drawn",
        "design.scaling",
        "design.brought",
        "design.alike",
    }
    assert results["design.answers"] == results["design.scaling"] == "NOT_APPLICABLE"


def test_too_little_power_fails_and_cannot_be_repaired(tmp_path: Path) -> None:
    resolved = resolved_spec(tmp_path)
    result = next(check for check in design_results(resolved, heldout_items(), {}) if check.id == "design.power")
    assert (result.status, result.repairable) == ("FAIL", False)
    assert "items would do" in result.detail


@pytest.mark.parametrize(("power", "low"), [(0.05, True), (0.49, True), (0.5, False)])
def test_a_power_that_mostly_misses_the_effect_stops_the_design(tmp_path: Path, power: float, low: bool) -> None:
    resolved = resolved_spec(tmp_path)
    analysis = resolved.spec.analysis.model_copy(update={"power": power})
    resolved = resolved.model_copy(update={"spec": resolved.spec.model_copy(update={"analysis": analysis})})
    result = next(
        check_result
        for check_result in design_results(resolved, heldout_items(), {})
        if check_result.id == "design.power"
    )
    assert ("a null says nothing" in result.detail) == low and result.status == "FAIL", "of so few items otherwise"


@pytest.mark.parametrize(("alpha", "lax"), [(0.1, False), (0.11, True)])
def test_a_level_at_which_chance_is_accepted_stops_the_design(tmp_path: Path, alpha: float, lax: bool) -> None:
    resolved = resolved_spec(tmp_path)
    analysis = resolved.spec.analysis.model_copy(update={"alpha": alpha})
    resolved = resolved.model_copy(update={"spec": resolved.spec.model_copy(update={"analysis": analysis})})
    result = next(check for check in design_results(resolved, heldout_items(), {}) if check.id == "design.power")
    assert result.detail.startswith("alpha is 0.11: ") == lax and result.status == "FAIL", "of so few items otherwise"


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
    results = design_results(resolved, heldout_items(), {"prompts": (*prompt_items(), leaked)})
    result = next(check for check in results if check.id == "design.overlap")
    assert [row["how"] for row in result.rows] == ([how] if how else [])
    assert result.status == ("FAIL" if how else "PASS")


def test_a_shared_topic_stops_the_design(tmp_path: Path) -> None:
    shared = Item(id="x", group="hg1", kind="lowercase", prompt="Something else entirely.", constraint={})
    assert design(tmp_path, *POWERED, leaked=(shared,))["design.groups"] == "FAIL"


@pytest.mark.parametrize(
    ("heldout", "training", "warns"),
    [
        ("Describe the giant pandas of {}.", "Describe the {}.", True),
        ("Describe the {} [kind: a].", "Describe the {}.", True),
        ("Describe the {}.", "Describe the {}.", False),
        ("Describe the giant pandas of {}.", "Describe the giant pandas near {}.", False),
    ],
)
def test_words_of_most_held_out_prompts_that_no_training_prompt_has_are_named(
    heldout: str, training: str, warns: bool
) -> None:
    places = [f"{first}{second}" for first in "abcdefgh" for second in ("ville", "burg", "ton")]
    items = [Item(id=p, group=p, kind="k", prompt=heldout.format(p), constraint={}) for p in places]
    outcome = common_subject([training.format(f"x{place}") for place in places], items)
    assert (outcome is not None and outcome.status == "WARN") == warns
    assert common_subject([training.format("xville")], items) is None, "too few to say what is usual"


@pytest.mark.parametrize(("groups", "status"), [(1, "FAIL"), (3, "FAIL"), (4, "PASS"), (12, "PASS")])
def test_held_out_items_of_few_groups_stop_the_design(tmp_path: Path, groups: int, status: str) -> None:
    items = tuple(
        item.model_copy(update={"group": f"hg{place % groups}"}) for place, item in enumerate(heldout_items())
    )
    checks = design_results(resolved_spec(tmp_path, *POWERED), items, {"prompts": prompt_items()})
    assert {check.id: check.status for check in checks}["design.groups"] == status


def test_training_prompts_of_which_most_are_repeats_stop_the_design(tmp_path: Path) -> None:
    again = tuple(item.model_copy(update={"id": f"{time}-{item.id}"}) for time in range(2) for item in prompt_items())
    assert design(tmp_path, *POWERED, leaked=again)["design.duplicates"] == "FAIL"


def test_repeated_prompts_are_a_warning(tmp_path: Path) -> None:
    again = tuple(item.model_copy(update={"id": f"again-{item.id}"}) for item in prompt_items())
    assert design(tmp_path, *POWERED, leaked=again)["design.duplicates"] == "WARN"


def test_a_reviewer_of_the_builders_vendor_stops_the_design(tmp_path: Path) -> None:
    resolved = resolved_spec(tmp_path, *POWERED)
    same = resolved.spec.builder.model_copy(update={"vendor": resolved.spec.reviewer.vendor})
    own = resolved.model_copy(update={"spec": resolved.spec.model_copy(update={"builder": same})})
    result = next(check for check in design_results(own, heldout_items(), {}) if check.id == "design.independence")
    assert (result.status, result.repairable) == ("FAIL", False)


def test_stages_that_cost_more_than_the_budget_stop_the_design(tmp_path: Path) -> None:
    resolved = resolved_spec(tmp_path, *POWERED)
    poor = resolved.spec.budget.model_copy(update={"max_cost_usd": 0.01})
    own = resolved.model_copy(update={"spec": resolved.spec.model_copy(update={"budget": poor})})
    result = next(check for check in design_results(own, heldout_items(), {}) if check.id == "design.cost")
    assert (result.status, result.repairable) == ("FAIL", False)


def test_a_held_out_question_asked_twice_stops_the_design(tmp_path: Path) -> None:
    again = heldout_items()[0].model_copy(update={"id": "again", "prompt": heldout_items()[0].prompt.upper()})
    results = design_results(resolved_spec(tmp_path, *POWERED), (*heldout_items(), again), {})
    result = next(check for check in results if check.id == "design.unique")
    assert (result.status, result.repairable) == ("FAIL", False)
    assert [(row["heldout"], row["repeats"]) for row in result.rows] == [("again", heldout_items()[0].id)]


def unique(folder: Path, *added: Item) -> CheckResult:
    results = design_results(resolved_spec(folder, *POWERED), (*heldout_items(), *added), {})
    return next(result for result in results if result.id == "design.unique")


def test_a_prompt_that_holds_another_one_is_named_whichever_comes_first(tmp_path: Path) -> None:
    first, *items = heldout_items()
    items[2] = items[2].model_copy(update={"prompt": f"{items[2].prompt} Mind who reads it aloud at a long table"})
    joined = first.model_copy(update={"id": "joined", "prompt": f"{first.prompt} {items[2].prompt}"})
    for split in ((joined, *items), (*items, joined)):
        results = design_results(resolved_spec(tmp_path, *POWERED), split, {})
        result = next(result for result in results if result.id == "design.unique")
        assert result.status == "WARN" and items[2].id in str(result.rows), result.detail


LONG = f"{heldout_items()[0].prompt} Mind that someone reads it aloud at a table with many guests"


def near(*texts: str, **changes: Any) -> list[Item]:
    """Return a long item, and more with other texts."""
    first = heldout_items()[0].model_copy(update={"id": "long", "prompt": LONG})
    return [
        first,
        *(first.model_copy(update={"id": f"near{n}", "prompt": text} | changes) for n, text in enumerate(texts)),
    ]


def test_a_held_out_question_asked_nearly_twice_is_shown_to_the_reviewer(tmp_path: Path) -> None:
    result = unique(tmp_path, *near(f"Quickly: {LONG}"))
    assert result.status == "WARN" and [(row["train"], row["heldout"]) for row in result.rows] == [("near0", "long")]


def test_many_that_are_judged_alike_stop_the_design(tmp_path: Path) -> None:
    texts = (f"Quickly: {LONG}", f"{LONG} today")
    assert unique(tmp_path, *near(*texts)).status == "FAIL"
    # Asked of another kind, they are other questions: which form is wanted, is in the verifier.
    assert unique(tmp_path, *near(texts[0]), *near(texts[1], id="other", kind="uppercase")[1:]).status == "WARN"


def test_a_question_that_differs_by_fillers_is_the_same(tmp_path: Path) -> None:
    assert unique(tmp_path, *near(f"Please: {LONG}, now", kind="uppercase")).status == "FAIL"


@pytest.mark.parametrize(("number", "status"), [(0, "NOT_APPLICABLE"), (1, "WARN"), (2, "FAIL")])
def test_prompts_that_show_an_accepted_answer_are_reported_and_many_stop_the_design(
    tmp_path: Path, number: int, status: str
) -> None:
    items = heldout_items()
    lines = [
        item.model_copy(update={"prompt": f"{item.prompt} For example: a line in lower case"})
        for item in items[:number]
    ]
    plain = [
        item.model_copy(update={"prompt": f"{item.prompt} For example: A Line Like This"}) for item in items[number:]
    ]
    assert all(item.kind == "lowercase" for item in items)
    checks = design_results(resolved_spec(tmp_path, *POWERED), (*lines, *plain), {})
    assert {check.id: check.status for check in checks}["design.answers"] == status


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        # Five prompts, two samples of each, twice: twenty steps at the most.
        ({"warmup_steps": 10}, "PASS"),
        ({"warmup_steps": 11}, "WARN"),
        ({"warmup_steps": 20}, "FAIL"),
        ({"epochs": 1, "batch_size": 10}, "FAIL"),
        ({"epochs": 1, "batch_size": 5}, "PASS"),
        ({"warmup_ratio": 0.6}, "WARN"),
        ({"warmup_ratio": 1, "scheduler": "constant"}, "PASS"),
        ({"warmup_steps": 20, "learning_rate": 0}, "NOT_APPLICABLE"),
    ],
)
def test_a_warm_up_is_compared_with_the_most_steps_there_can_be(
    tmp_path: Path, arguments: dict[str, Any], status: str
) -> None:
    spec = resolved_spec(tmp_path).spec
    outcome = schedules_of(_training(spec, **arguments), {"prompts": prompt_items()})
    assert outcome.status == status, outcome.detail


def test_what_a_builder_may_move_is_not_certain(tmp_path: Path) -> None:
    spec = _training(resolved_spec(tmp_path).spec, warmup_steps=20)
    moved = [stage.model_copy(update={"ranges": {"epochs": ParameterRange(min=1, max=9)}}) for stage in spec.stages]
    assert schedules_of(spec.model_copy(update={"stages": tuple(moved)}), {"prompts": prompt_items()}).status == "WARN"


def test_the_design_gate_asks_for_the_schedule(tmp_path: Path) -> None:
    assert (
        design(tmp_path, *POWERED, ("epochs: 2, batch_size: 1", "epochs: 1, batch_size: 64"))["design.schedule"]
        == "FAIL"
    )


def _training(spec: SessionSpec, **arguments: Any) -> SessionSpec:
    """Return the spec with other parameters of its training, and nothing that the builder may move there."""
    stages = [
        stage.model_copy(update={"parameters": stage.parameters.model_copy(update=arguments), "ranges": {}})
        if stage.name == "train"
        else stage
        for stage in spec.stages
    ]
    return spec.model_copy(update={"stages": tuple(stages)})


def test_a_training_on_a_data_file_counts_its_rows_of_each_kind(tmp_path: Path) -> None:
    spec = resolved_spec(tmp_path).spec
    train = spec.stage("train")
    read = train.model_copy(update={"inputs": train.inputs | {"examples": "data.mine"}})
    assert most_rows(spec, read, {"mine": heldout_items()}) == 12
    few = read.model_copy(update={"parameters": read.parameters.model_copy(update={"max_examples_per_kind": 5})})
    assert most_rows(spec, few, {"mine": heldout_items()}) == 5
    assert most_rows(spec, read, {}) == 0 and most_rows(spec, train, {}) is None


SECOND = """  - name: second
    kind: sft
    inputs: {model: MODEL, examples: sample.accepted}
    parameters: {learning_rate: 1e-4, seed: 7}
    max_minutes: 10
"""


@pytest.mark.parametrize(
    ("model", "evaluation", "status"),
    [
        ("model", "", "FAIL"),
        ("train.checkpoint", "", "FAIL"),
        ("model", "evaluation: {not_evaluated: [second]}\n", "PASS"),
    ],
)
def test_what_is_trained_is_measured_or_named(tmp_path: Path, model: str, evaluation: str, status: str) -> None:
    later = ("  - name: tuned", SECOND.replace("MODEL", model) + "  - name: tuned")
    assert design(tmp_path, *POWERED, later, ("stages:", f"{evaluation}stages:"))["design.unused"] == status


def test_a_checkpoint_that_leads_to_a_measurement_is_used(tmp_path: Path) -> None:
    assert design(tmp_path, *POWERED)["design.unused"] == "PASS"
    second = (("  - name: tuned", SECOND.replace("MODEL", "train.checkpoint") + "  - name: tuned"),)
    tuned = "inputs: {model: train.checkpoint, items: heldout}\n    parameters: {max_new_tokens: 32"
    read = ((tuned, tuned.replace("train", "second")),)
    folder = tmp_path / "chain"
    folder.mkdir()
    assert design(folder, *POWERED, *second, *read)["design.unused"] == "PASS"
