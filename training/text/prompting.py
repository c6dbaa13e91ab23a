"""What a model reads: bare text for base models, the chat template for instruct models, by the declared kind.

Covered: a tokenizer that adds tokens of its own, and template tokens anywhere in a prompt. Not covered: a template of
ordinary words that is part of the text before it is encoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from specs.rows_text import Form


class EncodingFault(Exception):
    """A prompt is not encoded as the bare text it is; the message says what stands there instead."""


class Encoded(NamedTuple):
    """A prompt in token ids, and what the tokenizer would have made of it."""

    text: str
    ids: tuple[int, ...]
    ids_with_special: tuple[int, ...]
    decoded: str
    template_ids: tuple[int, ...]
    """Positions in ``ids``."""


def form_of(model_kind: str | None) -> Form:
    """Return how a model of the declared kind is prompted.

    Raises:
        ValueError: the order does not say what kind of model it is.
    """
    if model_kind is None:
        raise ValueError("the order does not say whether the model is a base model")
    return "completion" if model_kind == "base" else "chat"


def encode_bare(tokenizer: Any, text: str) -> Encoded:
    """Encode text as it is, and say how the tokenizer would change it."""
    ids = tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
    with_special = tuple(tokenizer(text, add_special_tokens=True)["input_ids"])
    reserved = template_tokens(tokenizer)
    found = tuple(place for place, id in enumerate(ids) if id in reserved)
    return Encoded(text, ids, with_special, _decoded(tokenizer, ids), found)


def encode_chat(tokenizer: Any, text: str) -> Encoded:
    """Encode one message of a user with the chat template, ready for the answer.

    Raises:
        EncodingFault: the tokenizer has no chat template.
    """
    if tokenizer.chat_template is None:
        raise EncodingFault("the model is declared instruct, and its tokenizer has no chat template")
    message = [{"role": "user", "content": text}]
    whole: str = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    return encode_bare(tokenizer, whole)


def prompt_ids(tokenizer: Any, text: str, form: Form) -> Encoded:
    """Encode a prompt in its form; a completion prompt has to be nothing but its text.

    Raises:
        EncodingFault: the tokenizer adds something to a completion prompt, or has no template for a chat.
    """
    if form == "chat":
        return encode_chat(tokenizer, text)
    encoded = encode_bare(tokenizer, text)
    wrong = fault_in(encoded.text, encoded.ids, encoded.ids_with_special, encoded.decoded, encoded.template_ids)
    if wrong:
        raise EncodingFault(wrong)
    return encoded


def fault_in(
    text: str, ids: Sequence[int], ids_with_special: Sequence[int], decoded: str, template_ids: Sequence[int]
) -> str:
    """Say in words how an encoded completion prompt differs from its text; nothing where it does not.

    Special tokens are compared token by token, not by count: one that takes the place of another would not show.
    """
    if tuple(ids) != tuple(ids_with_special):
        pairs = zip(ids, ids_with_special, strict=False)
        at = next((n for n, (one, other) in enumerate(pairs) if one != other), min(len(ids), len(ids_with_special)))
        return (
            f"the tokenizer adds special tokens by itself: {len(ids)} ids without, {len(ids_with_special)} with; "
            f"they differ from position {at}"
        )
    if template_ids:
        return f"position {template_ids[0]} of the prompt holds a special token or one of the chat template"
    if decoded != text:
        at = next((n for n, (one, other) in enumerate(zip(text, decoded, strict=False)) if one != other), len(text))
        return f"the encoded prompt stands for {len(decoded)} characters instead of {len(text)}, from character {at}"
    return ""


def template_tokens(tokenizer: Any) -> frozenset[int]:
    """Return the ids that no bare text may hold: special tokens and added tokens that the chat template writes."""
    template = tokenizer.chat_template or ""
    text = template if isinstance(template, str) else str(template)
    added = {id for token, id in tokenizer.get_added_vocab().items() if token in text}
    return frozenset(tokenizer.all_special_ids) | frozenset(added)


def _decoded(tokenizer: Any, ids: Sequence[int]) -> str:
    return tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
