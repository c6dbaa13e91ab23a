"""Engines in specs and at the gate: what is refused before anything runs, parity of arms, what is repeatable."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from reviews.comparison import parity_checks
from specs.stages.base.sampling import ENGINES, Writing
from specs.stages.registry import STAGE_KINDS
from specs.trail.verdict import CheckResult
from testing.factories.evidence_on_disk import evidence_of, with_manifest
from testing.factories.judged_evidence import results_of
from testing.factories.spec_files import list_problems, loads, write_spec
from testing.factories.text_evidence import instruct_rows, text_evidence
from tests.stages.generation.test_text_checks import changed

ARM = "    parameters: {max_new_tokens: 32, seed: 7}\n    gate:\n      criteria:\n        - {metric: truncation_rate"


def test_older_registrations_keep_their_parameters() -> None:
    for model in (kind.parameters for kind in STAGE_KINDS.values()):
        if issubclass(model, Writing):
            needed: dict[str, Any] = {
                name: "x" * 10 for name, field in model.model_fields.items() if field.is_required()
            }
            assert "engine" not in model(**needed).model_dump(mode="json")
            saved = {"engine": "llama"}
            assert saved.items() <= model(**needed, engine="llama").model_dump(mode="json").items()


@pytest.mark.parametrize(
    ("kind", "arguments", "output"),
    [
        ("evaluate", {"engine": "vllm"}, "engine 'vllm' runs on device cpu or cuda, device is 'auto'"),
        ("evaluate", {"engine": "llama", "device": "cuda"}, "engine 'llama' runs on device auto or cpu, device is"),
        ("sample_responses", {"engine": "continuous"}, "engine 'continuous' has no repetition penalty"),
        ("self_instruct", {"engine": "continuous"}, "repetition_penalty is 1.1"),
        ("generate", {"engine": "transformers"}, "'batched', 'continuous', 'llama' or 'vllm'"),
    ],
)
def test_what_an_engine_would_pass_over_is_refused(kind: Any, arguments: dict[str, Any], output: str) -> None:
    with pytest.raises(ValidationError, match=output):
        STAGE_KINDS[kind].parameters.model_validate(arguments)


def test_a_spec_names_the_engine_of_a_stage_and_is_reported_where_it_cannot_be(tmp_path: Path) -> None:
    sampling = "    parameters: {temperature: 0.8, samples_per_prompt: 4, seed: 7}\n"
    path = write_spec(tmp_path, (sampling, sampling.replace("seed: 7", "seed: 7, engine: continuous")))
    stage = next(item for item in loads(path).spec.stages if item.kind == "generate")
    assert stage.parameters.engine == "continuous"
    path = write_spec(tmp_path, (sampling, sampling.replace("seed: 7", "seed: 7, engine: vllm")))
    (problem,) = list_problems(path)
    assert "engine 'vllm' runs on device cpu or cuda, device is 'auto'" in problem and problem[0].isdigit()


def test_arms_with_different_engines_are_refused_by_the_spec(tmp_path: Path) -> None:
    path = write_spec(tmp_path, (ARM, ARM.replace("seed: 7", "seed: 7, engine: continuous")))
    (problem,) = list_problems(path)
    assert "engine is batched here and continuous at the baseline 'base'" in problem


def test_arms_that_ran_in_different_engines_are_refused_at_the_gate(tmp_path: Path) -> None:
    whole = evidence_of(tmp_path, "tuned")
    assert whole.manifest is not None and whole.baseline_manifest is not None

    def settings(ours: str, theirs: str) -> Any:
        made = with_manifest(whole, effective={"engine": ours})
        baseline = whole.baseline_manifest
        assert baseline is not None
        effective = baseline.effective | {"engine": theirs}
        made = replace(made, baseline_manifest=baseline.model_copy(update={"effective": effective}))
        check = next(gate_check for gate_check in parity_checks.CHECKS if gate_check.id == "parity.settings")
        return check.run(made, None)

    assert settings("llama", "llama").status == "PASS"
    result = settings("llama", "batched")
    assert result.status == "FAIL" and "effective settings" in result.detail


def repeatable(folder: Path, engine: str, **changes: Any) -> CheckResult:
    folder.mkdir()
    rows = changed(instruct_rows(), 3, **changes) if changes else instruct_rows()
    evidence = text_evidence(folder, "self_instruct", rows)
    device = "cuda" if engine == "vllm" else "auto"
    parameters = evidence.parameters | {"engine": engine, "device": device}
    return results_of(replace(evidence, parameters=parameters))["text.repeatable"]


def test_the_gate_asks_of_an_engine_what_it_promises(tmp_path: Path) -> None:
    assert {name for name, promise in ENGINES.items() if not promise.repeatable} == {"vllm"}
    assert repeatable(tmp_path / "a", "vllm").status == "PASS"
    assert repeatable(tmp_path / "b", "llama", raw=" Name a cow.").status == "FAIL"
    check = repeatable(tmp_path / "c", "vllm", raw=" Name a cow.")
    assert check.status == "WARN" and "engine 'vllm' does not promise to repeat itself" in check.detail
