"""What the model reads of an item, under each condition. One loop answers them all; only this differs.

Whether ``native`` is the chat template or bare text is said by the declared kind of the model, not by its tokenizer:
those of many base models have a template.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from specs.stages.answer_end import Form
from specs.stages.evaluation.parameters import EvaluateParameters
from specs.stages.generation.parameters import GenerateParameters
from training.rules.prompt_encoding import Message, bare_ids, dialogue_ids
from training.rules.prompt_text import in_wrapper

ROLES = {"user": "User", "assistant": "Assistant"}


def item_ids(tokenizer: Any, prompt: str, parameters: EvaluateParameters, form: Form) -> list[int]:
    """Return the token ids of an item's prompt under the granted condition.

    Raises:
        EncodingFault: the ids do not stand for the text, or a model declared instruct has no chat template.
    """
    if parameters.prompting == "native":
        return list(dialogue_ids(tokenizer, [{"role": "user", "content": prompt}], form).ids)
    return list(bare_ids(tokenizer, in_wrapper(parameters.wrapper or "{prompt}", prompt)).ids)


def sample_ids(
    tokenizer: Any, prompt: str, worked: tuple[str, str] | None, parameters: GenerateParameters, form: Form
) -> list[int]:
    """Return the token ids of a prompt to sample from, after a worked example where there is one.

    Raises:
        EncodingFault: as :func:`item_ids`.
    """
    if parameters.wrapper is not None:
        pairs = [] if worked is None else [worked]
        text = in_wrapper(parameters.wrapper, prompt, pairs, parameters.response_end or "")
        return list(bare_ids(tokenizer, text).ids)
    shown: list[Message] = []
    if worked is not None:
        shown = [{"role": "user", "content": worked[0]}, {"role": "assistant", "content": worked[1]}]
    return list(dialogue_ids(tokenizer, [*shown, {"role": "user", "content": prompt}], form).ids)


def conversation_ids(
    tokenizer: Any, messages: Sequence[Message], prompting: Literal["transcript", "raw", "native"], form: Form
) -> list[int]:
    """Return the token ids of a conversation that ends with the user, ready for the answer.

    Raises:
        EncodingFault: as :func:`item_ids`.
    """
    if prompting != "transcript":
        return list(dialogue_ids(tokenizer, messages, form if prompting == "native" else "completion").ids)
    lines = [f"{ROLES[message['role']]}: {message['content']}" for message in messages]
    return list(bare_ids(tokenizer, "\n".join([*lines, "Assistant:"])).ids)
