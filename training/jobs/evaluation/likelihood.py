"""Log-likelihoods of given tokens: of whole texts window by window, and of a continuation after a context.

Each token is scored exactly once, in nats. The same inputs, batch size and thread count give the same figures. Models
whose context is shorter than the window are refused; figures of different tokenizers compare only per byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from specs.stages.base.sampling import digest_ids
from training.engines.batched import common, pad_rows


class TokenWindow(NamedTuple):
    """Token ids, of which those from ``start`` on are scored; the ones before are context."""

    ids: tuple[int, ...]
    start: int


def digest_windows(windows: Sequence[TokenWindow]) -> str:
    """Return the digest of what is read and scored for a row: the ids of each window, and where its scores begin."""
    return digest_ids([[*window.ids, window.start] for window in windows])


def windows_of(tokens: Sequence[int], prefix: int, window: int, stride: int) -> Iterator[TokenWindow]:
    """Cut a text into overlapping windows so that every token is scored once, with as much context as possible.

    The first window holds the prefix token, so that the first token has a context, and ``window - 1`` tokens, all
    scored. Each later one ends ``stride`` tokens further and scores only those, so that each has at least ``window -
    stride`` tokens before it. ``window`` is at least 2, and ``stride`` smaller.
    """
    whole = (prefix, *tokens)
    done = 1
    while done < len(whole):
        end = min(len(whole), window if done == 1 else done + stride)
        begin = max(0, end - window)
        yield TokenWindow(whole[begin:end], done - begin)
        done = end


def prefix_of(tokenizer: Any) -> int:
    """Return the id before a text: the begin-of-text token, or else end-of-text; raises ValueError without either."""
    for id in (tokenizer.bos_token_id, tokenizer.eos_token_id):
        if id is not None:
            return int(id)
    raise ValueError("the tokenizer has neither a begin-of-text nor an end-of-text token to put before a text")


def continuation(tokenizer: Any, context: str, text: str) -> TokenWindow:
    """Return context and text as one sequence, of which the tokens of the text are scored.

    Both are encoded together. A token that joins the border is scored as part of the text.
    """
    before = list(tokenizer(context)["input_ids"])
    whole = list(tokenizer(context + text)["input_ids"])
    same = common(before, whole)
    # A text is at least one token, and its first token needs one before it.
    return TokenWindow(tuple(whole), max(1, min(same, len(whole) - 1)))


def nats_of(model: Any, rows: Sequence[TokenWindow], *, batch_size: int) -> list[float]:
    """Return the negative log-likelihood of each row's scored tokens, in nats, ``batch_size`` rows at once.

    Raises ValueError if a row is longer than the model's context, or scores nothing.
    """
    import torch

    limit = getattr(model.config, "max_position_embeddings", None)
    longest = max((len(row.ids) for row in rows), default=0)
    if limit is not None and longest > limit:
        raise ValueError(f"a row has {longest} tokens, the model reads {limit}")
    if any(not 1 <= row.start < len(row.ids) for row in rows):
        raise ValueError("a row scores no token, or one without a context")
    order = sorted(range(len(rows)), key=lambda index: (len(rows[index].ids), index))
    values = [0.0] * len(rows)
    for begin in range(0, len(order), batch_size):
        chosen = order[begin : begin + batch_size]
        ids, mask = pad_rows([rows[index].ids for index in chosen], model.device)
        with torch.inference_mode():
            logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
            for place, index in enumerate(chosen):
                row = rows[index]
                arguments = logits[place, row.start - 1 : len(row.ids) - 1].float()
                tensor = ids[place, row.start : len(row.ids)]
                values[index] = float(torch.nn.functional.cross_entropy(arguments, tensor, reduction="sum"))
    return values
