"""Next-token log-probabilities of the labels A and B: in batches sorted by length, the shared beginning read once.

The same prompts, batch size and thread count give the same figures; other batch sizes give figures that differ in the
last digits of the arithmetic. What is scored is the whole prompt, tokenized whole: the beginning that prompts share is
found among their token ids, so that it never cuts a token in two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from specs.digests import digest_bytes
from specs.rows_critics import DIGITS, LabelScores
from specs.rows_text import Form
from training.text.prompting import EncodingFault, encode_bare, encode_chat, prompt_ids

SHARED_AT_LEAST = 8
"""Tokens: a shorter common beginning is not worth a cache."""


class Labels(NamedTuple):
    """Token ids of the labels without and with a leading space; None where that takes several tokens."""

    a: int | None
    a_spaced: int | None
    b: int | None
    b_spaced: int | None


class NoLabels(Exception):
    """The tokenizer has no single token for a label, or the same one for both."""


def labels_of(tokenizer: Any) -> Labels:
    """Return the ids of "A", " A", "B" and " B".

    Raises:
        NoLabels: a label is no single token in either form, or both labels are the same token.
    """

    def single(text: str) -> int | None:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids[0] if len(ids) == 1 and ids[0] != tokenizer.unk_token_id else None

    found = Labels(single("A"), single(" A"), single("B"), single(" B"))
    a, b = {found.a, found.a_spaced} - {None}, {found.b, found.b_spaced} - {None}
    if not a or not b or a & b:
        raise NoLabels(f"the tokenizer writes A as {sorted(a, key=str)} and B as {sorted(b, key=str)}")
    return found


def encode_prompt(tokenizer: Any, prompt: str, form: Form) -> list[int]:
    """Return the token ids after which the label follows.

    A base model reads the bare text. For a chat model the prompt is a user's turn, and its last line, such as
    ``Label:``, begins the answer.

    Raises:
        EncodingFault: the prompt is not encoded as the bare text it is, or a chat model has no chat template.
    """
    if form == "completion":
        return list(prompt_ids(tokenizer, prompt, form).ids)
    if encode_bare(tokenizer, prompt).template_ids:
        raise EncodingFault("the question holds a special token or one of the chat template")
    question, _, opening = prompt.rpartition("\n")
    return [*encode_chat(tokenizer, question.rstrip()).ids, *encode_bare(tokenizer, opening).ids]


def score(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[str],
    *,
    form: Form,
    batch_size: int,
    on_batch: Callable[[int], None] = lambda _: None,
) -> list[LabelScores]:
    """Return the log-probabilities of the labels after each prompt, in the order given; equal prompts are read once.

    Args:
        model: a causal language model of transformers, in evaluation mode.
        tokenizer: its tokenizer.
        prompts: texts, as from ``training/critics/rubrics.py``.
        form: bare text, or the model's chat template.
        batch_size: prompts read together.
        on_batch: told how many distinct prompts are done.

    Raises:
        NoLabels: as :func:`labels_of`.
        EncodingFault: as :func:`encode_prompt`.
        ValueError: a prompt is longer than the model's context.
    """
    import torch

    labels = labels_of(tokenizer)
    texts = list(dict.fromkeys(prompts))
    ids = [encode_prompt(tokenizer, text, form) for text in texts]
    longest = max((len(one) for one in ids), default=0)
    limit = getattr(model.config, "max_position_embeddings", None)
    if limit is not None and longest > limit:
        raise ValueError(f"a prompt has {longest} tokens, the model reads {limit}")
    order = sorted(range(len(ids)), key=lambda index: (len(ids[index]), index))
    shared = _shared(ids)
    found: dict[str, LabelScores] = {}
    with torch.inference_mode():
        cache = model(input_ids=_row(ids[0][:shared], model), use_cache=True, logits_to_keep=1) if shared else None
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            rows = _batch(model, [ids[index] for index in chosen], shared, cache, labels)
            for index, row in zip(chosen, rows, strict=True):
                forms = [None if value is None else round(value, DIGITS) for value in row]
                found[texts[index]] = LabelScores(
                    a=forms[0],
                    a_spaced=forms[1],
                    b=forms[2],
                    b_spaced=forms[3],
                    prompt=digest_bytes(texts[index].encode()),
                    prompt_tokens=len(ids[index]),
                )
            on_batch(start + len(chosen))
    return [found[text] for text in prompts]


def _shared(ids: list[list[int]]) -> int:
    """Return how many tokens all prompts begin with, leaving at least one of each to be read."""
    if len(ids) < 2:
        return 0
    # Of all sequences the first and the last in order differ the earliest.
    low, high = min(ids), max(ids)
    most = min(len(one) for one in ids) - 1
    equal = zip(low[:most], high[:most], strict=False)
    count = next((place for place, (one, other) in enumerate(equal) if one != other), most)
    return count if count >= SHARED_AT_LEAST else 0


def _row(ids: Sequence[int], model: Any) -> Any:
    import torch

    return torch.tensor([list(ids)], device=model.device)


def _batch(
    model: Any, prompts: list[list[int]], shared: int, before: Any, labels: Labels
) -> list[tuple[float | None, ...]]:
    """Return the label log-probabilities of a batch of prompts, whose first ``shared`` tokens are in a cache."""
    import torch

    tails = [prompt[shared:] for prompt in prompts]
    longest = max(len(tail) for tail in tails)
    device = model.device
    # Right padding: what is read never looks at what comes after it.
    ids = torch.zeros((len(tails), longest), dtype=torch.long, device=device)
    mask = torch.zeros((len(tails), shared + longest), dtype=torch.long, device=device)
    for row, tail in enumerate(tails):
        ids[row, : len(tail)] = torch.tensor(tail, device=device)
        mask[row, : shared + len(tail)] = 1
    ends = torch.tensor([len(tail) - 1 for tail in tails], device=device)
    # Logits are as wide as the vocabulary: only the places where some prompt ends are computed.
    places, which = ends.unique(return_inverse=True)
    named: dict[str, Any] = {}
    if before is not None:
        named["past_key_values"] = _repeated(before.past_key_values, len(tails))
    positions = torch.arange(shared, shared + longest, device=device)[None].expand(len(tails), -1)
    out = model(
        input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=before is not None,
        logits_to_keep=places, **named,
    )  # fmt: skip
    last = out.logits[torch.arange(len(tails), device=device), which].float()
    logs = torch.log_softmax(last, -1)
    columns = [None if id is None else logs[:, id].tolist() for id in labels]
    return [tuple(None if column is None else column[row] for column in columns) for row in range(len(tails))]


def _repeated(cache: Any, times: int) -> Any:
    """Return a copy of the cache of one row for so many rows; the original stays for the next batch."""
    import copy

    repeated = copy.deepcopy(cache)
    repeated.batch_repeat_interleave(times)
    return repeated
