"""What a model reads follows from its declared kind in every stage, and no stage takes a prompt that is not its text.

The tokenizers of many base models have a chat template; that of the model here has one too.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from specs.stages.base.artifacts import Item
from specs.stages.base.sampling import END_MARK, WRAPPER
from specs.stages.base.stage import Kind, ModelKind
from specs.stages.finetuning.parameters import SftParameters
from testing.fixtures.critic_jobs import lines
from testing.fixtures.package_here import packages_answer_here
from testing.fixtures.small_text import small_model
from testing.fixtures.stage_jobs import stage_job
from tests.training.rules.test_prompt_encoding import FAULTS, Wrapped
from training.engines.checkpoint import load
from training.jobs.evaluation.evaluate import evaluate
from training.jobs.evaluation.multi_turn import converse
from training.jobs.finetuning.training_texts import style_of
from training.jobs.generation.generate import generate
from training.jobs.job import Job
from training.jobs.packaging.package import answer, package
from training.rules.prompt_encoding import EncodingFault, encode_chat
from training.rules.tasks import worked_example

pytestmark = pytest.mark.integration

STAGES: dict[str, Callable[[Job], Any]] = {
    "multi_turn": converse,
    "evaluate": evaluate,
    "generate": generate,
    "package": package,
}
SAMPLED = {"samples_per_prompt": 1, "max_new_tokens": 2, "batch_size": 1}
ITEM = Item(id="i0", group="g0", kind="lowercase", prompt="tell a tale. Use only lowercase letters.", constraint={})
TALK = ITEM.model_copy(update={"kind": "memory", "constraint": {"turn_2": "name the cat", "forbid_2": "dog"}})


class Condition(NamedTuple):
    """A stage with parameters, and the bare text that it gives a base model first."""

    kind: Kind
    text: str
    parameters: dict[str, Any]


EXAMPLE = worked_example("format_instructions", ITEM)
IN_WRAPPER = WRAPPER.replace("{prompt}", ITEM.prompt)
BY_KIND = {
    "evaluate": Condition("evaluate", f"{ITEM.prompt}\n\n", {"max_new_tokens": 2}),
    "generate": Condition("generate", f"{ITEM.prompt}\n\n", SAMPLED | {"worked_example": False}),
    "generate after an example": Condition("generate", f"{EXAMPLE[0]}\n\n{EXAMPLE[1]}\n\n{ITEM.prompt}\n\n", SAMPLED),
    "multi_turn": Condition("multi_turn", f"{TALK.prompt}\n\n", {"max_new_tokens": 2, "prompting": "native"}),
    "package": Condition("package", f"{ITEM.prompt}\n\n", {"max_new_tokens": 2, "probe_items": 1}),
}
"""Conditions in which the declared kind decides what is read."""
BARE = {
    "evaluate raw": Condition("evaluate", ITEM.prompt, {"max_new_tokens": 2, "prompting": "raw"}),
    "evaluate wrapped": Condition(
        "evaluate", IN_WRAPPER, {"max_new_tokens": 2, "prompting": "wrapped", "wrapper": WRAPPER}
    ),
    "generate wrapped": Condition(
        "generate", IN_WRAPPER, SAMPLED | {"worked_example": False, "wrapper": WRAPPER, "stops": [END_MARK]}
    ),
    "generate wrapped, after an example": Condition(
        "generate",
        f"{WRAPPER.replace('{prompt}', EXAMPLE[0])} {EXAMPLE[1]}{END_MARK}\n\n{IN_WRAPPER}",
        SAMPLED | {"wrapper": WRAPPER, "response_end": END_MARK, "stops": [END_MARK]},
    ),
    "converse raw": Condition("multi_turn", f"{TALK.prompt}\n\n", {"max_new_tokens": 2, "prompting": "raw"}),
    "converse transcript": Condition("multi_turn", f"User: {TALK.prompt}\nAssistant:", {"max_new_tokens": 2}),
}
"""Conditions that give every model the same bare text."""
CONDITIONS = BY_KIND | BARE


@pytest.fixture(scope="module")
def chatty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("chatty") / "model", chat=True)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("plain") / "model")


@pytest.fixture
def first_read(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Return a list that gets the token ids of every prompt a model reads."""
    import torch
    from transformers import AutoModelForCausalLM

    seen: list[list[int]] = []
    made = AutoModelForCausalLM.from_pretrained

    def noted(_: Any, __: Any, arguments: dict[str, Any]) -> None:
        ids: torch.Tensor = arguments["input_ids"]
        if ids.shape[1] > 1:
            seen.extend(ids.tolist())

    def loaded(*values: Any, **named: Any) -> Any:
        model: Any = made(*values, **named)
        model.register_forward_pre_hook(noted, with_kwargs=True)
        return model

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", loaded)
    return seen


def job_of(folder: Path, model: Path, condition: Condition, kind: ModelKind) -> Job:
    role = "prompts" if condition.kind == "generate" else "items"
    item = TALK if condition.kind == "multi_turn" else ITEM
    inputs = {"model": model, role: lines(folder / "items.jsonl", [item])}
    return stage_job(folder, condition.kind, inputs, kind, **condition.parameters)


@pytest.mark.parametrize("name", CONDITIONS)
def test_a_base_model_reads_bare_text_though_its_tokenizer_has_a_template(
    name: str, chatty: Path, tmp_path: Path, first_read: list[list[int]]
) -> None:
    condition = CONDITIONS[name]
    with packages_answer_here():
        STAGES[condition.kind](job_of(tmp_path, chatty, condition, "base"))
    _, tokenizer = load(chatty)
    assert first_read[0] == list(tokenizer(condition.text)["input_ids"])
    assert tokenizer.decode(first_read[0]) == condition.text


@pytest.mark.parametrize("name", BY_KIND)
def test_an_instruct_model_reads_its_template(
    name: str, chatty: Path, tmp_path: Path, first_read: list[list[int]]
) -> None:
    condition = BY_KIND[name]
    with packages_answer_here():
        STAGES[condition.kind](job_of(tmp_path, chatty, condition, "instruct"))
    _, tokenizer = load(chatty)
    turns = [{"role": "user", "content": ITEM.prompt}]
    if "example" in name:
        turns = [{"role": "user", "content": EXAMPLE[0]}, {"role": "assistant", "content": EXAMPLE[1]}, *turns]
    # What was read before the kind decided, token for token.
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    assert first_read[0] == tokenizer(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("name", BY_KIND)
def test_a_model_declared_instruct_without_a_template_is_refused(name: str, plain: Path, tmp_path: Path) -> None:
    with pytest.raises(EncodingFault, match="declared instruct, but its tokenizer has no chat template"):
        STAGES[BY_KIND[name].kind](job_of(tmp_path, plain, BY_KIND[name], "instruct"))


@pytest.mark.parametrize("name", CONDITIONS)
def test_no_stage_takes_a_prompt_that_is_more_than_its_text(
    name: str, chatty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoTokenizer

    condition = CONDITIONS[name]
    made = AutoTokenizer.from_pretrained
    for fault, text in FAULTS.items():

        def broken(*values: Any, fault: type[Wrapped] = fault, **named: Any) -> Any:
            return fault(made(*values, **named))

        monkeypatch.setattr(AutoTokenizer, "from_pretrained", broken)
        with pytest.raises(EncodingFault, match=text):
            STAGES[condition.kind](job_of(tmp_path / fault.__name__, chatty, condition, "base"))


def test_the_packaged_model_is_asked_as_the_stage_asked(plain: Path, chatty: Path) -> None:
    # The same weights: only what they read differs.
    bare = answer(chatty, [ITEM.prompt], "completion", 6)
    assert bare == answer(plain, [ITEM.prompt], "completion", 6) != answer(chatty, [ITEM.prompt], "chat", 6)


def test_training_follows_the_declared_kind_too(chatty: Path, plain: Path) -> None:
    granted = SftParameters()
    with_template, without = (load(folder)[1] for folder in (chatty, plain))
    assert style_of(with_template, granted, "base").mode == style_of(without, granted, "base").mode == "completion"
    assert style_of(with_template, granted, "instruct").mode == "chat"
    with pytest.raises(EncodingFault, match="has no chat template"):
        style_of(without, granted, "instruct")
    with pytest.raises(ValueError, match="does not say"):
        style_of(with_template, granted, None)
    wrapped = SftParameters(prompt_format=WRAPPER, response_end=END_MARK)
    assert style_of(with_template, wrapped, "instruct").settings()["prompt_format"] == WRAPPER


def test_a_sample_of_a_base_model_is_accepted_where_something_ends_it(chatty: Path, tmp_path: Path) -> None:
    arguments = SAMPLED | {"worked_example": False, "wrapper": WRAPPER, "max_new_tokens": 12, "seed": 7}

    def sampled(name: str, stops: list[str]) -> tuple[dict[str, Any], list[str]]:
        job = job_of(tmp_path / name, chatty, Condition("generate", "", arguments | {"stops": stops}), "base")
        generate(job)
        (row,) = (json.loads(line) for line in (job.out / "rows.jsonl").read_text(encoding="utf-8").splitlines())
        return row, (job.out / "accepted.jsonl").read_text(encoding="utf-8").splitlines()

    # It goes on to the limit: nothing that was cut off is trained on, however right it is.
    endless, accepted = sampled("endless", [])
    assert (endless["finish"], endless["truncated"], accepted) == ("length", True, [])
    stop = endless["completion"][-4:]
    ended, accepted = sampled("ended", [stop])
    assert (ended["finish"], ended["stop"], ended["truncated"]) == ("stop", stop, False)
    assert ended["completion"] == endless["completion"].split(stop)[0]
    assert [json.loads(line)["completion"] for line in accepted] == [ended["completion"].strip()]


def test_a_template_in_the_words_of_a_prompt_is_no_bare_text(chatty: Path, tmp_path: Path) -> None:
    _, tokenizer = load(chatty)
    sly = ITEM.model_copy(update={"prompt": encode_chat(tokenizer, "tell a tale").text})
    inputs = {"model": chatty, "items": lines(tmp_path / "items.jsonl", [sly])}
    with pytest.raises(EncodingFault, match="holds a special token"):
        evaluate(stage_job(tmp_path, "evaluate", inputs, "base", max_new_tokens=2))
