"""The published settings beside ours: a row for every parameter that a constitutional spec sets."""

from __future__ import annotations

from typing import Any

import pytest
from ruamel.yaml import YAML

from release.reference.published_page import PublishedSetting, read_published_settings
from specs.loading.loading import find_spec, load_spec

SPECS = ("self_instruct_sft", "cai_preferences")


def settings_of(name: str) -> set[tuple[str, str]]:
    """Return the stage kinds and parameters that a spec sets in its default profile."""
    data: Any = YAML(typ="safe", pure=True).load(find_spec(name).read_text(encoding="utf-8"))
    profile = data["profiles"][data["profile"]]["stages"]
    stages = [stage for stage in data["stages"] if profile.get(stage["name"], {}) is not None]
    changed = {stage["name"]: (profile.get(stage["name"]) or {}).get("parameters", {}) for stage in stages}
    return {(stage["kind"], key) for stage in stages for key in (*stage["parameters"], *changed[stage["name"]])}


def missing(name: str, rows: tuple[PublishedSetting, ...]) -> set[tuple[str, str]]:
    return {setting for setting in settings_of(name) if not any(row.covers(*setting) for row in rows)}


@pytest.mark.parametrize("name", SPECS)
def test_every_parameter_that_a_spec_sets_has_a_row(name: str) -> None:
    rows = read_published_settings().specs[name].rows
    assert len(settings_of(name)) > 20 and missing(name, rows) == set()
    # A row that is gone is noticed.
    fewer = tuple(row for row in rows if "sft.learning_rate" not in row.settings)
    assert missing(name, fewer) == {("sft", "learning_rate")}
    assert all(row.published and row.why and (row.ours or row.settings) for row in rows)


def test_the_specs_are_those_of_the_pipeline() -> None:
    assert tuple(read_published_settings().specs) == SPECS


def test_a_setting_that_no_stage_has_is_refused() -> None:
    spec = load_spec(find_spec("cai_preferences")).spec
    row = PublishedSetting(what="x", settings=("dpo.beta",), published="0.1", why="as published")
    assert row.describe_ours(spec) == "`dpo.beta` 0.1"
    with pytest.raises(ValueError, match=r"no stage of 'cai_preferences' has a setting dpo\.gamma"):
        row.model_copy(update={"settings": ("dpo.gamma",)}).describe_ours(spec)


def test_the_comparison_has_one_source_of_signal() -> None:
    """What `cai_preferences` trains on comes from the revisions, which alone read the constitution."""
    spec = load_spec(find_spec("cai_preferences")).spec
    trained = [stage for stage in spec.stages if stage.kind in ("sft", "dpo")]
    taught = {stage.inputs.get("examples") or stage.inputs["preferences"] for stage in trained}
    assert taught == {"revise.examples", "revise.preferences"}
    assert "constitution" in spec.stage("revise").inputs.values()
    assert not {stage.kind for stage in spec.stages} & {"generate", "best_of_n", "best_of_n_verified"}
    # Each of the two stages has a registered test of its own.
    plan = spec.evaluation
    assert plan is not None
    assert [(test.before, test.after) for test in plan.paired] == [
        ("baseline", "evaluate_sft"),
        ("evaluate_sft", "evaluate"),
    ]
