"""What a further arm costs is known before the start: the stages that nothing else reads, their minutes and USD."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sessions.commands import spec as commands
from sessions.run.money.estimate import estimate
from specs.loading.loading import load_spec
from testing.factories.more_arms import ARM, armed_spec

LOOK = """\
  - name: look
    kind: perplexity
    inputs: {model: drafts.checkpoint, items: data.prompts}
    parameters: {seed: 7}
  - name: train
"""
SECOND = """\
  - name: other_after
    kind: evaluate
    inputs: {model: other.checkpoint, items: heldout}
    parameters: {max_new_tokens: 32, seed: 7}
  - name: train
"""


def test_an_arm_costs_the_stages_that_only_it_reads(tmp_path: Path) -> None:
    (arm,) = estimate(load_spec(armed_spec(tmp_path))).arms
    # Half an hour of training and an evaluation of an hour; the samples are read by the treatment's training too.
    stages = {stage.name: stage.max_minutes for stage in load_spec(tmp_path / "spec.yaml").spec.stages}
    minutes = stages["drafts"] + stages["drafts_after"]
    assert arm.stages == ("drafts", "drafts_after")
    assert (arm.most_hours, arm.most_usd) == pytest.approx((minutes / 60, 2.0 * minutes / 60))
    line = f"of that only for the arm 'own drafts': {minutes:.0f} minutes, {2.0 * minutes / 60:.2f} USD (drafts, drafts"
    assert any(text.startswith(line) for text in estimate(load_spec(tmp_path / "spec.yaml")).lines())


def test_an_arm_on_data_that_people_made_states_their_time(tmp_path: Path) -> None:
    arm = ARM.replace("beaten: true", "beaten: true, human_minutes: 90")
    costs = estimate(load_spec(armed_spec(tmp_path, (ARM, arm))))
    assert costs.arms[0].human_minutes == 90 and costs.as_json()["arms"][0]["human_minutes"] == 90
    assert any("USD, and 90 minutes of people (drafts, drafts_after)" in line for line in costs.lines())


def test_a_stage_that_another_arm_reads_is_no_part_of_either(tmp_path: Path) -> None:
    other = ARM.replace("own drafts", "more steps").replace("drafts_after", "other_after")
    training = (
        "  - name: other\n    kind: sft\n    inputs: {model: drafts.checkpoint, examples: sample.accepted}\n"
        "    parameters: {learning_rate: 1e-5, epochs: 2, batch_size: 1, seed: 7}\n"
    )
    path = armed_spec(
        tmp_path, (ARM, ARM + other), ("max_hours: 2", "max_hours: 4"), ("  - name: train\n", training + SECOND)
    )
    arms = {arm.arm: arm.stages for arm in estimate(load_spec(path)).arms}
    assert arms == {"own drafts": ("drafts_after",), "more steps": ("other", "other_after")}


def test_a_measurement_next_to_an_arm_does_not_hide_its_training(tmp_path: Path) -> None:
    (arm,) = estimate(load_spec(armed_spec(tmp_path, ("  - name: train\n", LOOK)))).arms
    assert arm.stages == ("drafts", "drafts_after")


def test_the_command_prints_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = armed_spec(tmp_path)
    with pytest.raises(SystemExit):
        commands.check(str(path))  # Three items show nothing: the design gate refuses.
    assert "of that only for the arm 'own drafts'" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        commands.check(str(path), as_json=True)
    message: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert message["planned"][""]["cost"]["arms"][0]["stages"] == ["drafts", "drafts_after"]
