"""Checks of evaluations as a whole: which scorers and judges count, the gap before training, what must not fall."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata

from reviews.evidence.evidence import ArmEvidence, Evidence
from reviews.gate.check_list import run_checks
from reviews.gate.gate_decision import settle
from reviews.gate.measurer import measure
from reviews.gate.packet import build_packet
from reviews.reviewers.checklist import Checklist
from reviews.stages.evaluation.scorer_admission import (
    ScorerVerdict,
    admission,
    labelled_cases,
    length_correlation,
    matched_pairs,
    verdicts_on,
)
from specs.session.evaluation_plan import Drift, EvaluationPlan, Gap
from specs.session.thresholds import Thresholds
from specs.stages.base.artifacts import Item
from specs.stages.base.metric import MetricSet
from specs.system.digests import digest_bytes
from specs.system.errors import EvidenceMissing
from specs.trail.verdict import CheckResult
from testing.factories.evaluation_evidence import (
    choice_rows,
    choose_evidence,
    compare_evidence,
    conversation_rows,
    converse_evidence,
    perplexity_evidence,
    perplexity_rows,
    row,
)
from testing.factories.evidence_on_disk import (
    N,
    answers,
    design_results,
    evidence_of,
    heldout_items,
    prompt_items,
    resolved_spec,
    write_rows,
)
from testing.factories.flaws import with_thresholds
from testing.factories.flaws_evaluation import drifted, labelled, labelled_items, with_plan
from testing.factories.spec_files import list_problems, write_spec
from training.rules import tasks
from training.rules.tasks import verifier
from training.rules.tasks.format_instructions import Judgement
from training.rules.tasks.verifier_cases import cases_of

TWENTY = ["reference", "candidate"] * 10


def result(evidence: Evidence, check: str) -> CheckResult:
    metrics: MetricSet | None
    try:
        metrics = measure(evidence)
    except EvidenceMissing:
        metrics = None
    return next(check_result for check_result in run_checks(evidence, metrics) if check_result.id == check)


def outcome_of(evidence: Evidence) -> str:
    metrics = measure(evidence)
    packet = build_packet(
        evidence, metrics, run_checks(evidence, metrics), checks_digest=digest_bytes(b"checks"), claims=()
    )
    return settle(evidence.resolved, packet, Checklist().review(packet, packet.content_digest()), 1).outcome


def short_enough(_: Item, output: str) -> Judgement:
    """The scorer that passed for a measure of success: whatever is longer than 500 characters has failed."""
    return Judgement(len(output) <= 500, "" if len(output) <= 500 else "too_long")


@pytest.fixture
def ruler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the ruler in the place of the task's verifier."""

    class Task:
        verify = staticmethod(short_enough)

    monkeypatch.setitem(tasks._TASKS, "format_instructions", Task)  # pyright: ignore[reportPrivateUsage]


# Scorers


def test_failure_02_a_ruler_with_splendid_statistics_is_refused(tmp_path: Path, ruler: None) -> None:
    """Every gain is an answer that became shorter than the limit; the test on them is flawless and must not count."""
    evidence = evidence_of(tmp_path, "tuned")
    assert evidence.baseline_rows is not None
    rows = answers([True] * N)
    write_rows(evidence.baseline_rows, [fields | {"output": fields["output"] + " and so on" * 60} for fields in rows])
    write_rows(evidence.outputs["rows"], rows)
    metrics = measure(evidence).metrics
    assert (metrics["gained"].value, metrics["lost"].value, metrics["cohens_h"].value > 3) == (N, 0, True)
    assert metrics["mcnemar_p"].value < 0.001
    refused = result(evidence, "scorer.admitted")
    assert (refused.status, refused.blocking) == ("FAIL", True) and "misjudges" in refused.detail
    assert result(evidence, "scorer.length").status == "WARN"
    assert outcome_of(evidence) == "reject"


def test_the_same_session_with_the_tasks_own_verifier_is_admitted(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "tuned")
    assert result(evidence, "scorer.admitted").status == "PASS"
    assert outcome_of(evidence) == "approve"


def test_a_ruler_is_refused_before_anything_is_paid_for(tmp_path: Path, ruler: None) -> None:
    checks = design_results(resolved_spec(tmp_path), heldout_items(), {"prompts": prompt_items()})
    assert {check.id: check.status for check in checks}["design.scorer"] == "FAIL"


def test_known_answers_alone_do_not_admit_what_people_contradict(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "base")
    right = labelled(evidence, labelled_items(str.islower))
    assert result(right, "scorer.admitted").status == "PASS"
    assert "kappa 1.00" in result(right, "scorer.admitted").detail
    coin = labelled(evidence, labelled_items(lambda text: int(text.split()[2]) % 3 == 0))
    refused = result(coin, "scorer.admitted")
    assert refused.status == "FAIL" and "kappa is below 0.7" in refused.detail
    looser = coin.resolved.spec.model_copy(
        update={"thresholds": coin.resolved.spec.thresholds.model_copy(update={"scorer_agreement": 0.4})}
    )
    coin = replace(coin, resolved=coin.resolved.model_copy(update={"spec": looser}))
    assert "kappa is below 0.4" in result(coin, "scorer.admitted").detail


def test_a_sample_on_which_a_ruler_would_agree_admits_nothing(tmp_path: Path) -> None:
    """Good answers are short and bad ones long: the right verifier agrees with all labels, and so would a ruler."""
    items = [
        Item(
            id=f"l{n}",
            group="tea",
            kind="lowercase",
            prompt=f"Tea {n}.",
            constraint={"labelled_output": text * (1 if n % 2 else 20), "label": n % 2},
        )
        for n in range(24)
        for text in (f"tea number {n} is hot. " if n % 2 else f"Tea Number {n} is hot. ",)
    ]
    refused = result(labelled(evidence_of(tmp_path, "base"), tuple(items)), "scorer.admitted")
    assert refused.status == "FAIL" and "a ruler would agree with them too" in refused.detail
    assert admission(verdicts_on(labelled_cases(items), short_enough)).agreement.kappa < 1
    agreeing = [ScorerVerdict(str(n), 400 if n % 2 else 900, bool(n % 2), bool(n % 2)) for n in range(24)]
    assert admission(agreeing).agreement.kappa == 1.0 and admission(agreeing).matched.n == 0


def test_what_admits_a_scorer_lies_at_the_registered_thresholds(tmp_path: Path) -> None:
    evidence = labelled(evidence_of(tmp_path, "base"), labelled_items(str.islower, 21))

    def status(**thresholds: Any) -> str:
        return result(with_thresholds(evidence, **thresholds), "scorer.admitted").status

    assert [status(scorer_labelled=least) for least in (21, 22)] == ["PASS", "BLOCKED"]
    assert [status(scorer_sides=least) for least in (0.2, 0.5)] == ["PASS", "FAIL"]
    # Answers of 23 and 34 characters are a pair up to a ratio of 35 / 24.
    apart = [ScorerVerdict(f"{n}", 34 if n % 2 else 23, bool(n % 2), bool(n % 2)) for n in range(24)]
    results = [admission(apart, Thresholds(scorer_matched=ratio)).matched.n for ratio in (1.45, 1.46)]
    assert results == [0, 24]


def test_labels_that_cannot_be_read_block(tmp_path: Path) -> None:
    items = labelled_items(str.islower)
    broken = (items[0].model_copy(update={"constraint": {"label": 1}}), *items[1:])
    assert result(labelled(evidence_of(tmp_path, "base"), broken), "scorer.admitted").status == "BLOCKED"
    gone = replace(labelled(evidence_of(tmp_path, "base"), items), data={})
    assert result(gone, "scorer.admitted").status == "BLOCKED"


@pytest.mark.parametrize("task", ["format_instructions", "instruction_following"])
def test_the_known_answers_themselves_would_refuse_a_ruler(task: str) -> None:
    ours = admission(verdicts_on(cases_of(task), verifier(task)))
    assert (ours.agreement.kappa, ours.matched.kappa, ours.length, ours.wrong) == (1.0, 1.0, 0.0, ())
    assert ours.covered >= 0.2 and ours.matched.n >= 20
    theirs = admission(verdicts_on(cases_of(task), short_enough))
    assert theirs.agreement.kappa < 0.2 and theirs.length < -0.7 and len(theirs.wrong) > ours.n / 3


def test_verdicts_that_lean_on_length_a_little_correlate_a_little() -> None:
    """By hand: within labels, verdicts 1 0 1 0 on ranks 1 2 3 4 have Pearson's r = -1 / sqrt(5)."""
    verdicts = [
        ScorerVerdict(f"{label}{n}", length, label, bool(n % 2 == 0))
        for label in (True, False)
        for n, length in enumerate((10, 20, 30, 40))
    ]
    assert length_correlation(verdicts) == pytest.approx(-(1 / 5**0.5))
    assert length_correlation([verdict._replace(passed=verdict.label) for verdict in verdicts]) == 0.0


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 6), st.booleans(), st.booleans()), min_size=4, max_size=30))
def test_verdicts_correlate_with_the_ranks_of_scipy(drawn: list[tuple[int, bool, bool]]) -> None:
    lengths, labels, passed = (np.array(column, float) for column in zip(*drawn, strict=True))
    ranks, passed = (
        values
        - np.where(labels == 1, values[labels == 1].sum() / max(labels.sum(), 1), 0)
        - np.where(labels == 0, values[labels == 0].sum() / max((1 - labels).sum(), 1), 0)
        for values in (np.asarray(rankdata(lengths), float), passed)
    )
    assume(min(np.abs(ranks).max(), np.abs(passed).max()) > 1e-6)
    verdicts = [ScorerVerdict(str(n), *values) for n, values in enumerate(drawn)]
    expected = float(ranks @ passed) / float(np.linalg.norm(ranks) * np.linalg.norm(passed))
    assert length_correlation(verdicts) == pytest.approx(expected, abs=1e-9)


def test_pairs_are_of_nearly_equal_length_and_each_answer_is_used_once() -> None:
    verdicts = [
        ScorerVerdict("g1", 100, True, True),
        ScorerVerdict("g2", 101, True, True),
        ScorerVerdict("b1", 100, False, False),
        ScorerVerdict("b2", 130, False, False),
        ScorerVerdict("b3", 104, False, False),
    ]
    assert [(verdict.name, other.name) for verdict, other in matched_pairs(verdicts)] == [("g1", "b1"), ("g2", "b3")]


# The gap before training


def gap(evidence: Evidence, **changes: Any) -> Evidence:
    return with_plan(evidence, EvaluationPlan(gap=Gap.model_validate({"base": ("base",)} | changes)))


def right(folder: Path, count: int) -> Evidence:
    return evidence_of(folder, "base", answers([True] * count + [False] * (N - count)))


def test_failure_01_a_base_model_that_can_do_it_opens_no_training(tmp_path: Path) -> None:
    able = gap(right(tmp_path, 9), base_at_most=0.6, slack=0.5)
    assert result(able, "gap.before_training").status == "FAIL"
    assert outcome_of(able) == "reject"


def test_a_base_model_that_fails_leaves_a_gap(tmp_path: Path) -> None:
    assert result(gap(right(tmp_path, 0), slack=0.1), "gap.before_training").status == "PASS"
    # 0 of 12 could be 0.24 in truth, by Wilson's interval.
    refused = result(gap(right(tmp_path, 0), base_at_most=0.2, slack=0.04), "gap.before_training")
    assert refused.status == "FAIL" and "[0.000, 0.242]" in refused.detail


def test_a_gap_that_was_not_measured_blocks(tmp_path: Path) -> None:
    evidence = gap(right(tmp_path, 0), base=("base", "tuned"))
    assert result(evidence, "gap.before_training").status == "NOT_APPLICABLE"
    late = with_plan(evidence_of(tmp_path, "tuned"), EvaluationPlan(gap=Gap(base=("base", "tuned"))))
    assert result(late, "gap.before_training").status == "BLOCKED"


def test_a_ceiling_that_fails_too_opens_no_training(tmp_path: Path) -> None:
    """Then no one knows whether the task can be done, or whether the scorer can see it."""
    low = measure(right(tmp_path, 0))
    plan = EvaluationPlan(gap=Gap(base=("base",), ceiling="tuned"))
    tuned = evidence_of(tmp_path, "tuned", answers([True] * 6 + [False] * 6))
    failing = with_plan(replace(tuned, earlier={"base": low}), plan)
    refused = result(failing, "gap.before_training")
    assert refused.status == "FAIL" and "the ceiling fails too" in refused.detail
    # 9 of 12 is below 0.8, however wide the slack.
    nearly = replace(evidence_of(tmp_path, "tuned", answers([True] * 9 + [False] * 3)), earlier={"base": low})
    loose = EvaluationPlan(gap=Gap(base=("base",), ceiling="tuned", slack=0.5))
    assert result(with_plan(nearly, loose), "gap.before_training").status == "FAIL"
    able = with_plan(replace(evidence_of(tmp_path, "tuned", answers([True] * N)), earlier={"base": low}), plan)
    assert result(able, "gap.before_training").status == "PASS"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("gap: {base: [bass]}", "unknown stage 'bass'"),
        ("gap: {base: [sample]}", "'sample' is of kind generate"),
        ("gap: {base: [tuned]}", "'tuned' comes after 'train', which already trains"),
        ("gap: {base: [base], ceiling: tuned}", "'tuned' comes after 'train', which already trains"),
        ("labelled: labels", "unknown data file 'labels'"),
        ("drift: [{before: tuned, after: base}]", "'base' does not come after 'tuned'"),
        ("drift: [{before: base, after: ship}]", "'ship' is of kind package"),
    ],
)
def test_a_plan_that_cannot_show_anything_is_reported_with_its_place(
    tmp_path: Path, section: str, message: str
) -> None:
    problems = list_problems(write_spec(tmp_path, ("stages:\n", f"evaluation:\n  {section}\nstages:\n")))
    assert any(message in problem and "evaluation." in problem for problem in problems), problems


def test_a_plan_of_a_fitting_spec_loads_and_is_registered(tmp_path: Path) -> None:
    plan = "evaluation:\n  gap: {base: [base]}\n  drift: [{before: base, after: tuned, margin: 0.1}]\nstages:\n"
    resolved = resolved_spec(tmp_path, ("stages:\n", plan))
    assert resolved.spec.evaluation == EvaluationPlan(
        gap=Gap(base=("base",)), drift=(Drift(before="base", after="tuned", margin=0.1),)
    )
    assert resolved.registration() != resolved_spec(tmp_path).registration()


def test_stages_that_differ_in_more_than_the_model_are_no_drift(tmp_path: Path) -> None:
    plan = ("stages:\n", "evaluation:\n  drift: [{before: base, after: again}]\nstages:\n")
    other = ("  - name: ship\n", "  - name: again\n    kind: evaluate\n    inputs: {model: train.checkpoint, items: "
             "data.prompts}\n    parameters: {max_new_tokens: 32, seed: 7}\n  - name: ship\n")  # fmt: skip
    problems = list_problems(write_spec(tmp_path, plan, other))
    assert any("have different items" in problem for problem in problems), problems


# What must not fall


@pytest.mark.parametrize(
    ("after", "margin", "status"), [(12, 0.3, "PASS"), (12, 0.1, "FAIL"), (10, 0.4, "FAIL"), (10, 0.5, "PASS")]
)
def test_non_inferiority_is_judged_by_the_end_of_the_interval(
    tmp_path: Path, after: int, margin: float, status: str
) -> None:
    """Nothing lost of 12 leaves a loss of 0.19 possible; two lost of 12 leave 0.44."""
    evidence = drifted(evidence_of(tmp_path, "tuned"), [True] * N, [True] * after + [False] * (N - after), margin)
    assert result(evidence, "drift.kept").status == status


def test_a_stage_that_was_measured_otherwise_is_not_compared(tmp_path: Path) -> None:
    evidence = drifted(evidence_of(tmp_path, "tuned"), [True] * N, [True] * N, 0.3)
    arm = evidence.arms["base"]
    assert arm.manifest is not None
    for other in (
        arm._replace(parameters=arm.parameters | {"max_new_tokens": 9}),
        arm._replace(manifest=arm.manifest.model_copy(update={"code": digest_bytes(b"other")})),
        arm._replace(manifest=None),
    ):
        assert result(replace(evidence, arms={"base": other}), "drift.kept").status == "BLOCKED"
    assert result(replace(evidence, arms={}), "drift.kept").status == "BLOCKED"


def held_against(evidence: Evidence, before: list[Any], folder: Path, margin: float = 0.05) -> CheckResult:
    plan = EvaluationPlan(drift=(Drift(before="base", after=evidence.stage.name, margin=margin),))
    rows = write_rows(folder / "earlier.jsonl", [row(item) for item in before])
    arm = ArmEvidence(rows, evidence.manifest, evidence.parameters)
    return result(replace(with_plan(evidence, plan), arms={"base": arm}), "drift.kept")


def test_surprise_that_grew_is_a_loss_and_surprise_that_fell_is_none(tmp_path: Path) -> None:
    evidence = perplexity_evidence(tmp_path)
    # What was read before with 0.2 nats per byte more, then with 0.2 less.
    assert held_against(evidence, perplexity_rows(0.2), tmp_path).status == "PASS"
    fallen = held_against(evidence, perplexity_rows(-0.2), tmp_path)
    assert fallen.status == "FAIL"
    ((value, low, high),) = re.findall(r": (\S+) nats per byte saved .* \[(\S+), (\S+)\], margin 0.05", fallen.detail)
    assert value == "-0.2000" and -0.21 < float(low) <= -0.2 <= float(high) < -0.19
    assert held_against(evidence, perplexity_rows(-0.2), tmp_path, margin=0.3).status == "PASS"


def test_choices_and_conversations_must_not_fall_either(tmp_path: Path) -> None:
    best, worst = [(0.1, 90.0), (9.0, 0.1)] * 2, [(9.0, 0.1), (0.1, 90.0)] * 2
    fallen = choose_evidence(tmp_path, choice_rows(worst))
    assert held_against(fallen, choice_rows(best), tmp_path, 0.5).status == "FAIL"
    evidence = choose_evidence(tmp_path, choice_rows(best))
    assert held_against(evidence, choice_rows(best), tmp_path, 0.5).status == "PASS"
    mute = conversation_rows(("No.",) * 4, 8)
    talking = converse_evidence(tmp_path, mute)
    assert held_against(talking, conversation_rows(times=8), tmp_path, 0.3).status == "FAIL"
    assert held_against(converse_evidence(tmp_path), mute, tmp_path, 0.3).status == "PASS"


def test_items_of_a_data_file_are_the_registered_ones(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "base")
    elsewhere = evidence.stage.model_copy(update={"inputs": {"model": "model", "items": "data.prompts"}})
    assert evidence.manifest is not None
    for digest, status in (
        (evidence.resolved.data_digests["prompts"], "PASS"),
        (evidence.manifest.inputs["items"], "FAIL"),
    ):
        read = evidence.manifest.model_copy(update={"inputs": evidence.manifest.inputs | {"items": digest}})
        check = result(replace(evidence, stage=elsewhere, manifest=read), "registration.split")
        assert check.status == status
    assert result(replace(evidence, stage=elsewhere), "power.n").status == "NOT_APPLICABLE"
    assert result(evidence, "power.n").status == "PASS"


# Judges and conversations


def test_a_judge_that_agrees_with_people_counts(tmp_path: Path) -> None:
    evidence = compare_evidence(tmp_path, ["candidate"] * 6, TWENTY, TWENTY)
    assert {
        name: result(evidence, name).status
        for name in ("pairwise_judge.judge", "pairwise_judge.order", "pairwise_judge.length")
    } == {"pairwise_judge.judge": "PASS", "pairwise_judge.order": "PASS", "pairwise_judge.length": "PASS"}


@pytest.mark.parametrize(
    ("labels", "judged", "status"),
    [
        (TWENTY, ["reference"] * 20, "FAIL"),
        (TWENTY, ["candidate", "reference"] * 10, "FAIL"),
        (TWENTY, [*TWENTY[:16], "candidate", "reference", "candidate", "reference"], "FAIL"),
        (TWENTY, [*TWENTY[:18], "candidate", "reference"], "PASS"),
        (TWENTY[:18], TWENTY[:18], "BLOCKED"),
        (["reference"] * 20, ["reference"] * 20, "BLOCKED"),
    ],
)
def test_a_judge_that_no_one_can_vouch_for_does_not_count(
    tmp_path: Path, labels: list[str], judged: list[str], status: str
) -> None:
    evidence = compare_evidence(tmp_path, ["candidate"] * 6, labels, judged)
    check = result(evidence, "pairwise_judge.judge")
    assert (check.status, check.blocking) == (status, True), check.detail


@pytest.mark.parametrize(("longer", "status"), [(0.31, "FAIL"), (-0.31, "FAIL"), (0.3, "PASS")])
def test_a_judge_that_prefers_length_more_than_people_do_does_not_count(
    tmp_path: Path, longer: float, status: str
) -> None:
    evidence = compare_evidence(tmp_path, ["candidate"] * 6, TWENTY, TWENTY)
    metrics = measure(evidence)
    changed = metrics.metrics["judge_longer"].model_copy(update={"value": longer, "ratio": None})
    leaning = metrics.model_copy(update={"metrics": metrics.metrics | {"judge_longer": changed}})
    assert {check.id: check.status for check in run_checks(evidence, leaning)}["pairwise_judge.judge"] == status


def test_a_judge_that_goes_by_the_order_is_reported(tmp_path: Path) -> None:
    evidence = compare_evidence(tmp_path, ["first"] * 4 + ["candidate"] * 4, TWENTY, TWENTY)
    assert result(evidence, "pairwise_judge.order").status == "WARN"


def test_a_win_rate_made_of_length_is_reported(tmp_path: Path) -> None:
    """The longer answer wins, anyone who wrote it; the candidate is the longer one on most items."""
    better = ["candidate"] * 8
    evidence = compare_evidence(tmp_path, better, TWENTY, TWENTY, lengths=(5, 60))
    metrics = measure(evidence)
    controlled = metrics.metrics["win_rate_controlled"].model_copy(update={"value": 0.45})
    turned = metrics.model_copy(update={"metrics": metrics.metrics | {"win_rate_controlled": controlled}})
    statuses = {check.id: check.status for check in run_checks(evidence, turned)}
    assert statuses["pairwise_judge.length"] == "WARN" and result(evidence, "pairwise_judge.length").status == "PASS"


def test_every_kind_of_conversation_is_due_often_enough(tmp_path: Path) -> None:
    assert result(converse_evidence(tmp_path), "multi_turn.kinds").status == "PASS"
    few = converse_evidence(tmp_path, conversation_rows(times=7), times=7)
    assert result(few, "multi_turn.kinds").status == "FAIL"
    talking = converse_evidence(tmp_path)
    one_kind = tuple(item.model_copy(update={"kind": "memory"}) for item in talking.heldout)
    assert "preference, continuity, update" in result(replace(talking, heldout=one_kind), "multi_turn.kinds").detail
