"""Failures of critics and preferences, by number in docs/explanation/failures.md: planted, and stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reviews.gate.measurer import measure
from specs.system.errors import EvidenceMissing
from testing.factories.critic_evidence import BEST_OF_N, chains, critic_evidence, edited
from testing.factories.judged_evidence import results_of
from tests.docs.test_failures import outcome_of
from training.rules.critique.pair_selection import assign_splits, fault_in
from training.rules.critique.preference_pairs import revision_pairs


def longer_is_good(place: int) -> tuple[float, float]:
    """A scorer that measures something else than the label: right for every second good item only."""
    return (2.0, 2.0) if place % 4 in (0, 1) else (-2.0, -2.0)


@pytest.mark.parametrize("kind", ["critique_instructions", "critique_responses"])
def test_failure_02_a_critic_whose_label_means_something_else(tmp_path: Path, kind: str) -> None:
    """Its verdicts are confident, follow from its log-probabilities, and have nothing to do with a person's."""
    evidence = critic_evidence(tmp_path, kind, labels=longer_is_good)
    prefix = {"critique_instructions": "instructions", "critique_responses": "responses"}[kind]
    assert measure(evidence).metrics[f"{prefix}_kappa"].value == 0
    assert results_of(evidence)["critics.calibration"].status == "FAIL" and outcome_of(evidence) != "approve"
    # The control: the same rows with a critic that agrees.
    assert outcome_of(critic_evidence(tmp_path, kind)) == "approve"


def good_by_default(row: dict[str, Any]) -> None:
    for order in ("plain", "swapped"):
        row[order] |= {"good": True, "confident": True, "margin": 1.0}
    row["accepted"] = True


def without_scores(row: dict[str, Any]) -> None:
    good_by_default(row)
    for order in ("plain", "swapped"):
        row[order]["scores"] = None


@pytest.mark.parametrize("change", [good_by_default, without_scores])
def test_failure_27_a_critique_that_was_written_and_not_computed(tmp_path: Path, change: Any) -> None:
    evidence = edited(critic_evidence(tmp_path, "critique_responses"), "rows", 1, change)
    with pytest.raises(EvidenceMissing):
        measure(evidence)
    assert results_of(evidence)["critics.follows"].status in ("FAIL", "BLOCKED")
    assert outcome_of(evidence) != "approve"


def test_failure_38_literal_escapes_in_the_prompts_of_pairs() -> None:
    pair = revision_pairs(chains())[0]
    assert fault_in(pair) is None
    assert "backslash" in (
        fault_in(pair.model_copy(update={"prompt": f"Instruction: {pair.prompt}\\nResponse:"})) or ""
    )


def test_failure_38_pairs_of_one_prompt_on_both_sides(tmp_path: Path) -> None:
    """A split pair by pair divides prompts; ours does not, and the check sees it when somebody's does."""
    pairs = revision_pairs(chains())
    twice = [*pairs, *(preference.model_copy(update={"group": f"again-{preference.group}"}) for preference in pairs)]
    sides = {
        side: {preference.prompt for preference in assign_splits(twice, 0.4, 1) if preference.split == side}
        for side in ("train", "validation")
    }
    assert sides["train"] and sides["validation"] and not sides["train"] & sides["validation"]

    def moved(row: dict[str, Any]) -> None:
        row["split"] = "train" if row["split"] == "validation" else "validation"

    evidence = edited(critic_evidence(tmp_path, "best_of_n"), "preferences", 0, moved)
    assert results_of(evidence)["pairs.split"].status == "FAIL" and outcome_of(evidence) != "approve"


def test_failure_38_a_single_sample_is_no_best_of_many() -> None:
    with pytest.raises(ValueError, match="greater than or equal to 2"):
        BEST_OF_N.model_validate(BEST_OF_N.model_dump() | {"samples": 1})
