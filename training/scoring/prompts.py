"""What the model reads of an item, under each condition. One loop answers them all; only this differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from specs.kinds_evaluation import EvaluateParameters
from training.decoding import Message, encode

ROLES = {"user": "User", "assistant": "Assistant"}


def prompt_ids(tokenizer: Any, prompt: str, parameters: EvaluateParameters) -> list[int]:
    """Return the token ids of an item's prompt under the granted condition."""
    if parameters.prompting == "native":
        return encode(tokenizer, [{"role": "user", "content": prompt}])
    text = prompt if parameters.wrapper is None else parameters.wrapper.replace("{prompt}", prompt)
    return list(tokenizer(text)["input_ids"])


def conversation_ids(
    tokenizer: Any, messages: Sequence[Message], prompting: Literal["transcript", "raw", "native"]
) -> list[int]:
    """Return the token ids of a conversation that ends with the user, ready for the answer."""
    if prompting == "native":
        return encode(tokenizer, messages)
    if prompting == "raw":
        return list(tokenizer("".join(f"{message['content']}\n\n" for message in messages))["input_ids"])
    lines = [f"{ROLES[message['role']]}: {message['content']}" for message in messages]
    return list(tokenizer("\n".join([*lines, "Assistant:"]))["input_ids"])
