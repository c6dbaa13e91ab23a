"""Revisions that a judge has to prefer to their originals, in both orders, each with the margin."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reviews.evidence.evidence import Evidence
from reviews.evidence.row_reader import read_rows
from reviews.gate.check_list import run_checks
from reviews.gate.measurer import measure
from reviews.stages.critique.critic_checks import samples_of
from specs.stages.base.artifacts import Preference
from specs.stages.critique.parameters import PairJudge, ReviseParameters
from specs.stages.critique.rows import DroppedPair
from specs.stages.registry import STAGE_KINDS, inputs_of, outputs_of
from specs.system.errors import EvidenceMissing
from specs.trail.verdict import CheckResult
from testing.factories.critic_evidence import (
    JUDGED,
    Scripted,
    chains,
    critic_evidence,
    edited,
    labelled_sample,
    revision_first,
)
from testing.factories.evidence_on_disk import write_rows
from testing.factories.spec_files import list_problems, loads, write_spec
from training.rules.critique.preference_pairs import all_revisions, revisions_to_compare


def in_turn(place: int) -> tuple[float, float]:
    """Prefers the revision, the original, one in each order, and the revision without the margin in one order."""
    return ((2.0, 1.5), (-2.0, -1.5), (2.0, -2.0), (2.0, 0.5))[place % 4]


def results_of(evidence: Evidence) -> dict[str, CheckResult]:
    try:
        metrics = measure(evidence)
    except EvidenceMissing:
        metrics = None
    return {check.id: check for check in run_checks(evidence, metrics)}


def test_a_pair_is_kept_where_both_orders_prefer_the_revision_with_the_margin(tmp_path: Path) -> None:
    evidence = critic_evidence(tmp_path, "revise", stage=JUDGED, signed=in_turn)
    preferences = read_rows(evidence.outputs["preferences"], Preference, "kept")
    assert [(preference.item, preference.margin) for preference in preferences] == [("i0", 1.5), ("i4", 1.5)]
    out = read_rows(evidence.outputs["dropped"], DroppedPair, "dropped")
    assert [(pair.pair.item, pair.reason) for pair in out] == [
        ("i1", "original_preferred"),
        ("i2", "no_preference"),
        ("i3", "no_preference"),
        ("i5", "original_preferred"),
    ]
    values = {id: metric.value for id, metric in measure(evidence).metrics.items()}
    assert (values["revision_pairs"], values["revision_pairs_dropped_judge"]) == (2, 4)
    assert values["revision_preferred_rate"] == pytest.approx(2 / 6)
    assert values["revision_judge_swap_inconsistency"] == pytest.approx(1 / 6) and values["revision_judge_kappa"] == 1
    check = results_of(evidence)["pairs.derived"]
    assert check.status == "PASS" and "left out: no_preference 2, original_preferred 2" in check.detail


def test_the_judge_is_asked_of_pairs_that_the_other_rules_leave() -> None:
    parameters = ReviseParameters(revisions=2, max_length_ratio=3.0, judge=PairJudge())
    rows = [
        row.model_copy(update={"final": row.final * 5}) if n == 2 else row for n, row in enumerate(chains(parameters))
    ]
    pairs = revisions_to_compare(rows, parameters)
    assert [pair.item for pair in pairs] == ["i0", "i1", "i3", "i4", "i5"]
    assert all(pair.first == row.final for pair, row in zip(pairs[:2], rows[:2], strict=True))
    judge = Scripted("comparison", PairJudge().as_critic(), lambda _: (2.0, 2.0))
    assert all_revisions(rows, parameters, judge.comparisons(pairs)).reasons() == {"length_ratio": 1}
    with pytest.raises(ValueError, match="zip"):
        all_revisions(rows, parameters, judge.comparisons(pairs[:-1]))


def test_both_orders_have_to_agree_whatever_the_margin() -> None:
    critic = PairJudge(margin=0.5, batch_size=4).as_critic()
    assert (critic.agreement, critic.margin, critic.batch_size) == ("both", 0.5, 4)


def prefer_it(row: dict[str, Any]) -> None:
    row["preferred"] = "first"


def ask_for_another(row: dict[str, Any]) -> None:
    row["first"] = row["shown_first"] = "Something else that was never written."


def state_another_margin(row: dict[str, Any]) -> None:
    row["margin"] = 9.0


@pytest.mark.parametrize(
    ("output", "change", "check"),
    [
        ("comparisons", prefer_it, "critics.follows"),
        ("comparisons", ask_for_another, "critics.complete"),
        ("comparisons", ask_for_another, "critics.prompts"),
        ("preferences", state_another_margin, "pairs.derived"),
    ],
)
def test_what_does_not_follow_from_the_log_probabilities_is_found(
    tmp_path: Path, output: str, change: Callable[[dict[str, Any]], None], check: str
) -> None:
    place = 1 if output == "comparisons" else 0
    evidence = edited(critic_evidence(tmp_path, "revise", stage=JUDGED, signed=in_turn), output, place, change)
    assert results_of(evidence)[check].status == "FAIL"


def only_a(_: int) -> tuple[float, float]:
    """A judge that answers A whatever A means."""
    return 3.0, -3.0


@pytest.mark.parametrize(
    ("check", "changes"),
    [
        ("critics.calibration", {"labels": revision_first}),
        ("critics.calibration", {"sample": labelled_sample("revise", 10)}),
        ("critics.swap", {"signed": only_a}),
    ],
    ids=["it likes what stands first", "a sample of ten", "it likes a label"],
)
def test_a_judge_that_is_not_admitted_closes_the_gate(tmp_path: Path, check: str, changes: dict[str, Any]) -> None:
    result = results_of(critic_evidence(tmp_path, "revise", stage=JUDGED, **changes))[check]
    assert (result.status, result.blocking) == ("FAIL", True)


def test_without_comparisons_nothing_is_measured(tmp_path: Path) -> None:
    evidence = critic_evidence(tmp_path, "revise", stage=JUDGED)
    write_rows(evidence.outputs["comparisons"], [])
    with pytest.raises(EvidenceMissing, match="no revision could be compared"):
        measure(evidence)
    derived = results_of(evidence)["pairs.derived"]
    assert derived.status == "BLOCKED" and "not every revision has one comparison" in derived.detail


def test_only_a_stage_with_a_judge_reads_and_leaves_what_a_judge_does() -> None:
    plain, judged = (STAGE_KINDS["revise"].parameters.model_validate(row) for row in ({}, {"judge": {"margin": 0.5}}))
    assert "judge" not in plain.model_dump() and judged.model_dump()["judge"]["margin"] == 0.5
    assert set(inputs_of("revise", judged)) - set(inputs_of("revise", plain)) == {"judge", "calibration"}
    remaining = set(outputs_of("revise", judged)) - set(outputs_of("revise", plain))
    assert remaining == {"comparisons", "calibration", "dropped"}


STAGE = """\
  - name: rewrite
    kind: revise
    inputs: {model: model, examples: sample.accepted, constitution: constitutionMORE}
    parameters: {seed: 7JUDGE}
  - name: ship
"""


def spec_with(folder: Path, more: str, judge: str) -> Path:
    stage = STAGE.replace("MORE", more).replace("JUDGE", judge)
    path = write_spec(folder, ("  - name: ship\n", stage))
    text = path.read_text(encoding="utf-8").replace("data:\n", "data:\n  pairs: {path: prompts.jsonl}\n")
    path.write_text(text, encoding="utf-8")
    return path


INPUTS, JUDGE = ", judge: model, calibration: data.pairs", ", judge: {margin: 0.5}"


def test_a_spec_names_a_judge_and_its_labelled_sample_together(tmp_path: Path) -> None:
    assert loads(spec_with(tmp_path, INPUTS, JUDGE)).spec.stage("rewrite").inputs["judge"] == "model"
    assert any("input 'judge' is missing" in text for text in list_problems(spec_with(tmp_path, "", JUDGE)))
    assert any("revise has no input 'calibration'" in text for text in list_problems(spec_with(tmp_path, INPUTS, "")))


def test_the_labelled_sample_of_a_judge_is_looked_at_before_anything_is_spent(tmp_path: Path) -> None:
    spec = loads(spec_with(tmp_path, INPUTS, JUDGE)).spec
    assert samples_of(spec, {"pairs": tuple(labelled_sample("revise"))}).status == "PASS"
    outcome = samples_of(spec, {"pairs": tuple(labelled_sample("revise", 4))})
    assert outcome.status == "FAIL" and "stage 'rewrite' holds 4 items" in outcome.detail
    plain = loads(spec_with(tmp_path, "", "")).spec
    assert samples_of(plain, {}).detail == "no stage has a critic"
