"""How prompts are encoded. What a guard has to notice is asked of every way to encode: no rewrite weakens it."""

from __future__ import annotations

from typing import Any

import pytest

from specs.stages.base.artifacts import DialogueTurn, Item
from specs.stages.evaluation.parameters import EvaluateParameters
from testing.fixtures.small_text import WORDS, word_tokenizer
from testing.fixtures.tiny_training import CHAT
from training.rules.prompt_encoding import (
    EncodedPrompt,
    EncodingFault,
    dialogue_ids,
    encode_bare,
    encode_chat,
    fault_in,
    form_of,
    item_ids,
    prompt_ids,
    template_tokens,
)

TEXT = "write a short poem about the sea\nand the sky"


@pytest.fixture
def tokenizer() -> Any:
    made = word_tokenizer(" ".join(WORDS))
    made.chat_template = CHAT
    return made


class Wrapped:
    """A tokenizer that does one thing by itself, as wrappers around tokenizers do."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def ids(self, text: str, add_special_tokens: bool) -> list[int]:
        return list(self.inner(text, add_special_tokens=add_special_tokens)["input_ids"])

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": self.ids(text, add_special_tokens)}


class AddsABeginning(Wrapped):
    """As tokenizers with a beginning token do when they are asked to."""

    def ids(self, text: str, add_special_tokens: bool) -> list[int]:
        return [self.inner.eos_token_id] * add_special_tokens + super().ids(text, False)


class AddsAlways(Wrapped):
    """Counts would be equal: it adds whatever it is told."""

    def ids(self, text: str, add_special_tokens: bool) -> list[int]:
        return [self.inner.eos_token_id, *super().ids(text, False)]


class TakesAPlace(Wrapped):
    """As many tokens, and one of them another."""

    def ids(self, text: str, add_special_tokens: bool) -> list[int]:
        results = super().ids(text, False)
        return [self.inner.eos_token_id, *results[1:]] if add_special_tokens else results


class ForcesTheTemplate(Wrapped):
    """The folk theory come true: a template around every text."""

    def ids(self, text: str, add_special_tokens: bool) -> list[int]:
        return super().ids(f"<|start|>user\n{text}<|end|>\n<|start|>assistant\n", False)


class ForcesPlainWords(Wrapped):
    """A template without a special token in it."""

    def ids(self, text: str, add_special_tokens: bool) -> list[int]:
        return super().ids(f"User: {text}\nAssistant:", False)


class TemplateInTheMiddle(Wrapped):
    """A template token far from either end."""

    def ids(self, text: str, add_special_tokens: bool) -> list[int]:
        results = super().ids(text, False)
        half = len(results) // 2
        return [*results[:half], self.inner.convert_tokens_to_ids("<|start|>"), *results[half:]]


FAULTS: dict[type[Wrapped], str] = {
    AddsABeginning: "adds special tokens",
    AddsAlways: "position 0 of the prompt holds a special token",
    TakesAPlace: "differ from position 0",
    ForcesTheTemplate: "position 0 of the prompt holds a special token",
    ForcesPlainWords: "characters instead of",
    TemplateInTheMiddle: "of the prompt holds a special token",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_completion_prompt_that_is_more_than_its_text_is_refused(tokenizer: Any, fault: type[Wrapped]) -> None:
    with pytest.raises(EncodingFault, match=FAULTS[fault]):
        prompt_ids(fault(tokenizer), TEXT, "completion")
    # The control: the same text by the same tokenizer without the fault.
    assert prompt_ids(Wrapped(tokenizer), TEXT, "completion").ids == tuple(tokenizer(TEXT)["input_ids"])


@pytest.mark.parametrize("fault", FAULTS)
def test_what_the_guard_writes_down_shows_the_fault_without_the_tokenizer(tokenizer: Any, fault: type[Wrapped]) -> None:
    written = EncodedPrompt(*encode_bare(fault(tokenizer), TEXT))
    assert fault_in(written.text, written.ids, written.ids_with_special, written.decoded, written.template_ids)


def test_a_template_token_in_the_text_itself_is_refused(tokenizer: Any) -> None:
    with pytest.raises(EncodingFault, match="holds a special token"):
        prompt_ids(tokenizer, "tell <|start|>assistant a tale", "completion")


def test_a_chat_is_encoded_with_the_template_and_what_was_found_is_reported(tokenizer: Any) -> None:
    encoded = encode_chat(tokenizer, TEXT)
    assert encoded.text == f"<|start|>user\n{TEXT}<|end|>\n<|start|>assistant\n"
    assert encoded.template_ids and encoded.ids[0] == tokenizer.convert_tokens_to_ids("<|start|>")
    assert prompt_ids(tokenizer, TEXT, "chat") == encoded


@pytest.mark.parametrize("fault", FAULTS)
def test_a_chat_is_the_text_of_its_template_and_nothing_else(tokenizer: Any, fault: type[Wrapped]) -> None:
    if fault in (AddsABeginning, TakesAPlace):
        # Only where special tokens may be added, which they never are.
        assert prompt_ids(fault(tokenizer), TEXT, "chat").ids == encode_chat(tokenizer, TEXT).ids
        return
    with pytest.raises(EncodingFault, match="characters instead of"):
        prompt_ids(fault(tokenizer), TEXT, "chat")


class MovesWhiteSpace(Wrapped):
    """As tokenizers do that put their words apart when they decode."""

    def decode(self, ids: list[int], **arguments: Any) -> str:
        return self.inner.decode(ids, **arguments).replace("<|end|>", " <|end|> ")


def test_white_space_next_to_template_tokens_is_no_fault_of_a_chat(tokenizer: Any) -> None:
    assert prompt_ids(MovesWhiteSpace(tokenizer), TEXT, "chat").ids == encode_chat(tokenizer, TEXT).ids


def test_turns_of_a_base_model_are_their_texts(tokenizer: Any) -> None:
    turns = [{"role": "user", "content": "tell a tale"}, {"role": "assistant", "content": "about the sea"}]
    assert dialogue_ids(tokenizer, turns, "completion").text == "tell a tale\n\nabout the sea\n\n"
    assert dialogue_ids(tokenizer, turns, "chat").text.count("<|start|>") == 3


def test_a_chat_without_a_template_is_refused(tokenizer: Any) -> None:
    tokenizer.chat_template = None
    with pytest.raises(EncodingFault, match="has no chat template"):
        prompt_ids(tokenizer, TEXT, "chat")
    # A base model needs none.
    assert prompt_ids(tokenizer, TEXT, "completion").decoded == TEXT


def test_added_tokens_of_the_template_count_though_they_are_not_special(tokenizer: Any) -> None:
    tokenizer.add_tokens(["[[turn]]", "[[other]]"])
    tokenizer.chat_template = CHAT.replace("<|start|>", "[[turn]]")
    results = template_tokens(tokenizer)
    assert tokenizer.convert_tokens_to_ids("[[turn]]") in results
    assert tokenizer.convert_tokens_to_ids("[[other]]") not in results


def test_the_declared_kind_says_the_form() -> None:
    assert (form_of("base"), form_of("instruct")) == ("completion", "chat")
    with pytest.raises(ValueError, match="does not say"):
        form_of(None)


def test_an_item_is_asked_with_the_turns_before_it(tokenizer: Any) -> None:
    before = (
        DialogueTurn(role="system", content="write"),
        DialogueTurn(role="user", content="a"),
        DialogueTurn(role="assistant", content="b"),
    )
    item = Item(id="i", group="g", kind="k", prompt="short poem", constraint={}, before=before)
    requests = [*(turn.model_dump() for turn in before), {"role": "user", "content": "short poem"}]
    assert item_ids(tokenizer, item, EvaluateParameters(), "chat") == list(
        dialogue_ids(tokenizer, requests, "chat").ids
    )
    alone = item_ids(tokenizer, item.model_copy(update={"before": ()}), EvaluateParameters(), "chat")
    assert len(alone) < len(item_ids(tokenizer, item, EvaluateParameters(), "chat"))
    wrapped = EvaluateParameters(prompting="wrapped", wrapper="Q: {prompt}")
    with pytest.raises(EncodingFault, match="turns before its prompt"):
        item_ids(tokenizer, item, wrapped, "chat")
