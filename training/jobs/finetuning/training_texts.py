"""How a prompt and its responses become text: chat turns of the tokenizer, or completion mode in a given format.

TRL encodes what :meth:`PromptWithResponses.prompt` and :meth:`PromptWithResponses.response` return;
:meth:`PromptWithResponses.encode_sides` encodes it without TRL, to prove the masks and to score.
"""

from __future__ import annotations

from dataclasses import dataclass
from os.path import commonprefix
from typing import Any, Literal, NamedTuple

from specs.stages.base.artifacts import DialogueTurn
from specs.stages.finetuning.parameters import TrainingParameters
from training.rules.prompt_encoding import form_of, require_template

PLAIN_FORMAT = "{prompt}\n\n"
"""Used for a base model where the spec gives no format."""


@dataclass(frozen=True)
class Style:
    """``chat``, or a format with ``{prompt}`` in it, and what ends and begins a response."""

    mode: Literal["chat", "completion"]
    format: str = PLAIN_FORMAT
    end: str = ""
    start: str = ""

    def settings(self) -> dict[str, str | None]:
        """Return the style by the names of its parameters."""
        if self.mode == "chat":
            return {"prompt_format": None, "response_end": None, "response_start": None}
        return {"prompt_format": self.format, "response_end": self.end or None, "response_start": self.start or None}


@dataclass(frozen=True)
class PromptWithResponses:
    """One prompt with its responses: one in supervised training, chosen and rejected in preference training."""

    style: Style
    text: str
    responses: tuple[str, ...]
    before: tuple[DialogueTurn, ...] = ()

    def prompt(self) -> Any:
        """Return the prompt as TRL takes it, after the turns before it."""
        if self.style.mode == "chat":
            return [*(turn.model_dump() for turn in self.before), {"role": "user", "content": self.text}]
        # As an untrained base model is asked: the texts of the turns, an empty line after each.
        text = "\n\n".join([*(turn.content for turn in self.before), self.text])
        return self.style.format.replace("{prompt}", text)

    def response(self, text: str) -> Any:
        """Return a response as TRL takes it."""
        if self.style.mode == "chat":
            return [{"role": "assistant", "content": text}]
        return self.style.start + text + self.style.end

    def prompt_text(self, tokenizer: Any) -> str:
        """Return the prompt as the text that is encoded."""
        if self.style.mode == "completion":
            return self.prompt()
        return tokenizer.apply_chat_template(self.prompt(), add_generation_prompt=True, tokenize=False)

    def response_text(self, tokenizer: Any, response: str) -> str:
        """Return what follows the prompt's text, up to and with the end token."""
        if self.style.mode == "completion":
            return self.response(response)
        whole = tokenizer.apply_chat_template(self.prompt() + self.response(response), tokenize=False)
        head, end, _ = whole.removeprefix(self.prompt_text(tokenizer)).rpartition(tokenizer.eos_token)
        return head + end

    def encode_sides(self, tokenizer: Any) -> EncodedResponses:
        """Return the ids that a model reads before it answers, and those with each response and its end token."""
        if self.style.mode == "chat":
            prompt = tokenizer.apply_chat_template(self.prompt(), add_generation_prompt=True, tokenize=True)
            turns = [self.prompt() + self.response(text) for text in self.responses]
            wholes = [tokenizer.apply_chat_template(conversation, tokenize=True) for conversation in turns]
        else:
            prompt, eos = tokenizer(self.prompt()), tokenizer.eos_token
            texts = [self.response(text) for text in self.responses]
            wholes = [tokenizer(self.prompt() + text + ("" if text.endswith(eos) else eos)) for text in texts]
        return EncodedResponses(_ids(prompt), [_ids(whole) for whole in wholes])


class EncodedResponses(NamedTuple):
    """Token ids of a prompt, and of the prompt with each response and the token that ends it."""

    prompt: list[int]
    wholes: list[list[int]]

    def begins(self) -> list[int]:
        """Return for each response where it parts from the prompt."""
        return [len(commonprefix([self.prompt, whole])) for whole in self.wholes]


def style_of(tokenizer: Any, parameters: TrainingParameters, model_kind: str | None) -> Style:
    """Return the granted format, or the format that follows from the declared kind of the model.

    Raises ValueError if the order states no kind, EncodingFault if a model declared instruct has no chat template.
    """
    if parameters.prompt_format is not None:
        ends = parameters.response_end or "", parameters.response_start or ""
        return Style("completion", parameters.prompt_format, *ends)
    form = form_of(model_kind)
    if form == "chat":
        require_template(tokenizer)
    return Style(form)


def _ids(encoded: Any) -> list[int]:
    return list(encoded if isinstance(encoded, list) else encoded["input_ids"])
