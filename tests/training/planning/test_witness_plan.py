"""Witnesses of the shipped GPU profiles stay within a tenth of the machine's time, by plan."""

from __future__ import annotations

import pytest

from bench.witness_plan import LIBRARY, LIMIT, PROFILES, WitnessPlan, main, plan_witness, share_of
from specs.loading.loading import load_spec


def plans(name: str, profile: str) -> list[WitnessPlan]:
    spec = load_spec(LIBRARY / f"{name}.yaml", profile).spec
    return [plan for stage in spec.stages if (plan := plan_witness(spec, stage)) is not None]


def test_the_witnesses_of_every_gpu_profile_stay_within_a_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0
    assert capsys.readouterr().out.count("witnesses take") == len(PROFILES) == 4


def test_digests_next_to_the_imports_are_what_the_seven_billion_need() -> None:
    witness_plans = plans("self_instruct_sft", "gpu")
    assert share_of(witness_plans, beside=True) <= LIMIT < share_of(witness_plans, beside=False)


def test_what_a_revision_writes_is_planned() -> None:
    by_name = {plan.stage: plan for plan in plans("cai_preferences", "gpu")}
    # 5,760 chains of two critiques and two revisions, each longer than the one answer to each prompt.
    assert by_name["revise"].seconds > 5 * by_name["sample_responses"].seconds
