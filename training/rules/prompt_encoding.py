"""Encodes prompts: bare text for base models, the chat template for instruct models, by the declared kind.

Many base models have a template, so only the declared kind decides. A tokenizer that adds tokens to bare text, and
template tokens in it, are refused; a template of ordinary words inside the text is not seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from specs.stages.base.artifacts import Item
from specs.stages.base.sampling import Form
from specs.stages.evaluation.parameters import EvaluateParameters
from specs.stages.generation.parameters import GenerateParameters
from training.rules.prompt_text import in_wrapper

Message = dict[str, str]
"""``role`` and ``content`` of one turn."""


class EncodingFault(Exception):
    """The ids of a prompt do not stand for its bare text; the message says what they stand for."""


class EncodedPrompt(NamedTuple):
    """A prompt in token ids, and what the tokenizer makes of it."""

    text: str
    ids: tuple[int, ...]
    ids_with_special: tuple[int, ...]
    decoded: str
    template_ids: tuple[int, ...]
    """Positions in ``ids``."""


def form_of(model_kind: str | None) -> Form:
    """Return the form of prompts for a model of the declared kind; raises ValueError if the order states no kind."""
    if model_kind is None:
        raise ValueError("the order does not say whether the model is a base model")
    return "completion" if model_kind == "base" else "chat"


def encode_bare(tokenizer: Any, text: str) -> EncodedPrompt:
    """Encode text as it is, and record how the tokenizer would change it."""
    ids = tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
    with_special = tuple(tokenizer(text, add_special_tokens=True)["input_ids"])
    reserved = template_tokens(tokenizer)
    counts = tuple(place for place, id in enumerate(ids) if id in reserved)
    decoded = tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return EncodedPrompt(text, ids, with_special, decoded, counts)


def encode_chat(tokenizer: Any, text: str) -> EncodedPrompt:
    """Encode a user's message with the chat template, ready for the answer; raises EncodingFault if there is none."""
    return encode_bare(tokenizer, _in_template(tokenizer, [{"role": "user", "content": text}]))


def require_template(tokenizer: Any) -> None:
    """Refuse a tokenizer without a chat template; raises EncodingFault if it has none."""
    if tokenizer.chat_template is None:
        raise EncodingFault("the model is declared instruct, but its tokenizer has no chat template")


def _in_template(tokenizer: Any, messages: Sequence[Message]) -> str:
    require_template(tokenizer)
    return tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)


def prompt_ids(tokenizer: Any, text: str, form: Form) -> EncodedPrompt:
    """Encode a prompt in its form; raises EncodingFault as :func:`bare_ids` or :func:`dialogue_ids`."""
    if form == "chat":
        return dialogue_ids(tokenizer, [{"role": "user", "content": text}], form)
    return bare_ids(tokenizer, text)


def bare_ids(tokenizer: Any, text: str) -> EncodedPrompt:
    """Encode text that must stand for itself only; raises EncodingFault if the tokenizer changes or adds anything."""
    encoded = encode_bare(tokenizer, text)
    wrong = fault_in(encoded.text, encoded.ids, encoded.ids_with_special, encoded.decoded, encoded.template_ids)
    if wrong:
        raise EncodingFault(wrong)
    return encoded


def dialogue_ids(tokenizer: Any, messages: Sequence[Message], form: Form) -> EncodedPrompt:
    """Encode turns that end with the user, ready for the answer; raises EncodingFault if the ids stand for other text.

    An instruct model gets its chat template, a base model the texts of the turns, an empty line after each.
    """
    if form == "completion":
        return bare_ids(tokenizer, "".join(f"{message['content']}\n\n" for message in messages))
    encoded = encode_bare(tokenizer, _in_template(tokenizer, messages))
    # Template tokens belong there; white space next to them is moved by some tokenizers.
    text, stands = ("".join(text.split()) for text in (encoded.text, encoded.decoded))
    if text != stands:
        raise EncodingFault(
            f"the encoded chat stands for {len(stands)} characters instead of {len(text)}, white space left out"
        )
    return encoded


def fault_in(
    text: str, ids: Sequence[int], ids_with_special: Sequence[int], decoded: str, template_ids: Sequence[int]
) -> str:
    """Return in words how an encoded completion prompt differs from its text, or nothing.

    Special tokens are compared one by one: a count would miss a token that replaces another.
    """
    if tuple(ids) != tuple(ids_with_special):
        pairs = zip(ids, ids_with_special, strict=False)
        at = next((n for n, (pair, other) in enumerate(pairs) if pair != other), min(len(ids), len(ids_with_special)))
        return (
            f"the tokenizer adds special tokens: {len(ids)} ids without, {len(ids_with_special)} with; "
            f"they differ from position {at}"
        )
    if template_ids:
        return f"position {template_ids[0]} of the prompt holds a special token or one of the chat template"
    if decoded != text:
        at = next(
            (n for n, (current_text, other) in enumerate(zip(text, decoded, strict=False)) if current_text != other),
            len(text),
        )
        return f"the encoded prompt stands for {len(decoded)} characters instead of {len(text)}, from character {at}"
    return ""


def template_tokens(tokenizer: Any) -> frozenset[int]:
    """Return the ids that no bare text may hold: special tokens and added tokens of the chat template."""
    template = tokenizer.chat_template or ""
    text = template if isinstance(template, str) else str(template)
    added = {id for token, id in tokenizer.get_added_vocab().items() if token in text}
    return frozenset(tokenizer.all_special_ids) | frozenset(added)


ROLES = {"user": "User", "assistant": "Assistant"}


def item_ids(tokenizer: Any, item: Item, parameters: EvaluateParameters, form: Form) -> list[int]:
    """Return the ids of an item's turns under the granted condition; raises EncodingFault as :func:`prompt_ids`."""
    prompt = item.prompt
    if parameters.prompting == "native":
        turns = [turn.model_dump() for turn in item.before]
        return list(dialogue_ids(tokenizer, [*turns, {"role": "user", "content": prompt}], form).ids)
    if item.before:
        raise EncodingFault(f"item '{item.id}' has turns before its prompt, which a wrapper cannot hold")
    return list(bare_ids(tokenizer, in_wrapper(parameters.wrapper or "{prompt}", prompt)).ids)


def sample_ids(
    tokenizer: Any, prompt: str, worked: tuple[str, str] | None, parameters: GenerateParameters, form: Form
) -> list[int]:
    """Return the ids of a prompt to sample from, after a worked example if any; raises EncodingFault likewise."""
    if parameters.wrapper is not None:
        pairs = [] if worked is None else [worked]
        text = in_wrapper(parameters.wrapper, prompt, pairs, parameters.response_end or "")
        return list(bare_ids(tokenizer, text).ids)
    messages: list[Message] = []
    if worked is not None:
        messages = [{"role": "user", "content": worked[0]}, {"role": "assistant", "content": worked[1]}]
    return list(dialogue_ids(tokenizer, [*messages, {"role": "user", "content": prompt}], form).ids)


def conversation_ids(
    tokenizer: Any, messages: Sequence[Message], prompting: Literal["transcript", "raw", "native"], form: Form
) -> list[int]:
    """Return the ids of a conversation that ends with the user; raises EncodingFault as :func:`prompt_ids`."""
    if prompting != "transcript":
        return list(dialogue_ids(tokenizer, messages, form if prompting == "native" else "completion").ids)
    lines = [f"{ROLES[message['role']]}: {message['content']}" for message in messages]
    return list(bare_ids(tokenizer, "\n".join([*lines, "Assistant:"])).ids)
