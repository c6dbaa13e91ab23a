"""The plan of training on rollouts: its steps, and a copy of all weights where one is the reference."""

from __future__ import annotations

from pathlib import Path

import pytest

from specs.stages.base.stage import Kind
from specs.stages.finetuning.kinds import COMPOSER, GRPO
from specs.stages.finetuning.online_parameters import GrpoParameters
from testing.factories.spec_files import loads, write_spec
from training.planning.disk_space import disk
from training.planning.stage_plans import plans
from training.planning.training_memory import as_texts
from training.rules.finetuning.schedules import steps_of

KINDS = {"grpo": GRPO, "composer": COMPOSER}


@pytest.mark.parametrize("kind", KINDS)
def test_a_stage_on_rollouts_is_planned_as_its_steps_and_a_reference(tmp_path: Path, kind: Kind) -> None:
    resolved = loads(write_spec(tmp_path))
    results: list[float] = []
    for weight in (0.04, 0.0):
        stage = KINDS[kind].stage.model_validate(
            {
                "name": "train",
                "kind": kind,
                "inputs": {"model": "model", "prompts": "data.prompts"},
                "parameters": {"kl_weight": weight, "snapshot_steps": 1, "generations": 2, "batch_size": 2},
            }
        )
        others = [stage if item.name == "train" else item for item in resolved.spec.stages]
        spec = resolved.spec.model_copy(update={"stages": tuple(others)})
        plan = next(stage_plan for stage_plan in plans(spec, Path(resolved.origin)) if stage_plan.stage == "train")
        assert plan.device_bytes is not None and ("for the reference" in plan.description) == (weight > 0)
        results.append(plan.device_bytes)
        room = next(
            stage_disk for stage_disk in disk(spec, Path(resolved.origin)).stages if stage_disk.stage == "train"
        )
        assert room.weights is not None and room.snapshots is not None and room.snapshots.most > 0
    # 134,515,008 weights of four bytes.
    assert results[0] - results[1] == pytest.approx(4 * 134_515_008)


def test_a_training_that_holds_as_much_has_the_length_of_prompt_and_answer() -> None:
    parameters = GrpoParameters(max_new_tokens=100, generations=4, batch_size=8, updates=2, epochs=3)
    texts = as_texts(parameters, 60)
    assert (texts.max_length, texts.batch_size, texts.epochs) == (160, 8, 3)
    # Two prompts at once, the fifth left over, twice each, three times.
    assert steps_of(5, parameters.model_dump()) == 2 * 2 * 3
