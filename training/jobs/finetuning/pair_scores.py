"""Preferences as data: reading them, keeping groups out of training, and scoring both responses without TRL."""

from __future__ import annotations

from typing import Any, NamedTuple

from training.jobs.finetuning.training_texts import Sides

_PIECE = 256
"""Positions whose log-probabilities are computed at a time."""


class Scored(NamedTuple):
    """Log-probabilities of both responses (sums over their tokens, in nats), and how many tokens those are."""

    chosen: float
    rejected: float
    chosen_tokens: int
    rejected_tokens: int


def score(model: Any, tokenizer: Any, pairs: list[Sides], *, batch_size: int, max_length: int) -> list[Scored]:
    """Return what the model gives both responses of each pair, in the order given; the model is left in its mode.

    The response begins where the encodings of prompt and whole text part, as in training, and is cut at ``max_length``
    tokens of both.
    """
    import torch

    encoded = [_encoded(tokenizer, pair, response, max_length) for pair in pairs for response in pair.responses]
    order = sorted(range(len(encoded)), key=lambda place: len(encoded[place][0]))
    found: dict[int, tuple[float, int]] = {}
    was_training = model.training
    model.eval()
    with torch.no_grad():
        for begin in range(0, len(order), batch_size):
            places = order[begin : begin + batch_size]
            for place, value in zip(places, sums(model, [encoded[place] for place in places]), strict=True):
                found[place] = value
    model.train(was_training)
    return [
        Scored(found[2 * n][0], found[2 * n + 1][0], found[2 * n][1], found[2 * n + 1][1]) for n in range(len(pairs))
    ]


def _encoded(tokenizer: Any, pair: Sides, response: str, max_length: int) -> tuple[list[int], int]:
    """Return (ids, where the response begins)."""
    prompt = pair.prompt_ids(tokenizer)
    wholes = [pair.whole_ids(tokenizer, one) for one in pair.responses]
    begin = min(
        next((n for n, (a, b) in enumerate(zip(prompt, whole, strict=False)) if a != b), len(prompt))
        for whole in wholes
    )
    return pair.whole_ids(tokenizer, response)[:max_length], begin


def sums(model: Any, batch: list[tuple[list[int], int]]) -> list[tuple[float, int]]:
    """Return (log-probability, tokens) of what stands at and after a place, for ids and places of one batch."""
    import torch

    device = next(model.parameters()).device
    longest = max(len(ids) for ids, _ in batch)
    ids = torch.tensor([one + [0] * (longest - len(one)) for one, _ in batch], device=device)
    mask = torch.tensor([[1] * len(one) + [0] * (longest - len(one)) for one, _ in batch], device=device)
    logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
    # In pieces: float32 copies of all logits would be the largest tensor of the whole run.
    pieces: list[Any] = []
    for begin in range(0, longest - 1, _PIECE):
        part = logits[:, begin : min(begin + _PIECE, longest - 1)].float()
        next_ids = ids[:, begin + 1 : begin + 1 + part.shape[1], None]
        pieces.append(part.gather(-1, next_ids).squeeze(-1) - part.logsumexp(-1))
    picked = torch.cat(pieces, dim=1)
    return [
        (float(picked[row, begin - 1 : len(one) - 1].double().sum()), len(one) - begin)
        for row, (one, begin) in enumerate(batch)
    ]
