from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviews.checks.claim_lookup import look_up
from reviews.evidence.evidence import Evidence
from reviews.gate.check_list import run_checks
from reviews.gate.gate_decision import settle
from reviews.gate.measurer import measure
from reviews.gate.packet import build_design_packet, build_packet, criteria_results, resolvable
from reviews.reviewers.checklist import REMEDIES, Checklist
from reviews.reviewers.vendors.packet_text import reading_list, render
from specs.jobs.grant_and_claim import Claim
from specs.loading.loading import load_spec
from specs.loading.stored_spec import read_resolved
from specs.stages.base.kind import StageKind
from specs.stages.metric_catalog import METRICS
from specs.stages.registry import STAGE_KINDS, built_in_kinds, kind_of
from specs.system.digests import digest_bytes
from specs.system.errors import EvidenceMissing, SpecError
from specs.trail.verdict import Packet, Span
from testing.factories.evidence_on_disk import N, answers, evidence_of, resolved_spec, samples, steps, with_manifest

CHECKS = digest_bytes(b"checks")


def packet_of(evidence: Evidence) -> Packet:
    try:
        metrics = measure(evidence)
    except EvidenceMissing:
        metrics = None
    return build_packet(evidence, metrics, run_checks(evidence, metrics), checks_digest=CHECKS, claims=())


def decision_of(evidence: Evidence) -> str:
    packet = packet_of(evidence)
    verdict = Checklist().review(packet, packet.content_digest())
    return settle(evidence.resolved, packet, verdict, evidence.attempt).outcome


def test_a_packet_is_the_same_for_the_same_evidence(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "tuned")
    assert packet_of(evidence).canonical() == packet_of(evidence).canonical()


def test_a_packet_does_not_reveal_whose_work_it_is_or_what_follows(tmp_path: Path) -> None:
    text = packet_of(evidence_of(tmp_path, "train")).canonical().decode()
    assert all(word not in text for word in ("playbook", "checklist", "small.train", '"session"', str(tmp_path)))


def test_untrusted_text_in_a_packet_is_plain_and_cut(tmp_path: Path) -> None:
    rows = answers([True] * N, output="\x1b[31m" + "x" * 5000)
    packet = packet_of(replace(evidence_of(tmp_path, "base", rows), log_tail="\x1b]0;title\x07" + "y" * 9000))
    text = json.dumps(packet.model_dump(mode="json"))
    assert "\\u001b" not in text and "\\u0007" not in text
    assert max(len(row["output"]) for row in packet.sample_rows) <= 400
    assert packet.left_out["log_characters"] > 0


def test_token_ids_are_shown_to_no_reviewer_however_deep_they_lie(tmp_path: Path) -> None:
    rounds = [{"critique": "too long", "critique_ids": [7] * 300, "revision": "short", "revision_ids": [8] * 300}]
    rows = [row | {"answer_ids": [9, 9], "rounds": rounds} for row in steps()]
    row = packet_of(evidence_of(tmp_path, "train", rows)).sample_rows[0]
    assert row["step"] == 1 and "answer_ids" not in row and "_ids" not in row["rounds"]
    assert "too long" in row["rounds"] and "short" in row["rounds"]


def test_sample_rows_are_spread_and_what_is_left_out_is_counted(tmp_path: Path) -> None:
    packet = packet_of(evidence_of(tmp_path, "train", steps(40)))
    assert [row["step"] for row in packet.sample_rows][:3] == [1, 4, 7]
    assert packet.left_out["sample_rows"] == 28


@pytest.mark.parametrize(
    ("span", "resolves"),
    [
        ({"pointer": "/checks/0"}, True),
        ({"pointer": "/checks/0/id", "quote": "registration"}, True),
        ({"pointer": "/checks/0/id", "quote": "leakage"}, False),
        ({"pointer": "/checks/999"}, False),
        ({"pointer": "/checks/-1"}, False),
        ({"pointer": "/checks/00"}, False),
        ({"pointer": "/nothing"}, False),
        ({"pointer": ""}, False),
        ({"pointer": "checks/0"}, False),
        ({"pointer": "/stage/0"}, False),
        ({"lines": (1, 2), "quote": "training"}, True),
        ({"lines": (2, 4)}, False),
        ({"lines": (0, 1)}, False),
        ({"lines": (2, 1)}, False),
        ({}, False),
    ],
)
def test_spans_resolve_only_where_they_point_at_something(
    tmp_path: Path, span: dict[str, object], resolves: bool
) -> None:
    packet = packet_of(evidence_of(tmp_path, "train"))
    assert resolvable(Span.model_validate({"artifact": packet.content_digest(), **span}), packet) is resolves


@given(pointer=st.text(alphabet="/~01checks-é ", max_size=12), quote=st.text(max_size=5))
def test_no_pointer_breaks_the_resolver(pointer: str, quote: str) -> None:
    packet = PACKET
    resolvable(Span(artifact=packet.content_digest(), pointer=pointer, quote=quote), packet)


PACKET = Packet(
    stage="s",
    kind="sft",
    registration=CHECKS,
    registered={},
    granted_parameters={},
    allowed_ranges={},
    metrics={},
    metrics_digest=None,
    criteria=(),
    checks=(),
    checks_digest=CHECKS,
    sample_rows=(),
    flagged_rows=(),
    log_tail="",
    attempts=(),
    evaluations_of_heldout=0,
    claims=(),
    left_out={},
)


@pytest.mark.parametrize("stage", ["base", "sample", "train", "tuned", "ship"])
def test_healthy_evidence_is_approved(tmp_path: Path, stage: str) -> None:
    assert decision_of(evidence_of(tmp_path, stage)) == "approve"


def test_no_gain_on_sound_evidence_is_a_null(tmp_path: Path) -> None:
    assert decision_of(evidence_of(tmp_path, "tuned", answers([False] * N))) == "null"


def test_no_gain_on_broken_evidence_is_not_a_null(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "tuned", answers([False] * N))
    assert decision_of(with_manifest(evidence, threads=1)) == "escalate"


def test_a_lost_job_goes_to_a_person(tmp_path: Path) -> None:
    bare = replace(evidence_of(tmp_path, "train"), manifest=None, exit=None, outputs={}, output_digests={})
    assert decision_of(bare) == "escalate"


def test_an_unmet_criterion_with_a_remedy_asks_for_another_attempt(tmp_path: Path) -> None:
    # No sample is accepted: the acceptance rate is unmet, and the temperature may still be lowered.
    rows = [row | {"completion": "In Capitals Again."} for row in samples()]
    evidence = evidence_of(tmp_path, "sample", rows)
    (evidence.outputs["accepted"]).write_text("", encoding="utf-8")
    packet = packet_of(evidence)
    verdict = Checklist().review(packet, packet.content_digest())
    named = [finding.required_change for finding in verdict.findings]
    changes = [change for change in named if change and change.parameter]
    assert [(change.parameter, change.value) for change in changes] == [("temperature", pytest.approx(0.65))]
    # "accepted" has no range for its remedy here, so the change alone cannot settle it.
    assert settle(evidence.resolved, packet, verdict, 1).outcome == "escalate"


def test_every_finding_of_the_checklist_points_into_the_packet(tmp_path: Path) -> None:
    bare = replace(evidence_of(tmp_path, "tuned"), manifest=None, exit=None, outputs={}, output_digests={})
    packet = packet_of(bare)
    verdict = Checklist().review(packet, packet.content_digest())
    assert len(verdict.findings) > 10
    assert all(resolvable(span, packet) for finding in verdict.findings for span in finding.evidence)
    assert verdict.not_judged


def test_every_remedy_names_a_metric_and_a_parameter() -> None:
    for metric, remedy in REMEDIES.items():
        kind = METRICS[metric].scope
        assert remedy.parameter in STAGE_KINDS[kind].parameters.model_fields  # pyright: ignore[reportArgumentType]


def test_criteria_of_the_treatment_include_the_registered_hypothesis(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "tuned", answers([False] * N))
    results = criteria_results(evidence.resolved, evidence.stage, measure(evidence))
    assert [(str(result.criterion), result.met, result.hypothesis) for result in results] == [
        ("mcnemar_p < 0.05", False, True),
        ("accuracy_gain >= 0.1", False, True),
    ]


def test_a_criterion_without_a_measured_value_is_unmet(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "base")
    (result,) = criteria_results(evidence.resolved, evidence.stage, None)
    assert (result.value, result.met) == (None, False)


def test_claims_are_looked_up_and_never_believed(tmp_path: Path) -> None:
    measured = {"base": measure(evidence_of(tmp_path, "base"))}
    claims = [
        Claim(stage="base", metric="accuracy", value=10 / 12),
        Claim(stage="base", metric="accuracy", value=0.9),
        Claim(stage="base", metric="accuracy", value=0.83, tolerance=0.01),
        Claim(stage="base", metric="loss_drop", value=1.0),
        Claim(stage="other", metric="accuracy", value=10 / 12),
    ]
    assert [result.status for result in look_up(claims, measured)] == [
        "supported",
        "contradicted",
        "supported",
        "unsupported",
        "unsupported",
    ]


@pytest.mark.parametrize("kind", built_in_kinds(), ids=lambda kind: kind.name)
def test_every_kind_says_what_a_reviewer_looks_at_in_it(kind: StageKind) -> None:
    assert len(kind.review_focus) >= 2 and len(set(kind.review_focus)) == len(kind.review_focus)


def test_a_packet_shows_what_its_kind_has_a_reviewer_look_at(tmp_path: Path) -> None:
    for stage in ("train", "base"):
        (folder := tmp_path / stage).mkdir()
        evidence = evidence_of(folder, stage)
        assert packet_of(evidence).points == kind_of(evidence.stage).review_focus
    assert any("mask" in text for text in STAGE_KINDS["sft"].review_focus)


def test_a_packet_begins_with_the_registered_reading_list(tmp_path: Path) -> None:
    (tmp_path / "method.md").write_text("Compare medians, never means.\n", encoding="utf-8")
    resolved = resolved_spec(tmp_path, ("objective:", "reading: [method.md]\nobjective:"))
    assert resolved.spec.reading[0].startswith("method.md@sha256:")
    packet = build_design_packet(resolved, (), checks_digest=CHECKS)
    assert packet.reading == ({"path": "method.md", "text": "Compare medians, never means.\n"},)
    head = reading_list(packet)
    assert "Compare medians" in head and "BEGIN READING LIST" in head and "Compare medians" not in render(packet)
    span = Span(artifact=packet.content_digest(), pointer="/reading/0/text", quote="Compare medians")
    assert resolvable(span, packet)
    # The registered text counts, whatever becomes of the file, and another text is another experiment.
    (tmp_path / "method.md").write_text("Compare means.\n", encoding="utf-8")
    assert read_resolved(resolved.canonical()) == resolved
    assert load_spec(tmp_path / "spec.yaml").registration() != resolved.registration()


READING = {
    "secret": ("token: ghp_" + "a1B2" * 9, "reading: [method.md]", "here begins a secret"),
    "too long": ("x" * 64_001, "reading: [method.md]", "the files have 64001 bytes, reviewers read at most 64000"),
    "changed": ("new", f"reading: ['method.md@sha256:{'0' * 64}']", "the spec registers another"),
    "twice": ("one", "reading: [method.md, method.md]", "'method.md' is named twice"),
    "missing": ("one", "reading: [lessons.md]", "file 'lessons.md' does not exist"),
    "no text": ("\udcff", "reading: [method.md]", "the file is not UTF-8 text"),
}


@pytest.mark.parametrize("name", READING)
def test_a_reading_list_that_cannot_be_registered_is_refused_with_its_place(name: str, tmp_path: Path) -> None:
    text, line, output = READING[name]
    (tmp_path / "method.md").write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(SpecError, match=output) as refused:
        resolved_spec(tmp_path, ("objective:", f"{line}\nobjective:"))
    assert refused.value.problems[0].line >= 1
