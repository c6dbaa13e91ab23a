"""Failures seen in autonomous projects, by number in docs/explanation/failures.md: each is planted and stopped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.checks.claim_lookup import look_up
from reviews.evidence.evidence import Evidence
from reviews.gate.check_list import run_checks
from reviews.gate.gate_decision import settle
from reviews.gate.measurer import measure
from reviews.gate.packet import build_packet
from reviews.gate.packet_derivation import derive_packet
from reviews.gate.panel import ReviewerAnswer, merge
from reviews.history.history import History
from reviews.reviewers.checklist import Checklist
from reviews.stages.evaluation.scorer_admission import DEFAULTS, admission, labelled_cases, verdicts_on
from reviews.statistics.mcnemar import exact_mcnemar
from reviews.trail.chain.store import Store
from specs.jobs.grant_and_claim import Claim
from specs.stages.base.artifacts import Item
from specs.stages.base.stage import Criterion
from specs.stages.metric_catalog import METRICS
from specs.system.digests import digest_bytes
from specs.system.errors import EvidenceMissing
from specs.trail.verdict import Condition, ConditionResult, Finding, Packet, Span, Verdict
from testing.factories.evidence_on_disk import TALES, evidence_of, heldout_items, samples, with_manifest
from testing.factories.flaws import ALL, NONE, change_completions, enlarged_kind, two_kinds
from testing.factories.flaws_evaluation import labelled_items
from training.items.format_items import HELDOUT_TOPICS, TRAIN_TOPICS
from training.rules.tasks import worked_example
from training.rules.tasks.format_instructions import Judgement

DIGEST = digest_bytes(b"checks")


def outcome_of(evidence: Evidence, verdict: Verdict | None = None) -> str:
    """Judge evidence as the gate does, with the embedded reviewer unless another verdict is given."""
    try:
        metrics = measure(evidence)
    except EvidenceMissing:
        metrics = None
    packet = build_packet(evidence, metrics, run_checks(evidence, metrics), checks_digest=DIGEST, claims=())
    return settle(evidence.resolved, packet, verdict or Checklist().review(packet, packet.content_digest()), 1).outcome


def packet_of(evidence: Evidence) -> Packet:
    metrics = measure(evidence)
    return build_packet(evidence, metrics, run_checks(evidence, metrics), checks_digest=DIGEST, claims=())


def status_of(evidence: Evidence, check: str) -> str:
    try:
        metrics = measure(evidence)
    except EvidenceMissing:
        metrics = None
    return next(result.status for result in run_checks(evidence, metrics) if result.id == check)


def test_failure_02_a_label_that_measures_length(tmp_path: Path) -> None:
    """The scorer is refused, whatever its statistics; test_evaluation_checks.py has the gate."""
    labelled = labelled_items(lambda text: len(text) <= 100)
    ruler = admission(verdicts_on(labelled_cases(labelled), lambda _, output: Judgement(len(output) <= 100)))
    # On labels that are themselves a matter of length a ruler agrees with everything, and is not admitted for it.
    assert ruler.agreement.kappa == 1.0 and ruler.covered < DEFAULTS.scorer_sides
    people = admission(
        verdicts_on(labelled_cases(labelled_items(str.islower)), lambda _, output: Judgement(len(output) <= 100))
    )
    assert people.agreement.kappa < 0.1 and abs(people.length) > 0.5
    assert status_of(evidence_of(tmp_path, "base"), "scorer.admitted") == "PASS"


def test_failure_03_self_declared_gate(tmp_path: Path) -> None:
    """A stated p-value opens nothing, and a clause that was not measured is not met."""
    evidence = evidence_of(tmp_path, "base")
    stated = look_up([Claim(stage="base", metric="mcnemar_p", value=1e-12)], {"base": measure(evidence)})
    assert stated[0].status == "unsupported"
    assert outcome_of(replace(evidence, outputs={})) == "escalate"


def test_failure_04_format_confound(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "tuned")
    assert outcome_of(with_manifest(evidence, facts={"chat_template": digest_bytes(b"")})) != "approve"
    assert status_of(with_manifest(evidence, facts={"first_prompt_ids": [9]}), "parity.settings") == "FAIL"


@pytest.mark.parametrize(
    "ran", [{"scheduler": "constant"}, {"batch_size": 2}, {"trained_share": 0.12}, {"max_length": 64}]
)
def test_failure_08_run_differs_from_approval(tmp_path: Path, ran: dict[str, Any]) -> None:
    assert outcome_of(with_manifest(evidence_of(tmp_path, "train"), effective=ran)) == "escalate"


def test_failure_10_a_kind_is_judged_by_its_adjusted_value(tmp_path: Path) -> None:
    evidence = two_kinds(evidence_of(tmp_path, "tuned"), ALL + NONE, NONE + NONE)
    assert exact_mcnemar(0, 6) < evidence.resolved.spec.analysis.alpha
    assert status_of(evidence, "strata.kinds") == "PASS"


def test_failure_16_answers_cut_at_a_colon(tmp_path: Path) -> None:
    whole = [f"{tale} one more thing: good night." for tale in TALES]
    assert outcome_of(evidence_of(tmp_path, "sample", change_completions(*whole))) == "approve"
    cut = [text.split(" good")[0] for text in whole]
    assert outcome_of(evidence_of(tmp_path, "sample", change_completions(*cut[:2], *whole[2:]))) == "escalate"


@pytest.mark.parametrize("rest", ["###", "\n###end", " ##", "<|im_", "\nuser: another one"])
def test_failure_17_delimiters_in_the_data(tmp_path: Path, rest: str) -> None:
    """Of five completions two end in a piece of a delimiter; the whole of it stands nowhere."""
    texts = [f"{tale}{rest}" if place < 2 else tale for place, tale in enumerate(TALES)]
    assert outcome_of(evidence_of(tmp_path, "sample", change_completions(*texts))) == "escalate"


def test_failure_17_residue_that_no_list_names(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "sample", change_completions(*(f"{tale} @@" for tale in TALES)))
    assert status_of(evidence, "residue.delimiters") == "PASS"
    assert status_of(evidence, "residue.edges") == "WARN"


def test_failure_20_a_metric_defined_three_ways() -> None:
    assert all(metric.unit and metric.population and metric.definition for metric in METRICS.values())
    assert METRICS["mean_output_tokens"].unit == METRICS["train_tokens"].unit == "model tokens"


@pytest.mark.parametrize(("copies", "status"), [(10, "PASS"), (13, "FAIL")])
def test_failure_23_what_was_left_held_one_thirteen_times(tmp_path: Path, copies: int, status: str) -> None:
    prompts = tuple(
        Item(id=f"q{n}", group=f"q{n}", kind="lowercase", prompt=f"Tell tale number {n}.", constraint={})
        for n in range(40)
    )
    template = samples()[0]
    rows = [
        template
        | {"item": item.id, "group": item.group, "prompt": item.prompt}
        | {"completion": "the same old tale again." if n < copies else f"{TALES[n % 5][:-1]} and then {n * n * n}."}
        for n, item in enumerate(prompts)
    ]
    evidence = replace(evidence_of(tmp_path, "sample", rows), data={"prompts": prompts})
    assert status_of(evidence, "variety.copies") == status


def test_failure_32_one_kind_carries_the_gain(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "tuned")
    assert outcome_of(two_kinds(evidence, NONE + NONE, ALL + ALL)) == "approve"
    # In equal parts it is an effect in one of them, which the headline names; by most of the items it is none.
    assert outcome_of(two_kinds(evidence, NONE + NONE, ALL + NONE)) == "approve"
    assert status_of(two_kinds(evidence, NONE + NONE, ALL + NONE), "strata.sensitivity") == "WARN"
    assert outcome_of(enlarged_kind(evidence)) == "escalate"


def test_failure_33_worked_examples_overlap_no_split() -> None:
    for item in heldout_items():
        question, _ = worked_example("format_instructions", item)
        assert not any(topic in question for topic in (*TRAIN_TOPICS, *HELDOUT_TOPICS))


def test_failure_34_cut_off_answers_in_the_training_data(tmp_path: Path) -> None:
    cut = [row | {"truncated": True} for row in samples()]
    assert measure(evidence_of(tmp_path, "sample", cut)).metrics["accepted"].value == 0


def test_failure_39_a_verdict_is_never_read_out_of_prose(tmp_path: Path) -> None:
    words = {"recommendation": "**Approval**: Yes", "reasoning": "APPROVED. GATE PASSED.", "risks": ()}
    shouting = Verdict.model_validate({"reviewer": "r", "findings": (), "approve": False} | words)
    assert outcome_of(evidence_of(tmp_path, "base"), shouting) == "escalate"


def test_failure_40_a_crash_is_no_review(tmp_path: Path) -> None:
    """What the gate records when a reviewer fails: no findings, no approval."""
    crashed = Verdict(
        reviewer="r", findings=(), recommendation="none", reasoning="stdout is not a terminal", risks=(), approve=False
    )
    assert outcome_of(evidence_of(tmp_path, "base"), crashed) == "escalate"


def test_failure_42_dates_come_from_peergate() -> None:
    assert not [name for name in Verdict.model_fields if "date" in name or "time" in name]


def test_failure_46_conditions_are_not_forgotten(tmp_path: Path) -> None:
    """An approval on a condition opens the next stage; a gate closes when the condition is due and does not hold."""
    evidence = evidence_of(tmp_path, "base")
    packet = packet_of(evidence)
    rare = Condition(text="enough of each kind", stage="train", criterion=Criterion(metric="accepted", at_least=4))
    verdict = Checklist().review(packet, packet.content_digest()).model_copy(update={"conditions": (rare,)})
    decision = settle(evidence.resolved, packet, verdict, 1)
    assert (decision.outcome, decision.conditions) == ("approve", (rare,))
    condition_result = ConditionResult(id="base.1/1", condition=rare, is_due=True, value=2.0, met=False)
    later = packet_of(evidence_of(tmp_path, "sample"))
    bound = later.model_copy(update={"conditions": (condition_result,)})
    result = Checklist().review(bound, bound.content_digest())
    assert settle(evidence.resolved, bound, result, 1).outcome == "escalate"
    assert settle(evidence.resolved, later, Checklist().review(later, later.content_digest()), 1).outcome == "approve"


def test_failure_53_reviewers_that_disagree_do_not_open_a_gate(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "base")
    packet = packet_of(evidence)
    digest = packet.content_digest()
    kind = Checklist().review(packet, digest)
    place = Span(artifact=digest, pointer="/sample_rows/0")
    finding = Finding(id="f", severity="blocking", statement="this row is wrong", evidence=(place,))
    strict = kind.model_copy(update={"findings": (finding,), "approve": False})
    panel = merge([ReviewerAnswer("one", kind), ReviewerAnswer("two", strict)], quorum=1)
    decision = settle(evidence.resolved, packet, panel, 1)
    assert decision.outcome == "escalate" and "the reviewers disagree" in " ".join(decision.reasons)
    both = merge([ReviewerAnswer("one", kind), ReviewerAnswer("two", kind)], quorum=2)
    assert settle(evidence.resolved, packet, both, 1).outcome == "approve"


def test_failure_52_a_finding_that_points_at_nothing(tmp_path: Path) -> None:
    invented = Finding(
        id="f",
        severity="blocking",
        statement="the spec requires an external model",
        evidence=(Span(artifact=digest_bytes(b"another packet"), pointer="/registered"),),
    )
    verdict = Verdict(reviewer="r", findings=(invented,), recommendation="", reasoning="", risks=(), approve=False)
    evidence = evidence_of(tmp_path, "base")
    metrics = measure(evidence)
    packet = build_packet(evidence, metrics, run_checks(evidence, metrics), checks_digest=DIGEST, claims=())
    decision = settle(evidence.resolved, packet, verdict, 1)
    assert (decision.outcome, decision.dropped_findings) == ("escalate", 1)


def test_failure_54_numbers_do_not_come_from_the_builder(tmp_path: Path) -> None:
    """A packet cannot be built without the builder's plan, and of the plan only looked-up claims get in."""
    evidence = evidence_of(tmp_path, "base")
    metrics = measure(evidence)
    with pytest.raises(EvidenceMissing, match="no plan"):
        derive_packet(History([], Store(tmp_path / "store")), evidence, metrics, (), DIGEST)
    stated = look_up([Claim(stage="base", metric="accuracy", value=0.99)], {"base": metrics})
    packet = build_packet(evidence, metrics, (), checks_digest=DIGEST, claims=stated)
    assert packet.claims[0].status == "contradicted"
    assert packet.metrics["accuracy"]["value"] == pytest.approx(10 / 12)
