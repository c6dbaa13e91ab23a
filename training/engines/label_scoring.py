"""Next-token log-probabilities of the labels A and B: many prompts in one pass, their common beginning read once.

The same prompts, batch size and thread count give the same figures; another batch size changes the last digits. Whole
prompts are tokenized; the common beginning is found among their token ids, so that it never cuts a token in two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from specs.stages.base.sampling import Form
from specs.stages.base.witness import DIGITS, Arrangement, LabelScores, arrangement
from specs.system.digests import digest_bytes
from training.engines.batched import shared_beginning
from training.engines.prefix_reading import keeps_apart, last_logits, passes
from training.rules.prompt_encoding import EncodingFault, encode_bare, encode_chat, prompt_ids
from training.rules.rubric_prompts import JudgementPrompts

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
    """Return the ids of "A", " A", "B" and " B"; raises NoLabels if a label is not a single token in either form."""

    def single(text: str) -> int | None:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids[0] if len(ids) == 1 and ids[0] != tokenizer.unk_token_id else None

    labels = Labels(single("A"), single(" A"), single("B"), single(" B"))
    a, b = {labels.a, labels.a_spaced} - {None}, {labels.b, labels.b_spaced} - {None}
    if not a or not b or a & b:
        raise NoLabels(f"the tokenizer writes A as {sorted(a, key=str)} and B as {sorted(b, key=str)}")
    return labels


def encode_prompt(tokenizer: Any, prompt: str, form: Form) -> list[int]:
    """Return the token ids that the label follows; raises EncodingFault as :func:`prompt_ids`.

    A base model reads the bare text. For a chat model the prompt is a user's turn, and its last line (``Label:``)
    begins the answer.
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
) -> list[LabelScores]:
    """Return the labels' log-probabilities after each prompt, in the order given; equal prompts are read once.

    Raises as :func:`labels_of` and :func:`encode_prompt`, and ValueError if a prompt is longer than the context.
    """
    import torch

    labels = labels_of(tokenizer)
    texts = list(dict.fromkeys(prompts))
    ids = [encode_prompt(tokenizer, text, form) for text in texts]
    longest = max((len(counts) for counts in ids), default=0)
    limit = getattr(model.config, "max_position_embeddings", None)
    if limit is not None and longest > limit:
        raise ValueError(f"a prompt has {longest} tokens, the model reads {limit}")
    shared = shared_beginning(ids, SHARED_AT_LEAST)
    tails = [counts[shared:] for counts in ids]
    label_scores: dict[str, LabelScores] = {}
    with torch.inference_mode():
        before = None
        if shared:
            start = torch.tensor([ids[0][:shared]], device=model.device)
            before = model(input_ids=start, use_cache=True, logits_to_keep=1).past_key_values
        tree = keeps_apart(model, longest)
        for chosen in passes(tails, batch_size):
            logits = last_logits(model, [tails[index] for index in chosen], shared, before, tree)
            logs = torch.log_softmax(logits, -1)
            columns = [None if id is None else logs[:, id].tolist() for id in labels]
            for row, index in enumerate(chosen):
                forms = [None if column is None else round(column[row], DIGITS) for column in columns]
                named = dict(zip(Labels._fields, forms, strict=True))
                prompt = digest_bytes(texts[index].encode())
                label_scores[texts[index]] = LabelScores(**named, prompt=prompt, prompt_tokens=len(ids[index]))
    return [label_scores[text] for text in prompts]


def score_both(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[JudgementPrompts],
    *,
    form: Form,
    batch_size: int,
    alike: bool,
    margin: float,
) -> list[tuple[Arrangement, Arrangement]]:
    """Return what follows from the scores of the plain and of the swapped prompts, as :func:`score` gives them.

    ``alike``: both orders have one long common beginning, as in comparisons, and are read together.
    """
    orders = [[prompt[order] for prompt in prompts] for order in (0, 1)]
    calls = [[*orders[0], *orders[1]]] if alike else orders
    label_scores = [
        label_scores
        for texts in calls
        for label_scores in score(model, tokenizer, texts, form=form, batch_size=batch_size)
    ]
    both = zip(label_scores[: len(prompts)], label_scores[len(prompts) :], strict=True)
    return [(arrangement(plain, "A", margin), arrangement(swapped, "B", margin)) for plain, swapped in both]
