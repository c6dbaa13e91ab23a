"""A training from scratch is refused before it is paid for where its data are a fraction of what its rule asks for."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.checks.definition import apply
from reviews.evidence.evidence import Evidence
from reviews.stages.finetuning.scaling_checks import CHECKS, REPEATS, planned_tokens, worth
from specs.session.session_spec import SessionSpec
from specs.stages.base.stage import ParameterRange
from specs.stages.finetuning.parameters import ScalingRule
from testing.factories.evidence_on_disk import evidence_of, prompt_items, resolved_spec

(CHECK,) = CHECKS


def ruled(spec: SessionSpec, rule: ScalingRule | None, **ranges: ParameterRange) -> SessionSpec:
    """Return the spec whose training follows a rule."""
    stages = [
        stage.model_copy(update={"parameters": stage.parameters.model_copy(update={"scaling": rule}), "ranges": ranges})
        if stage.name == "train"
        else stage
        for stage in spec.stages
    ]
    return spec.model_copy(update={"stages": tuple(stages)})


def planned(folder: Path, share: float, **ranges: ParameterRange) -> str:
    """Return what the design gate says of a rule of which the data can give this share at the most."""
    folder.mkdir(exist_ok=True)
    spec, data = resolved_spec(folder).spec, {"prompts": prompt_items()}
    sample, train = spec.stage("sample").parameters, spec.stage("train").parameters
    most = worth(len(prompt_items()) * sample.samples_per_prompt * train.max_length, train.epochs)
    rule = ScalingRule(parameters=round(most / share), tokens_per_parameter=1)
    return planned_tokens(ruled(spec, rule, **ranges), data).status


@pytest.mark.parametrize(
    ("share", "status"), [(0.004, "FAIL"), (0.49, "FAIL"), (0.51, "WARN"), (0.99, "WARN"), (1.01, "PASS")]
)
def test_the_design_gate_divides_before_anything_is_paid_for(tmp_path: Path, share: float, status: str) -> None:
    assert planned(tmp_path, share) == status


def test_passes_that_a_builder_may_add_count_and_are_worth_less_and_less(tmp_path: Path) -> None:
    assert planned(tmp_path / "a", 0.49, epochs=ParameterRange(min=1, max=100)) == "PASS"
    # No number of passes makes up for it.
    assert planned(tmp_path / "b", 0.004, epochs=ParameterRange(min=1, max=100)) == "FAIL"
    assert worth(100, 1) == 100 and 190 < worth(100, 2) < 200
    assert worth(100, math.inf) == pytest.approx(100 * (1 + REPEATS))


def test_what_registers_no_rule_or_has_unknown_data_is_not_judged(tmp_path: Path) -> None:
    spec = resolved_spec(tmp_path).spec
    assert planned_tokens(ruled(spec, None), {"prompts": prompt_items()}).status == "NOT_APPLICABLE"
    outcome = planned_tokens(ruled(spec, ScalingRule(parameters=10**9)), {})
    assert outcome.status == "NOT_APPLICABLE" and "not known beforehand" in outcome.detail


def judged(evidence: Evidence, **rule: Any) -> tuple[str, str]:
    check = apply(CHECK, replace(evidence, parameters=evidence.parameters | {"scaling": rule or None}), None)
    return check.status, check.detail


def test_the_gate_counts_what_carried_loss(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "train")
    assert judged(evidence)[0] == "PASS"
    status, output = judged(evidence, parameters=100, tokens_per_parameter=1e-3)
    assert status == "PASS" and "distinct tokens" in output
    assert judged(evidence, parameters=100, tokens_per_parameter=20)[0] == "FAIL"
    assert judged(evidence, parameters=94, tokens_per_parameter=1e-3) == (
        "FAIL",
        "the checkpoint has 100 parameters, the rule states 94",
    )
    assert judged(evidence, parameters=96, tokens_per_parameter=1e-3)[0] == "PASS"


def test_the_warning_lies_between_half_of_the_rule_and_all_of_it(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, "train")
    share = (
        float(judged(evidence, parameters=100, tokens_per_parameter=1)[1].partition("% of")[0].rpartition(" ")[2]) / 100
    )
    for times, status in ((0.9, "PASS"), (1.5, "WARN"), (2.5, "FAIL")):
        assert judged(evidence, parameters=100, tokens_per_parameter=share * times)[0] == status
