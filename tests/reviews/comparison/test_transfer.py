"""A second split in the hypothesis: its test against statsmodels, what it decides, and what closes the gate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from statsmodels.stats.contingency_tables import mcnemar

from reviews.comparison.transfer import design_of
from reviews.evidence.evidence import Evidence
from reviews.gate.check_list import run_checks
from reviews.gate.measurer import measure
from reviews.gate.packet import criteria_results
from specs.lint.evaluation_rules import notes
from specs.loading.loading import load_spec
from specs.system.digests import digest_bytes, digest_file
from specs.system.errors import EvidenceMissing
from specs.trail.verdict import CheckResult
from testing.factories.evidence_on_disk import N, evidence_of, heldout_items
from testing.factories.spec_files import problems_of
from testing.factories.transfer_evidence import stage_text, transfer_items, transfer_spec, with_transfer

NONE, ALL = [False] * N, [True] * N


def first(count: int) -> list[bool]:
    return [number < count for number in range(N)]


def judged(evidence: Evidence) -> dict[str, CheckResult]:
    try:
        metrics = measure(evidence)
    except EvidenceMissing:
        metrics = None
    return {check.id: check for check in run_checks(evidence, metrics)}


def unmet(evidence: Evidence) -> list[str]:
    results = criteria_results(evidence.resolved, evidence.stage, measure(evidence))
    return [str(result.criterion) for result in results if not result.met]


def tuned(folder: Path) -> Evidence:
    return evidence_of(folder, "tuned")


def test_the_gain_on_the_second_split_is_that_of_statsmodels(tmp_path: Path) -> None:
    evidence = with_transfer(tuned(tmp_path), first(2), [False, *[True] * 9, False, False])
    metrics = measure(evidence)
    again: Any = mcnemar([[1, 1], [8, 2]], exact=True)
    assert metrics.metrics["transfer_p"].value == pytest.approx(float(again.pvalue))
    assert metrics.metrics["transfer_gain"].value == pytest.approx(7 / N) and metrics.metrics["transfer_gain"].n == N
    path = evidence.arms["other_tuned"].rows
    assert path is not None and metrics.rows["other_tuned"] == digest_file(path)
    checks = judged(evidence)
    assert (checks["transfer.alike"].status, checks["transfer.shown"].status) == ("PASS", "PASS")
    assert unmet(evidence) == []


def test_a_gain_on_the_held_out_split_alone_is_an_unmet_hypothesis(tmp_path: Path) -> None:
    evidence = with_transfer(tuned(tmp_path), NONE, first(3))
    assert unmet(evidence) == ["transfer_p < 0.05"]
    check = judged(evidence)["transfer.shown"]
    assert check.status == "WARN" and not check.closes and "registered are 0.2" in check.detail


def test_a_gain_that_is_significant_and_too_small_is_not_enough(tmp_path: Path) -> None:
    assert unmet(with_transfer(tuned(tmp_path), NONE, first(8), least=0.7)) == ["transfer_gain >= 0.7"]


def test_the_second_split_takes_nothing_from_the_first(tmp_path: Path) -> None:
    # A conjunction: the first test keeps its p, however the second comes out.
    alone, both = measure(tuned(tmp_path)), measure(with_transfer(tuned(tmp_path), ALL, NONE))
    assert alone.metrics["mcnemar_p"] == both.metrics["mcnemar_p"]


def test_a_stage_without_an_accepted_attempt_closes_the_gate(tmp_path: Path) -> None:
    evidence = with_transfer(tuned(tmp_path), NONE, ALL)
    failed = replace(evidence, arms={"other_base": evidence.arms["other_base"]})
    checks = judged(failed)
    assert checks["transfer.alike"].status == "BLOCKED" and checks["transfer.alike"].closes
    assert "'other_tuned' of the transfer split has no accepted attempt" in checks["jobs.measured"].detail


@pytest.mark.parametrize(
    ("role", "what"), [("model", "weights"), ("items", "items, which are not the registered ones")]
)
def test_other_weights_or_items_are_rejected(tmp_path: Path, role: str, what: str) -> None:
    evidence = with_transfer(tuned(tmp_path), NONE, ALL)
    arm = evidence.arms["other_tuned"]
    assert arm.manifest is not None
    manifest = arm.manifest.model_copy(update={"inputs": arm.manifest.inputs | {role: digest_bytes(b"others")}})
    changed = replace(evidence, arms={**evidence.arms, "other_tuned": arm._replace(manifest=manifest)})
    check = judged(changed)["transfer.alike"]
    assert (check.status, check.repairable) == ("FAIL", False)
    assert f"'other_tuned' differs from its arm in {what}" in check.detail


def test_other_settings_are_rejected(tmp_path: Path) -> None:
    evidence = with_transfer(tuned(tmp_path), NONE, ALL)
    arm = evidence.arms["other_base"]
    other = arm._replace(parameters=arm.parameters | {"max_new_tokens": 64})
    check = judged(replace(evidence, arms={**evidence.arms, "other_base": other}))["transfer.alike"]
    assert check.status == "FAIL" and "'other_base' differs from its arm in parameters" in check.detail


def test_without_a_second_split_nothing_is_asked(tmp_path: Path) -> None:
    checks = judged(tuned(tmp_path))
    assert {checks[id].status for id in ("transfer.alike", "transfer.shown")} == {"NOT_APPLICABLE"}


def test_the_design_wants_other_items_and_enough_of_them(tmp_path: Path) -> None:
    spec = with_transfer(tuned(tmp_path), NONE, ALL, least=0.5).resolved.spec
    large = {"other": transfer_items(60)}
    assert design_of(spec, heldout_items(), large).status == "PASS"
    few = design_of(spec, heldout_items(), {"other": transfer_items(6)})
    assert few.status == "FAIL" and few.detail.startswith("on the transfer split, with 6 items")
    again = tuple(item.model_copy(update={"id": f"t{n}"}) for n, item in enumerate(heldout_items()))
    shared = design_of(spec, heldout_items(), {"other": (*transfer_items(60), *again)})
    assert shared.status == "FAIL" and "shares items with the held-out split" in shared.detail
    repeated = transfer_items()[0].model_copy(update={"id": "x"})
    twice = design_of(spec, heldout_items(), {"other": (*transfer_items(60), repeated)})
    assert twice.status == "FAIL" and "repeat another" in twice.detail


def test_a_transfer_prompt_among_the_training_prompts_is_leakage(tmp_path: Path) -> None:
    evidence = with_transfer(tuned(tmp_path), NONE, ALL)
    assert {item.id for item in evidence.reserved_items} == {item.id for item in (*heldout_items(), *transfer_items())}
    assert evidence.resolved.spec.hidden_data() == {"heldout", "other"}
    assert evidence.resolved.list_splits()[1] == evidence.resolved.data_digests["other"]
    assert tuned(tmp_path / "..").reserved_items == heldout_items()


def test_a_spec_with_a_second_split_loads_and_asks_for_its_gain(tmp_path: Path) -> None:
    spec = load_spec(transfer_spec(tmp_path)).spec
    assert [str(criterion) for criterion in spec.analysis.hypothesis()][-2:] == [
        "transfer_p < 0.05",
        "transfer_gain >= 0.2",
    ]
    assert {"other_base", "other_tuned"} <= {*spec.analysis.list_compared_stages()}
    assert not any("transfer split" in note for note in notes(spec))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("{data: other, before", "{data: otter, before"), "'otter' is not a data file of items"),
        (("before: other_base", "before: other_bass"), "unknown stage 'other_bass'"),
        (
            (stage_text("other_tuned", "train.checkpoint"), stage_text("other_tuned", "model")),
            "stage 'other_tuned': evaluates 'model', the treatment 'train.checkpoint'",
        ),
        (
            (stage_text("other_base", "model"), stage_text("other_base", "model").replace("32", "31")),
            "stage 'other_base': max_new_tokens is 31 here and 32 at the baseline 'base'",
        ),
        (("prompts: data.prompts", "prompts: data.other"), "stage 'sample': reads the transfer split"),
    ],
)
def test_what_a_second_split_may_not_be_is_refused_where_it_is_written(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    problems = problems_of(transfer_spec(tmp_path, change))
    assert message in [problem.message for problem in problems] and all(problem.line > 1 for problem in problems)


def test_a_second_split_that_is_answered_after_the_treatment_is_refused(tmp_path: Path) -> None:
    late = stage_text("other_tuned", "train.checkpoint")
    path = transfer_spec(tmp_path, (late, ""), ("  - name: ship\n", f"{late}  - name: ship\n"))
    message = "stage 'other_tuned': comes after the treatment 'tuned', whose gate judges it"
    assert message in [problem.message for problem in problems_of(path)]
