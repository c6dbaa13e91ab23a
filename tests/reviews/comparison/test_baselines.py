"""The baseline is what the treatment started from, or the untouched model, and no stage has made it worse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.comparison.parity_checks import judge_baseline
from reviews.evidence.evidence import ArmEvidence, Evidence
from reviews.evidence.weight_lineage import measured_starts, weights_before
from specs.lint.evaluation_rules import lint_heldout
from specs.session.design import ModelSource
from specs.session.session_spec import ResolvedSpec
from specs.stages.base.stage import Criterion
from specs.trail.verdict import CheckResult
from testing.factories.evidence_on_disk import N, answers, design_results, evidence_of, resolved_spec, write_rows
from testing.factories.flaws import two_instructions
from testing.factories.judged_evidence import results_of

Others = tuple[tuple[str, str, str], ...]
"""Kind of a stage, its name, and the weights that it reads."""


def session(folder: Path, *others: tuple[str, str, str], baseline: str = "model", start: str = "model") -> ResolvedSpec:
    """Return a spec with more stages before its baseline, whose arms read and start from other weights."""
    resolved = resolved_spec(folder)
    spec = resolved.spec
    of_kind = {"sft": spec.stage("train"), "evaluate": spec.stage("base")}

    def reading(name: str, model: str, like: Any) -> Any:
        return like.model_copy(update={"name": name, "inputs": like.inputs | {"model": model}})

    stages = [spec.stage("sample")]
    stages += [reading(name, model, of_kind[kind]) for kind, name, model in others]
    stages += [reading("base", baseline, spec.stage("base")), reading("train", start, spec.stage("train"))]
    stages += [spec.stage("tuned"), spec.stage("ship")]
    control = ModelSource(source="path:other", kind="instruct")
    return resolved.model_copy(update={"spec": spec.model_copy(update={"stages": tuple(stages), "control": control})})


WORN = ("sft", "worn", "model")
LOOK = ("evaluate", "look", "model")
CASES: dict[str, tuple[Others, str, str, str]] = {
    "the untouched model": ((), "model", "model", "PASS"),
    "the untouched model before two trainings": ((("sft", "first", "model"),), "model", "first.checkpoint", "PASS"),
    "its own start, next to the model": ((WORN, LOOK), "worn.checkpoint", "worn.checkpoint", "PASS"),
    "its own start alone": ((WORN,), "worn.checkpoint", "worn.checkpoint", "WARN"),
    "an earlier start alone": (
        (WORN, ("sft", "second", "worn.checkpoint")), "worn.checkpoint", "second.checkpoint", "WARN",
    ),
    "another branch": ((WORN,), "worn.checkpoint", "model", "FAIL"),
    "another branch, next to the model": ((WORN, LOOK), "worn.checkpoint", "model", "PASS"),
    "another branch of two trainings": (
        (WORN, ("sft", "more", "worn.checkpoint")), "more.checkpoint", "model", "FAIL",
    ),
    "a worse branch than the start": (
        (WORN, ("sft", "good", "model")), "worn.checkpoint", "good.checkpoint", "FAIL",
    ),
    "what the start became": ((("sft", "first", "model"), ("sft", "second", "first.checkpoint")),
                              "second.checkpoint", "first.checkpoint", "FAIL"),
    "another model": ((), "control", "model", "FAIL"),
    "a branch of another model": ((("sft", "worn", "control"),), "worn.checkpoint", "model", "FAIL"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_design_gate_follows_the_weights_of_both_arms(tmp_path: Path, name: str) -> None:
    others, baseline, start, status = CASES[name]
    resolved = session(tmp_path, *others, baseline=baseline, start=start)
    (result,) = [check for check in design_results(resolved, (), {}) if check.id == "design.baseline"]
    assert (result.status, result.blocking) == (status, True), result.detail
    if status in ("FAIL", "WARN") and "'control'" not in result.detail:
        assert "like 'base' that reads 'model'" in result.detail
    assert judge_baseline(resolved.spec).status == status


def test_a_stage_that_asks_otherwise_measures_nothing_of_the_baseline(tmp_path: Path) -> None:
    resolved = session(tmp_path, WORN, LOOK, baseline="worn.checkpoint", start="worn.checkpoint")
    assert measured_starts(resolved.spec) == ("look",)
    assert weights_before(resolved.spec, "train.checkpoint") == {"train.checkpoint", "worn.checkpoint", "model"}
    look = resolved.spec.stage("look")
    for update in (
        {"parameters": look.parameters.model_copy(update={"max_new_tokens": 4})},
        {"inputs": look.inputs | {"items": "data.prompts"}},
        {"inputs": look.inputs | {"model": "control"}},
    ):
        other = look.model_copy(update=update)
        stages = tuple(other if stage is look else stage for stage in resolved.spec.stages)
        assert measured_starts(resolved.spec.model_copy(update={"stages": stages})) == ()


def compared(folder: Path, start: list[bool], before: list[bool], after: list[bool]) -> CheckResult:
    """Return the check on a treatment of such answers, whose baseline a stage has trained."""
    resolved = session(folder, WORN, LOOK, baseline="worn.checkpoint", start="worn.checkpoint")
    evidence = replace(evidence_of(folder, "tuned", answers(after)), resolved=resolved)
    evidence = replace(evidence, baseline_rows=write_rows(folder / "before.jsonl", answers(before)))
    rows = write_rows(folder / "look.jsonl", answers(start))
    return results_of(with_look(evidence, ArmEvidence(rows, evidence.baseline_manifest, evidence.parameters)))[
        "parity.models"
    ]


def with_look(evidence: Evidence, arm: ArmEvidence) -> Evidence:
    return replace(evidence, arms={"look": arm})


def right(count: int) -> list[bool]:
    return [place < count for place in range(N)]


@pytest.mark.parametrize(
    ("start", "before", "after", "status", "words"),
    [
        # The first training helped, and the second helped too: a chain of two.
        (2, 4, 12, "PASS", ""),
        (3, 3, 12, "PASS", ""),
        # A few items less by chance, and the treatment is better than both.
        (4, 3, 12, "PASS", ""),
        # No effect is claimed: nothing rests on the baseline.
        (4, 3, 4, "PASS", ""),
        (9, 2, 11, "FAIL", "a stage made it worse"),
        (6, 3, 11, "FAIL", "against 'look' the treatment gains +0.417, p = 0.0625"),
    ],
)
def test_a_baseline_that_a_stage_made_worse_is_found_by_what_it_was_made_from(
    tmp_path: Path, start: int, before: int, after: int, status: str, words: str
) -> None:
    result = compared(tmp_path, right(start), right(before), right(after))
    assert result.status == status, result.detail
    assert words in result.detail


def test_without_the_answers_of_the_start_the_gate_stays_closed(tmp_path: Path) -> None:
    resolved = session(tmp_path, WORN, LOOK, baseline="worn.checkpoint", start="worn.checkpoint")
    evidence = replace(evidence_of(tmp_path, "tuned"), resolved=resolved)
    result = results_of(evidence)["parity.models"]
    assert result.status == "BLOCKED" and "'look' has no accepted attempt" in result.detail


@pytest.mark.parametrize("metric", ["accuracy", "truncation_rate"])
def test_a_figure_that_the_model_is_known_to_reach_may_be_registered(tmp_path: Path, metric: str) -> None:
    """As a criterion at the gate of a stage that reads the untouched model: a damaged copy does not reach it."""
    resolved = session(tmp_path)
    base = resolved.spec.stage("base")
    gate = base.gate.model_copy(update={"criteria": (Criterion(metric=metric, at_least=0.4),)})
    stages = tuple(base.model_copy(update={"gate": gate}) if stage is base else stage for stage in resolved.spec.stages)
    assert list(lint_heldout(resolved.spec.model_copy(update={"stages": stages}))) == []


def test_each_type_of_instruction_is_counted_separately(tmp_path: Path) -> None:
    plain = evidence_of(tmp_path, "tuned")
    assert results_of(plain)["strata.instructions"].status == "NOT_APPLICABLE"
    evidence = two_instructions(plain, "Tea is A drink, of leaves", "tea is a drink of leaves")
    check = results_of(evidence)["strata.instructions"]
    assert check.status == "PASS"
    assert check.detail == f"change_case:english_lowercase 0 -> {N} of {N}, punctuation:no_comma 0 -> {N} of {N}"
