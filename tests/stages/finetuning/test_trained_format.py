"""What training writes and what stages ask later are the same tokens: the shipped specs, on a real tokenizer."""

from __future__ import annotations

from typing import Any

import pytest

from specs.loading.loading import find_spec, load_spec
from specs.session.design import kind_read
from specs.session.session_spec import SessionSpec
from specs.stages.base.artifacts import Item
from specs.stages.base.sampling import END_MARK, SHOTS
from specs.stages.evaluation.parameters import EvaluateParameters
from specs.stages.finetuning.parameters import DpoParameters, SftParameters
from testing.fixtures.real_model import smollm2_checkpoint
from training.jobs.finetuning.training_texts import PromptWithResponses, style_of
from training.rules.prompt_encoding import bare_ids, form_of, item_ids
from training.rules.prompt_text import answer_prompt
from training.rules.tasks.format_instructions import KINDS, prompt_of, worked_example

pytestmark = [pytest.mark.integration, pytest.mark.model]
SPECS = [(name, profile) for name in ("self_instruct_sft", "cai_preferences") for profile in ("cpu", "gpu", "gpu80")]
ITEMS = [
    Item(id=kind.name, group="tea", kind=kind.name, prompt=prompt_of(kind, "tea", kind.values[0]),
         constraint=dict(kind.values[0]))
    for kind in KINDS.values()
]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(smollm2_checkpoint(), local_files_only=True)


def trained(spec: SessionSpec, tokenizer: Any, **changes: Any) -> list[tuple[str, list[int], list[int], str]]:
    """Return what each training stage writes of an answer in each form: its name, the prompt, the whole, the answer."""
    results: list[tuple[str, list[int], list[int], str]] = []
    for stage in spec.stages:
        value = stage.parameters
        if not isinstance(value, SftParameters | DpoParameters):
            continue
        style = style_of(tokenizer, value.model_copy(update=changes), kind_read(spec, stage))
        for item in ITEMS:
            answer = worked_example(item)[1]
            encoded = PromptWithResponses(style, item.prompt, (answer,)).encode_sides(tokenizer)
            results.append((stage.name, encoded.prompt, encoded.wholes[0], answer))
    return results


def list_prompts(spec: SessionSpec, tokenizer: Any) -> dict[str, list[list[int]]]:
    """Return what the stages that measure let the model read of each item, by stage."""
    results: dict[str, list[list[int]]] = {}
    for name in (spec.analysis.baseline, spec.analysis.treatment):
        stage = spec.stage(name)
        assert isinstance(stage.parameters, EvaluateParameters)
        form = form_of(kind_read(spec, stage))
        results[name] = [item_ids(tokenizer, item, stage.parameters, form) for item in ITEMS]
    return results


@pytest.mark.parametrize(("name", "profile"), SPECS)
def test_what_was_trained_is_what_is_asked(tokenizer: Any, name: str, profile: str) -> None:
    spec = load_spec(find_spec(name), profile).spec
    written, read = trained(spec, tokenizer), list_prompts(spec, tokenizer)
    assert written and len(read) == 2
    for place, (stage, prompt, whole, answer) in enumerate(written):
        # The prompt is not changed by what follows it, and what follows is what is read back.
        assert whole[: len(prompt)] == prompt, (stage, answer)
        assert answer in tokenizer.decode(whole[len(prompt) :])
        for other, prompts in read.items():
            assert prompts[place % len(ITEMS)] == prompt, (stage, other)


@pytest.mark.parametrize(("name", "profile"), [spec for spec in SPECS if spec[1] != "cpu"])
def test_what_was_trained_is_what_worked_pairs_showed(tokenizer: Any, name: str, profile: str) -> None:
    spec = load_spec(find_spec(name), profile).spec
    # In the pairs before each instruction that `sample_responses` answers.
    style = style_of(tokenizer, next(p for p in training_parameters(spec)), "base")
    first = SHOTS[0]
    whole = PromptWithResponses(style, first.instruction, (first.response,)).encode_sides(tokenizer).wholes[0]
    views = list(bare_ids(tokenizer, answer_prompt("next", SHOTS, "completion")).ids)
    assert views[: len(whole) - 1] == whole[:-1] and END_MARK in tokenizer.decode(whole)


def training_parameters(spec: SessionSpec) -> list[SftParameters | DpoParameters]:
    return [stage.parameters for stage in spec.stages if isinstance(stage.parameters, SftParameters | DpoParameters)]


@pytest.mark.parametrize("name", ["self_instruct_sft", "cai_preferences"])
def test_without_the_space_two_forms_of_six_melt_into_the_prompt(tokenizer: Any, name: str) -> None:
    # The control: as the specs were, the token of ':"' and of ':-' stood where ':' is asked later.
    spec = load_spec(find_spec(name), "gpu80").spec
    melted = {
        answer[0]
        for _, prompt, whole, answer in trained(spec, tokenizer, response_start=None)
        if whole[: len(prompt)] != prompt
    }
    assert melted == {'"', "-"}
