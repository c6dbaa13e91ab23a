"""Every check: passes on healthy evidence, fails on its flaw, is BLOCKED without its evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.checks import CHECKS, design_checks, run_checks
from reviews.checks.check import Found, apply, guarded
from reviews.evidence import Evidence
from reviews.measure import measure
from specs.digests import digest_bytes
from specs.errors import EvidenceMissing
from specs.evidence import Item
from specs.metrics import MetricSet
from specs.verdicts import CheckResult
from tests.unit.evidence_on_disk import (
    N,
    answers,
    evidence_of,
    examples,
    heldout_items,
    probes,
    prompt_items,
    resolved_spec,
    samples,
    steps,
    with_manifest,
    write_rows,
)


def results_of(evidence: Evidence) -> dict[str, CheckResult]:
    metrics: MetricSet | None
    try:
        metrics = measure(evidence)
    except EvidenceMissing:
        metrics = None
    return {result.id: result for result in run_checks(evidence, metrics)}


@pytest.mark.parametrize("stage", ["base", "sample", "train", "tuned", "ship"])
def test_healthy_evidence_passes_every_check(tmp_path: Path, stage: str) -> None:
    results = results_of(evidence_of(tmp_path, stage))
    assert {id: one.detail for id, one in results.items() if one.status not in ("PASS", "NOT_APPLICABLE")} == {}


def test_every_check_belongs_to_a_stage_and_its_id_is_unique() -> None:
    assert len({check.id for check in CHECKS}) == len(CHECKS)
    assert all(check.kinds and check.title and check.source for check in CHECKS)


@pytest.mark.parametrize("stage", ["base", "sample", "train", "tuned", "ship"])
def test_a_lost_job_leaves_no_blocking_check_that_needs_its_files_open(tmp_path: Path, stage: str) -> None:
    bare = replace(evidence_of(tmp_path, stage), manifest=None, exit=None, outputs={}, output_digests={})
    results = results_of(bare)
    passed = {id for id, one in results.items() if one.status == "PASS"}
    # What is known without the job may pass; nothing that reads its files may.
    assert passed <= {
        "registration.unchanged",
        "registration.split",
        "registration.evaluations",
        "registration.attempts",
    } | ({"leakage.overlap", "leakage.groups", "leakage.duplicates"} if stage == "train" else set())
    others = {id: one.status for id, one in results.items() if id not in passed}
    assert set(others.values()) <= {"BLOCKED", "NOT_APPLICABLE"} and others["jobs.exit"] == "BLOCKED", others


def flawed(folder: Path, stage: str, flaw: str) -> Evidence:
    """Return evidence with one named flaw."""
    if flaw in ROW_FLAWS:
        return evidence_of(folder, stage, ROW_FLAWS[flaw]())
    return OTHER_FLAWS[flaw](evidence_of(folder, stage))


def _steps(**changes: Any) -> list[dict[str, Any]]:
    return [row | changes for row in steps()]


ROW_FLAWS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "answers cut off": lambda: answers([True] * N, truncated=True),
    "answers empty": lambda: answers([True] * N, output=" "),
    "answers all alike": lambda: answers([True] * N, output="the same small answer again."),
    "a step missing": lambda: steps(9),
    "a dead gradient": lambda: [row | {"grad_norm": 0.0 if row["step"] == 3 else 1.0} for row in steps()],
    "a gradient spike": lambda: [row | {"grad_norm": 90.0 if row["step"] == 3 else 1.0} for row in steps()],
    "a rate that never rose": lambda: _steps(learning_rate=0.0),
    "a rate above the granted one": lambda: _steps(learning_rate=1e-3),
    "a rate that never decayed": lambda: _steps(learning_rate=1e-5),
    "no token with loss": lambda: _steps(tokens=0),
    "silent probes": lambda: [row | {"expected": [], "reloaded": []} for row in probes()],
    "other probes": lambda: [probes()[1], probes()[0]],
    "samples cut off": lambda: [row | {"truncated": True} for row in samples()],
}


def _examples_with(evidence: Evidence, **changes: Any) -> Evidence:
    path = write_rows(evidence.inputs["model"].parent / "other.jsonl", [row | changes for row in examples()])
    if evidence.stage.kind == "generate":
        return replace(evidence, outputs=evidence.outputs | {"accepted": path})
    return replace(evidence, inputs=evidence.inputs | {"examples": path})


def _exit(evidence: Evidence, **changes: Any) -> Evidence:
    assert evidence.exit is not None
    return replace(evidence, exit=evidence.exit.model_copy(update=changes))


def _grant(evidence: Evidence, **changes: Any) -> Evidence:
    assert evidence.grant is not None
    return replace(evidence, grant=evidence.grant.model_copy(update=changes))


def _baseline(evidence: Evidence, **changes: Any) -> Evidence:
    assert evidence.baseline_manifest is not None
    return replace(evidence, baseline_manifest=evidence.baseline_manifest.model_copy(update=changes))


def _repacked(evidence: Evidence) -> Evidence:
    (evidence.outputs["package"] / "model.safetensors").write_bytes(b"other weights")
    return evidence


def _same_weights(evidence: Evidence) -> Evidence:
    assert evidence.manifest is not None
    digests = evidence.output_digests | {"checkpoint": evidence.manifest.inputs["model"]}
    return with_manifest(replace(evidence, output_digests=digests), outputs=digests)


def _cut_gain(evidence: Evidence) -> Evidence:
    """The baseline fails only where it was cut off."""
    assert evidence.baseline_rows is not None
    write_rows(evidence.baseline_rows, answers([False] * N, truncated=True))
    return evidence


def _base_model(evidence: Evidence) -> Evidence:
    spec = evidence.resolved.spec
    declared = spec.model_copy(update={"model": spec.model.model_copy(update={"kind": "base"})})
    return replace(evidence, resolved=evidence.resolved.model_copy(update={"spec": declared}))


def _only_accepted_rows(evidence: Evidence) -> Evidence:
    write_rows(evidence.outputs["rows"], [row for row in samples() if row["sample"] == 0])
    return evidence


def _one_example_less(evidence: Evidence) -> Evidence:
    write_rows(evidence.outputs["accepted"], examples()[1:])
    return evidence


def _perfect_baseline(evidence: Evidence) -> Evidence:
    write_rows(evidence.outputs["rows"], answers([True] * N))
    return evidence


OTHER = digest_bytes(b"something else")
OTHER_FLAWS: dict[str, Callable[[Evidence], Evidence]] = {
    "another registration": lambda one: replace(one, registered=OTHER),
    "a grant for another spec": lambda one: _grant(one, registration=OTHER),
    "another split": lambda one: replace(one, heldout_digest=OTHER),
    "a third evaluation": lambda one: replace(one, evaluations_of_heldout=3),
    "an attempt left out": lambda one: replace(one, attempts=({"attempt": 2},)),
    "a crash": lambda one: _exit(one, code=1),
    "a time limit": lambda one: _exit(one, code=-15, reason="timeout"),
    "other parameters": lambda one: with_manifest(one, parameters=OTHER),
    "other inputs": lambda one: with_manifest(one, inputs={"model": OTHER}),
    "edited outputs": lambda one: with_manifest(one, outputs={"rows": OTHER}),
    "a lower learning rate": lambda one: with_manifest(one, effective={"learning_rate": 9e-6}),
    "another seed": lambda one: with_manifest(one, seed=99),
    "a setting not read back": lambda one: with_manifest(one, effective={"max_length": None}),
    "half precision": lambda one: with_manifest(one, dtype="float16"),
    "another device than the baseline": lambda one: with_manifest(one, device="cuda:0"),
    "a held-out prompt in training": lambda one: _examples_with(one, prompt=heldout_items()[0].prompt),
    "a shouted held-out prompt": lambda one: _examples_with(one, prompt=heldout_items()[0].prompt.upper()),
    "a held-out topic in training": lambda one: _examples_with(one, group="hg3"),
    "repeated training rows": lambda one: _examples_with(one, prompt="Once.", completion="the same."),
    "edited examples": lambda one: _examples_with(one, completion="BAD EXAMPLE IN CAPITALS."),
    "other items in the baseline": lambda one: _baseline(one, inputs={"model": OTHER, "items": OTHER}),
    "other code in the baseline": lambda one: _baseline(one, code=OTHER),
    "other threads in the baseline": lambda one: _baseline(one, threads=1),
    "another chat template in the baseline": lambda one: _baseline(
        one, facts={"chat_template": OTHER, "first_prompt_ids": [1, 2]}
    ),
    "the same weights in both arms": lambda one: _baseline(one, inputs=one.manifest.inputs if one.manifest else {}),
    "a gain from the length limit": _cut_gain,
    "a perfect baseline": _perfect_baseline,
    "no chat template": lambda one: with_manifest(one, facts={"chat_template": digest_bytes(b"")}),
    "a base model with a chat template": lambda one: _base_model(one),
    "rejected samples left out": lambda one: _only_accepted_rows(one),
    "an example left out": lambda one: _one_example_less(one),
    "loss on the prompt": lambda one: with_manifest(one, facts={"masked_tokens": 0}),
    "one batch again and again": lambda one: with_manifest(one, facts={"distinct_batches": 1}),
    "half of the data": lambda one: with_manifest(one, facts={"examples_by_kind": {"lowercase": 3}}),
    "only adapters trained": lambda one: with_manifest(one, effective={"trained_share": 0.01}),
    "weights that did not move": _same_weights,
    "other weights in the package": _repacked,
}

IRREPARABLE = {
    "registration.unchanged",
    "registration.split",
    "registration.attempts",
    "jobs.granted",
    "jobs.outputs",
    "leakage.overlap",
    "leakage.groups",
    "parity.items",
    "parity.models",
    "power.headroom",
    "health.template",
    "package.weights",
}
"""What no parameter can mend: the data, the design or the record itself is wrong."""

CASES = [
    ("base", "another registration", "registration.unchanged", "FAIL"),
    ("train", "a grant for another spec", "registration.unchanged", "FAIL"),
    ("base", "another split", "registration.split", "FAIL"),
    ("tuned", "a third evaluation", "registration.evaluations", "WARN"),
    ("train", "an attempt left out", "registration.attempts", "FAIL"),
    ("train", "a crash", "jobs.exit", "FAIL"),
    ("train", "a time limit", "jobs.exit", "FAIL"),
    ("train", "other parameters", "jobs.granted", "FAIL"),
    ("sample", "other inputs", "jobs.granted", "FAIL"),
    ("sample", "edited outputs", "jobs.outputs", "FAIL"),
    ("train", "a lower learning rate", "jobs.effective", "FAIL"),
    ("train", "another seed", "jobs.effective", "FAIL"),
    ("train", "a setting not read back", "jobs.effective", "FAIL"),
    ("base", "half precision", "jobs.device", "WARN"),
    ("tuned", "another device than the baseline", "jobs.device", "FAIL"),
    ("train", "a held-out prompt in training", "leakage.overlap", "FAIL"),
    ("sample", "a shouted held-out prompt", "leakage.overlap", "FAIL"),
    ("train", "a held-out topic in training", "leakage.groups", "FAIL"),
    ("train", "repeated training rows", "leakage.duplicates", "WARN"),
    ("sample", "edited examples", "health.accepted", "FAIL"),
    ("tuned", "other items in the baseline", "parity.items", "FAIL"),
    ("tuned", "other code in the baseline", "parity.settings", "FAIL"),
    ("tuned", "other threads in the baseline", "parity.settings", "FAIL"),
    ("tuned", "another chat template in the baseline", "parity.settings", "FAIL"),
    ("tuned", "the same weights in both arms", "parity.models", "FAIL"),
    ("tuned", "a gain from the length limit", "parity.truncation", "FAIL"),
    ("base", "a perfect baseline", "power.headroom", "FAIL"),
    ("base", "no chat template", "health.template", "FAIL"),
    ("base", "a base model with a chat template", "health.template", "WARN"),
    ("sample", "rejected samples left out", "health.complete", "FAIL"),
    ("sample", "an example left out", "health.accepted", "FAIL"),
    ("base", "answers cut off", "health.truncation", "FAIL"),
    ("base", "answers empty", "health.empty", "FAIL"),
    ("base", "answers all alike", "health.collapse", "FAIL"),
    ("sample", "samples cut off", "health.samples", "WARN"),
    ("train", "a step missing", "training.steps", "FAIL"),
    ("train", "a dead gradient", "training.gradient", "FAIL"),
    ("train", "a gradient spike", "training.gradient", "WARN"),
    ("train", "a rate that never rose", "training.schedule", "FAIL"),
    ("train", "a rate above the granted one", "training.schedule", "FAIL"),
    ("train", "a rate that never decayed", "training.schedule", "FAIL"),
    ("train", "loss on the prompt", "training.mask", "FAIL"),
    ("train", "no token with loss", "training.mask", "FAIL"),
    ("train", "one batch again and again", "training.batches", "FAIL"),
    ("train", "half of the data", "training.data", "FAIL"),
    ("train", "only adapters trained", "training.moved", "FAIL"),
    ("train", "weights that did not move", "training.moved", "FAIL"),
    ("ship", "other weights in the package", "package.weights", "FAIL"),
    ("ship", "silent probes", "package.probes", "FAIL"),
    ("ship", "other probes", "package.probes", "FAIL"),
]


@pytest.mark.parametrize(("stage", "flaw", "check", "status"), CASES, ids=[case[1] for case in CASES])
def test_a_flaw_is_found_by_its_check(tmp_path: Path, stage: str, flaw: str, check: str, status: str) -> None:
    result = results_of(flawed(tmp_path, stage, flaw))[check]
    assert result.status == status
    assert result.repairable == (status != "FAIL" or check not in IRREPARABLE)


def test_every_check_has_a_flaw_that_it_finds() -> None:
    # power.n and power.test cannot be reached with rows that measure: the measurer refuses first (see test_measure).
    unreachable = {"power.n", "power.test", "power.margin"}
    assert {check.id for check in CHECKS} - {case[2] for case in CASES} == unreachable


def test_fewer_items_than_registered_fail_power_n(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "base")
    metrics = measure(evidence)
    fewer = metrics.metrics["items"].model_copy(update={"value": N - 1.0})
    cut = metrics.model_copy(update={"metrics": metrics.metrics | {"items": fewer}})
    assert {one.id: one.status for one in run_checks(evidence, cut)}["power.n"] == "FAIL"


def test_an_uncertain_margin_is_a_warning(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "tuned", answers([True] * 2 + [False] * 10))
    result = results_of(evidence)["power.margin"]
    assert (result.status, result.blocking) == ("WARN", False)


def test_a_comparison_without_an_interval_is_blocked(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "tuned")
    metrics = measure(evidence)
    bare = metrics.metrics["accuracy_gain"].model_copy(update={"interval": None})
    cut = metrics.model_copy(update={"metrics": metrics.metrics | {"accuracy_gain": bare}})
    assert {one.id: one.status for one in run_checks(evidence, cut)}["power.test"] == "BLOCKED"


def test_a_check_that_breaks_is_an_error_and_never_a_pass() -> None:
    def broken() -> Found:
        raise ZeroDivisionError("no")

    assert guarded(broken).status == "ERROR"


def test_comparison_checks_do_not_apply_to_the_baseline(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "base")
    parity = next(check for check in CHECKS if check.id == "parity.items")
    assert apply(parity, evidence, None).status == "NOT_APPLICABLE"


def test_what_a_check_shows_cannot_move_the_terminal(tmp_path: Path) -> None:
    rows = answers([True] * N, truncated=True, output="\x1b[2Jcleared\x07")
    shown = results_of(evidence_of(tmp_path, "base", rows))["health.truncation"].shown
    assert shown and all("\x1b" not in str(row) and "\x07" not in str(row) for row in shown)


def design(folder: Path, *changes: tuple[str, str], leaked: tuple[Item, ...] = ()) -> dict[str, str]:
    resolved = resolved_spec(folder, *changes)
    results = design_checks(resolved, heldout_items(), {"prompts": (*prompt_items(), *leaked)})
    return {one.id: one.status for one in results}


POWERED = (("  minimum_effect: 0.1\n", "  minimum_effect: 0.8\n"),)


def test_a_sound_design_passes(tmp_path: Path) -> None:
    found = design(tmp_path, *POWERED)
    assert {id for id, status in found.items() if status != "PASS"} == {"design.seeds"}


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


@pytest.mark.parametrize(
    ("missing", "blocked"),
    [
        ({"grant": None}, {"registration.unchanged", "jobs.granted"}),
        ({"parameters": {}}, {"jobs.granted", "jobs.effective", "training.schedule"}),
        ({"output_digests": {}}, {"jobs.outputs", "training.moved"}),
        ({"exit": None}, {"jobs.exit"}),
    ],
)
def test_what_is_not_on_record_blocks_the_checks_that_need_it(
    tmp_path: Path, missing: dict[str, Any], blocked: set[str]
) -> None:
    results = results_of(replace(evidence_of(tmp_path, "train"), **missing))
    assert {id for id, one in results.items() if one.status not in ("PASS", "NOT_APPLICABLE")} == blocked
    assert {results[id].status for id in blocked} == {"BLOCKED"}


def test_a_held_out_question_asked_twice_stops_the_design(tmp_path: Path) -> None:
    again = heldout_items()[0].model_copy(update={"id": "again", "prompt": heldout_items()[0].prompt.upper()})
    results = design_checks(resolved_spec(tmp_path, *POWERED), (*heldout_items(), again), {})
    result = next(one for one in results if one.id == "design.unique")
    assert (result.status, result.repairable) == ("FAIL", False)
    assert [(row["heldout"], row["repeats"]) for row in result.shown] == [("again", heldout_items()[0].id)]
