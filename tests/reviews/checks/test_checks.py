"""Every check: passes on healthy evidence, fails on its flaw, is BLOCKED without its evidence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.checks.definition import CheckOutcome, apply, run_guarded
from reviews.gate.check_list import CHECKS, run_checks
from reviews.gate.design_checks import DESIGN_CHECKS
from reviews.gate.measurer import measure
from specs.stages.base.stage import NotReadBack
from specs.stages.critique.parameters import BestOfNParameters
from specs.stages.finetuning.parameters import SftParameters
from testing.factories.evidence_on_disk import N, answers, evidence_of, with_manifest
from testing.factories.flaws import CASES, IRREPARABLE, flawed
from testing.factories.flaws_evaluation import ELSEWHERE
from testing.factories.judged_evidence import results_of


@pytest.mark.parametrize("stage", ["base", "sample", "train", "tuned", "ship", "look"])
def test_healthy_evidence_passes_every_check(tmp_path: Path, stage: str) -> None:
    results = results_of(evidence_of(tmp_path, stage))
    assert {
        id: result.detail for id, result in results.items() if result.status not in ("PASS", "NOT_APPLICABLE")
    } == {}


def test_every_check_belongs_to_a_stage_and_its_id_is_unique() -> None:
    assert len({check.id for check in CHECKS}) == len(CHECKS)
    assert all(check.kinds and check.title and check.source for check in CHECKS)


def test_every_check_is_found_by_its_name() -> None:
    names = {check.id: getattr(check.run, "__name__", "") for check in (*CHECKS, *DESIGN_CHECKS)}
    assert {id: name for id, name in names.items() if not name.startswith("_check_")} == {}


@pytest.mark.parametrize("stage", ["base", "sample", "train", "tuned", "ship", "look"])
def test_a_lost_job_leaves_no_blocking_check_that_needs_its_files_open(tmp_path: Path, stage: str) -> None:
    bare = replace(evidence_of(tmp_path, stage), manifest=None, exit=None, outputs={}, output_digests={}, witness=None)
    results = results_of(bare)
    passed = {id for id, result in results.items() if result.status == "PASS"}
    # What is known without the job may pass; nothing that reads its files may.
    assert passed <= {
        "registration.unchanged",
        "registration.split",
        "registration.evaluations",
        "registration.workspace",
        "registration.attempts",
        "scorer.admitted",
    } | ({"leakage.overlap", "leakage.nearest", "leakage.groups", "leakage.duplicates"} if stage == "train" else set())
    others = {id: result.status for id, result in results.items() if id not in passed}
    assert set(others.values()) <= {"BLOCKED", "NOT_APPLICABLE"} and others["jobs.exit"] == "BLOCKED", others


@pytest.mark.parametrize(("stage", "flaw", "check", "status"), CASES, ids=[case[1] for case in CASES])
def test_a_flaw_is_found_by_its_check(tmp_path: Path, stage: str, flaw: str, check: str, status: str) -> None:
    result = results_of(flawed(tmp_path, stage, flaw))[check]
    assert result.status == status
    assert result.repairable == (status != "FAIL" or check not in IRREPARABLE)


def test_every_check_has_a_flaw_that_it_finds() -> None:
    # power.n and power.test cannot be reached with rows that measure: the measurer refuses first (see test_measure).
    unreachable = {"power.n", "power.test", "power.margin"} | ELSEWHERE
    # What a script trains is judged in test_recipe_training.py.
    unreachable |= {"recipe.checkpoint", "recipe.data"}
    # What a script curates is judged in test_curated_examples.py.
    unreachable |= {"recipe.curated", "recipe.overlap", "recipe.groups", "recipe.repeats"}
    # What breaks a stage off is judged in test_sampling_quality.py and test_text_checks.py.
    unreachable |= {"text.finished"}
    # Replicas are judged in test_replica_checks.py.
    unreachable |= {check.id for check in CHECKS if check.id.startswith("replicas.")}
    # A rule is registered in test_scaling.py.
    unreachable |= {"training.scaling"}
    # Examples are kept out in test_validation.py, and decide in test_early_stopping.py.
    unreachable |= {"training.validation", "training.overfit", "training.stop"}
    # Kinds that the small spec has no stage of are judged in the test files of their area.
    own = {
        check.id for check in CHECKS if set(check.kind_names()) & {"generate", "sft", "evaluate", "package", "recipe"}
    }
    missing = (own - {case[2] for case in CASES}) ^ (unreachable & own)
    assert not missing, f"plant a flaw for {sorted(missing)} in testing/factories/flaws.py, and a case that names it"


def test_fewer_items_than_registered_fail_power_n(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "base")
    metrics = measure(evidence)
    fewer = metrics.metrics["items"].model_copy(update={"value": N - 1.0})
    cut = metrics.model_copy(update={"metrics": metrics.metrics | {"items": fewer}})
    assert {check.id: check.status for check in run_checks(evidence, cut)}["power.n"] == "FAIL"


def test_an_uncertain_margin_is_a_warning(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "tuned", answers([True] * 2 + [False] * 10))
    result = results_of(evidence)["power.margin"]
    assert (result.status, result.blocking) == ("WARN", False)


def test_a_comparison_without_an_interval_is_blocked(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "tuned")
    metrics = measure(evidence)
    bare = metrics.metrics["accuracy_gain"].model_copy(update={"interval": None})
    cut = metrics.model_copy(update={"metrics": metrics.metrics | {"accuracy_gain": bare}})
    assert {check.id: check.status for check in run_checks(evidence, cut)}["power.test"] == "BLOCKED"


def test_a_check_that_breaks_is_an_error_and_never_a_pass() -> None:
    def broken() -> CheckOutcome:
        raise ZeroDivisionError("no")

    assert run_guarded(broken).status == "ERROR"


def test_comparison_checks_do_not_apply_to_the_baseline(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "base")
    parity = next(check for check in CHECKS if check.id == "parity.items")
    assert apply(parity, evidence, None).status == "NOT_APPLICABLE"


def test_a_marked_parameter_is_not_compared_and_every_other_is(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "train")
    assert evidence.manifest is not None
    marked = {"warmup_ratio", "max_examples_per_kind", "snapshot_steps", "scaling", "validation_share"} | {
        "early_stopping"
    }
    assert NotReadBack.names(SftParameters) == marked and not NotReadBack.names(BestOfNParameters)
    for name in evidence.parameters.keys() - {"device"}:
        effective = {text: value for text, value in evidence.manifest.effective.items() if text != name}
        without = replace(evidence, manifest=evidence.manifest.model_copy(update={"effective": effective}))
        assert results_of(without)["jobs.effective"].status == ("PASS" if name in marked else "FAIL"), name
    # A parameter of another kind is compared, whatever its name.
    base = evidence_of(tmp_path, "base")
    named = replace(base, parameters=base.parameters | {"validation_share": 0.3})
    assert "validation_share None instead of 0.3" in results_of(named)["jobs.effective"].detail


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_only_a_precision_that_overflows_easily_is_warned_of(tmp_path: Path, dtype: str) -> None:
    check = results_of(with_manifest(evidence_of(tmp_path, "base"), dtype=dtype))["jobs.device"]
    assert check.status == ("WARN" if dtype == "float16" else "PASS")


def test_what_a_check_shows_cannot_move_the_terminal(tmp_path: Path) -> None:
    rows = answers([True] * N, truncated=True, output="\x1b[2Jcleared\x07")
    views = results_of(evidence_of(tmp_path, "base", rows))["health.truncation"].rows
    assert views and all("\x1b" not in str(row) and "\x07" not in str(row) for row in views)


@pytest.mark.parametrize(
    ("missing", "blocked"),
    [
        ({"grant": None}, {"registration.unchanged", "jobs.granted", "jobs.cost"}),
        (
            {"parameters": {}},
            {
                "jobs.granted",
                "jobs.effective",
                "training.data",
                "training.steps",
                "training.schedule",
                "training.loss",
                "training.starvation",
                "training.scaling",
                "training.decay",
                "training.plateau",
                *("replicas.equal", "replicas.apart", "replicas.quorum", "replicas.samples", "replicas.bytes"),
                "replicas.single",
            },
        ),
        ({"output_digests": {}}, {"jobs.outputs", "training.moved"}),
        ({"exit": None}, {"jobs.exit", "jobs.cost", "jobs.clock", "jobs.times"}),
        ({"observed": None}, {"jobs.clock", "jobs.times"}),
        ({"launched": None}, {"jobs.times"}),
    ],
)
def test_what_is_not_on_record_blocks_the_checks_that_need_it(
    tmp_path: Path, missing: dict[str, Any], blocked: set[str]
) -> None:
    results = results_of(replace(evidence_of(tmp_path, "train"), **missing))
    assert {id for id, result in results.items() if result.status not in ("PASS", "NOT_APPLICABLE")} == blocked
    assert {results[id].status for id in blocked} == {"BLOCKED"}
