"""Checks and metrics of preference training: pass on healthy evidence, fail on their flaw, blocked without evidence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.evidence.evidence import Evidence
from reviews.gate.check_list import CHECKS
from reviews.gate.measurer import measure
from specs.stages.base.artifacts import Preference
from testing.factories.evidence_on_disk import heldout_items, with_manifest, write_rows
from testing.factories.judged_evidence import results_of
from testing.factories.preference_evidence import PAIRS, course, dpo_evidence, preferences, scores
from training.jobs.row_files import read_rows
from training.rules.finetuning.validation_split import divide


def own(evidence: Evidence) -> dict[str, tuple[str, str]]:
    """Return status and detail of the checks that are about training."""
    results = results_of(evidence)
    return {
        id: (result.status, result.detail) for id, result in results.items() if id.startswith(("training.", "dpo."))
    }


def test_healthy_evidence_passes_every_check(tmp_path: Path) -> None:
    results = own(dpo_evidence(tmp_path))
    # Six steps show neither plateau nor rise; times of steps are not part of this evidence.
    apart = {"training.plateau", "training.rise", "training.speed", "training.stop"}
    assert {id for id, (status, _) in results.items() if status == "NOT_APPLICABLE"} == apart
    assert {id for id, (status, _) in results.items() if status not in ("PASS", "NOT_APPLICABLE")} == set(), results
    assert len(results) == 24


def test_pairs_that_repeat_are_fewer_distinct_tokens(tmp_path: Path) -> None:
    evidence = dpo_evidence(tmp_path)
    before = results_of(evidence)["training.starvation"].figure
    few = [row | {"prompt": "Say it.", "chosen": "Fine.", "rejected": "So what."} for row in preferences()]
    write_rows(evidence.inputs["preferences"], few)
    assert before is not None and results_of(evidence)["training.starvation"].figure == pytest.approx(20 * before)


def test_metrics_by_hand(tmp_path: Path) -> None:
    values = {id: (metric.value, metric.n) for id, metric in measure(dpo_evidence(tmp_path)).metrics.items()}
    count = PAIRS // 2
    # (-8 + 10) - (-15 + 11); 2 nats over 4 tokens; -10/4 is less than -11/5, -8/4 more than -15/5.
    assert values["validation_margin"] == (6.0, count) and values["validation_chosen_change"] == (0.5, count)
    assert (values["validation_ranked_before"][0], values["validation_ranked_after"][0]) == (0.0, 1.0)
    assert values["validation_accuracy"] == (1.0, count) and values["validation_pairs"] == (count, count)
    assert values["dpo_steps"][0] == 6 and values["dpo_train_tokens"][0] == 600
    assert values["dpo_loss_drop"][0] == pytest.approx(0.25) and values["dpo_max_grad_norm"][0] == pytest.approx(1.06)


def _pairs(evidence: Evidence, rows: list[dict[str, Any]]) -> Evidence:
    return replace(evidence, outputs=evidence.outputs | {"pairs": write_rows(evidence.outputs["pairs"], rows)})


def _write_preferences(evidence: Evidence, **changes: Any) -> Evidence:
    write_rows(evidence.inputs["preferences"], preferences(**changes))
    return evidence


def _kept(evidence: Evidence) -> tuple[int, ...]:
    return divide(read_rows(evidence.inputs["preferences"], Preference), 0.5, 7).validation


def _trained(evidence: Evidence) -> tuple[int, ...]:
    return divide(read_rows(evidence.inputs["preferences"], Preference), 0.5, 7).train


TOWERS = "Write down how tall towers cast longer shadows before evening."
FLAWS: list[tuple[str, str, str, Callable[[Evidence], Evidence]]] = [
    ("a held-out prompt", "dpo.overlap", "FAIL", lambda evidence: _write_preferences(evidence,
     prompt=heldout_items()[0].prompt.upper())),
    ("a held-out prompt backwards, as the chosen response", "dpo.overlap", "FAIL",
     lambda evidence: _write_preferences(evidence, chosen=heldout_items()[0].prompt[::-1])),
    (
        "a held-out prompt in other words",
        "dpo.nearest",
        "WARN",
        lambda evidence: _write_preferences(
            replace(evidence, heldout=(evidence.heldout[0].model_copy(update={"prompt": TOWERS}),
             *evidence.heldout[1:])),
            chosen="As the evening comes the shadow of a tower grows.",
        ),
    ),
    ("a held-out topic", "dpo.groups", "FAIL", lambda evidence: _write_preferences(evidence, group="hg3")),
    ("fewer pairs than were granted", "dpo.split", "FAIL", lambda evidence: with_manifest(evidence,
     facts={"pairs": 19})),
    ("scored what was trained on", "dpo.split", "FAIL", lambda evidence: _pairs(evidence, scores(preferences(),
     _trained(evidence)))),
    ("one score left out", "dpo.split", "FAIL", lambda evidence: _pairs(evidence, scores(preferences(),
     _kept(evidence)[1:]))),
    ("scores of another group", "dpo.split", "FAIL",
     lambda evidence: _pairs(evidence, scores(preferences(group="g"), _kept(evidence)))),
    ("a reference that moved", "dpo.reference", "FAIL",
     lambda evidence: with_manifest(evidence, facts={"reference_difference": 0.01})),
    ("no word on the reference", "dpo.reference", "BLOCKED",
     lambda evidence: with_manifest(evidence, facts={"reference_difference": None})),
    ("an order no better than chance", "dpo.learnt", "WARN",
     lambda evidence: _pairs(evidence, scores(preferences(), _kept(evidence), rejected_after=-5.0))),
    ("chosen responses that got rarer", "dpo.learnt", "WARN",
     lambda evidence: _pairs(evidence, scores(preferences(), _kept(evidence), chosen_after=-12.0,
      rejected_after=-30.0))),
    ("a step less", "training.steps", "FAIL",
     lambda evidence: with_manifest(evidence, effective={"steps": 5, "planned_steps": 5})),
    ("the data begun again", "training.steps", "FAIL", lambda evidence: with_manifest(evidence,
     facts={"epochs_done": 4.0})),
    ("another loss", "training.objective", "FAIL", lambda evidence: with_manifest(evidence,
     facts={"loss_difference": 0.3})),
    ("no word on the loss", "training.objective", "BLOCKED",
     lambda evidence: with_manifest(evidence, facts={"loss_difference": None})),
    ("another beta", "jobs.effective", "FAIL", lambda evidence: with_manifest(evidence, effective={"beta": 0.3})),
    ("a loss of another name", "jobs.effective", "FAIL", lambda evidence: with_manifest(evidence,
     effective={"loss": "ipo"})),
]  # fmt: skip


@pytest.mark.parametrize(("flaw", "check", "status", "spoil"), FLAWS, ids=[flaw[0] for flaw in FLAWS])
def test_a_flaw_is_found_by_its_check(
    tmp_path: Path, flaw: str, check: str, status: str, spoil: Callable[[Evidence], Evidence]
) -> None:
    assert results_of(dpo_evidence(tmp_path))[check].status == "PASS", flaw
    assert results_of(spoil(dpo_evidence(tmp_path)))[check].status == status


def test_every_check_of_preferences_has_a_flaw_that_it_finds() -> None:
    assert {check.id for check in CHECKS if check.id.startswith("dpo.")} <= {flaw[1] for flaw in FLAWS}


def test_failure_38_a_group_on_both_sides_is_missing_evidence(tmp_path: Path) -> None:
    evidence = dpo_evidence(tmp_path)
    rows = [row | {"split": "train" if n < PAIRS // 2 else "validation"} for n, row in enumerate(preferences())]
    write_rows(evidence.inputs["preferences"], rows)
    result = results_of(evidence)["dpo.split"]
    assert result.status == "BLOCKED" and "20 groups are on both sides" in result.detail


def test_without_pairs_kept_out_nothing_is_known(tmp_path: Path) -> None:
    evidence = dpo_evidence(tmp_path, validation_share=0.0)
    results = results_of(evidence)
    assert (results["dpo.split"].status, results["dpo.learnt"].status) == ("WARN", "BLOCKED")


def test_chosen_responses_that_lose_less_than_pairs_differ_lost_nothing(tmp_path: Path) -> None:
    """As in a training of SmolLM2-135M on revised answers: five pairs, of which two gained."""
    evidence = dpo_evidence(tmp_path)
    lost = ((33, 0.539), (58, 0.211), (54, -0.510), (24, 0.021), (27, -0.030))
    rows = [
        {**row, "chosen_tokens": tokens, "chosen_after": -10.0 - by, "rejected_after": -12.0 - by}
        for row, (tokens, by) in zip(scores(preferences(), _kept(evidence)), lost * 4, strict=True)
    ]
    check = results_of(_pairs(evidence, rows))["dpo.learnt"]
    assert check.status == "PASS" and check.detail.endswith("lost no more than pairs differ, 0.00206 nats a token")


def test_kto_sees_each_response_by_itself(tmp_path: Path) -> None:
    evidence = dpo_evidence(tmp_path, loss="kto")
    # Forty responses in batches of eight, twice.
    assert results_of(evidence)["training.steps"].status == "FAIL"
    evidence = replace(evidence, outputs=evidence.outputs | {"rows": write_rows(evidence.outputs["rows"], course(10))})
    evidence = with_manifest(evidence, effective={"steps": 10, "planned_steps": 10})
    assert results_of(evidence)["training.steps"].status == "PASS"


@pytest.mark.parametrize(
    ("trained", "status"), [(4 * (8 + 8) + 4 * (16 + 8), "PASS"), (4 * (8 + 8), "FAIL"), (1, "FAIL")]
)
def test_adapters_have_the_size_that_rank_and_modules_make(tmp_path: Path, trained: int, status: str) -> None:
    import json

    adapter = {"method": "lora", "lora_rank": 4, "lora_alpha": 8, "lora_dropout": 0.0}
    evidence = dpo_evidence(tmp_path, **adapter, target_modules=("q_proj", "down_proj"))
    shapes = {"a.q_proj.weight": [8, 8], "a.v_proj.weight": [8, 4], "a.down_proj.weight": [8, 16], "q_proj.norm": [8]}
    tensors = {name: {"dtype": "U8", "shape": shape, "data_offsets": [0, 0]} for name, shape in shapes.items()}
    header = json.dumps(tensors).encode()
    weights = evidence.outputs["checkpoint"] / "model.safetensors"
    weights.write_bytes(len(header).to_bytes(8, "little") + header)
    evidence = with_manifest(evidence, effective={"trained_parameters": trained, "trained_share": 0.1})
    assert results_of(evidence)["training.moved"].status == status
