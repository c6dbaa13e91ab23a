"""How a prompt and its responses become text: chat turns of the tokenizer, or completion mode in a given format.

TRL encodes what :meth:`Sides.prompt` and :meth:`Sides.response` return; ``prompt_ids`` and ``whole_ids`` encode the
same again without TRL, for the proof of the masks and for scoring.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from specs.stages.finetuning.parameters import TrainingParameters
from training.rules.prompt_encoding import form_of, require_template

PLAIN_FORMAT = "{prompt}\n\n"
"""Used for a base model where the spec gives no format."""


@dataclass(frozen=True)
class Style:
    """``chat``, or a format in which ``{prompt}`` stands for the prompt, and what ends and begins a response in it."""

    mode: Literal["chat", "completion"]
    format: str = PLAIN_FORMAT
    end: str = ""
    start: str = ""

    def settings(self) -> dict[str, str | None]:
        """Return the style by the names of its parameters."""
        if self.mode == "chat":
            return {"prompt_format": None, "response_end": None, "response_start": None}
        return {
            "prompt_format": self.format,
            "response_end": self.end or None,
            "response_start": self.start or None,
        }


@dataclass(frozen=True)
class Sides:
    """One prompt with its responses: one in supervised training, chosen and rejected in preference training."""

    style: Style
    text: str
    responses: tuple[str, ...]

    def prompt(self) -> Any:
        """Return the prompt as TRL takes it."""
        if self.style.mode == "chat":
            return [{"role": "user", "content": self.text}]
        return self.style.format.replace("{prompt}", self.text)

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

    def prompt_ids(self, tokenizer: Any) -> list[int]:
        """Return the ids a model is given before it answers."""
        if self.style.mode == "chat":
            return _ids(tokenizer.apply_chat_template(self.prompt(), add_generation_prompt=True, tokenize=True))
        return _ids(tokenizer(self.prompt()))

    def whole_ids(self, tokenizer: Any, response: str) -> list[int]:
        """Return the ids of prompt and response, with the token that ends it."""
        if self.style.mode == "chat":
            return _ids(tokenizer.apply_chat_template(self.prompt() + self.response(response), tokenize=True))
        text = self.response(response)
        end = "" if text.endswith(tokenizer.eos_token) else tokenizer.eos_token
        return _ids(tokenizer(self.prompt() + text + end))


def style_of(tokenizer: Any, parameters: TrainingParameters, model_kind: str | None) -> Style:
    """Return the granted format, or what follows from the declared kind of the model.

    Raises:
        ValueError: the order does not say what kind of model it is.
        EncodingFault: a model declared instruct has no chat template.
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
