"""Batched decoding that does not waste: prompts sorted by length, each read once, finished rows dropped.

Same inputs, seed and thread count give the same outputs. Not guaranteed: the same outputs for another batch size,
because padding changes the order of floating point sums; that is why arms must share it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

Message = dict[str, str]
DROP_AT = 0.75
"""The batch is shrunk when less than this share of its rows is still being written."""


class Output(NamedTuple):
    """One completion: text, its token ids without the end token, and whether it hit the limit."""

    text: str
    ids: tuple[int, ...]
    truncated: bool


def encode(tokenizer: Any, messages: Sequence[Message]) -> list[int]:
    """Return the token ids of a conversation, ready for the assistant's answer.

    A tokenizer without a chat template (a base model) gets the bare text of the messages.
    """
    if tokenizer.chat_template is None:
        text = "\n\n".join(message["content"] for message in messages) + "\n\n"
        return list(tokenizer(text)["input_ids"])
    text = tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def decode(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    batch_size: int,
    samples: int = 1,
    temperature: float | None = None,
    top_p: float = 1.0,
    seed: int = 0,
    on_batch: Callable[[int], None] = lambda _: None,
) -> list[list[Output]]:
    """Complete every prompt ``samples`` times; greedily without a temperature.

    Args:
        model: a causal language model of transformers, in evaluation mode.
        tokenizer: its tokenizer.
        prompts: token ids, as from :func:`encode`.
        max_new_tokens: limit per completion.
        batch_size: rows decoded together (prompts times samples).
        samples: completions per prompt.
        temperature: softmax temperature, or None for greedy.
        top_p: nucleus of the distribution that is sampled from (Holtzman et al. 2020, arXiv:1904.09751).
        seed: of the sampling.
        on_batch: told how many prompts are done.

    Returns:
        One list of ``samples`` outputs per prompt, in the order of ``prompts``.
    """
    import torch

    generator = torch.Generator(device=model.device).manual_seed(seed)
    order = sorted(range(len(prompts)), key=lambda index: (len(prompts[index]), index))
    per_batch = max(1, batch_size // samples)
    results: list[list[Output]] = [[] for _ in prompts]
    for start in range(0, len(order), per_batch):
        chosen = order[start : start + per_batch]
        with torch.inference_mode():
            rows = _decode_batch(
                model,
                [prompts[index] for index in chosen],
                samples,
                max_new_tokens,
                _ends(model, tokenizer),
                lambda logits: _pick(logits, temperature, top_p, generator),
            )
        for position, index in enumerate(chosen):
            for ids, truncated in rows[position * samples : (position + 1) * samples]:
                text = tokenizer.decode(ids, skip_special_tokens=True)
                results[index].append(Output(text, tuple(ids), truncated))
        on_batch(start + len(chosen))
    return results


def _decode_batch(
    model: Any,
    prompts: list[Sequence[int]],
    samples: int,
    limit: int,
    ends: frozenset[int],
    pick: Callable[[torch.Tensor], torch.Tensor],
) -> list[tuple[list[int], bool]]:
    """Return (ids, truncated) per row; a prompt's samples stand next to each other."""
    import torch

    longest = max(len(prompt) for prompt in prompts)
    device = model.device
    # Left padding: the last position of every row is the one that predicts.
    ids = torch.zeros((len(prompts), longest), dtype=torch.long, device=device)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt, device=device)
        mask[row, longest - len(prompt) :] = 1
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    out = model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True, logits_to_keep=1)
    cache, logits = out.past_key_values, out.logits[:, -1]
    if samples > 1:
        # The prompt was read once; only its cache is repeated.
        cache.batch_repeat_interleave(samples)
        logits, mask = logits.repeat_interleave(samples, 0), mask.repeat_interleave(samples, 0)
        positions = positions.repeat_interleave(samples, 0)
    written: list[list[int]] = [[] for _ in range(len(prompts) * samples)]
    finished = [False] * len(written)
    alive = list(range(len(written)))
    last = positions[:, -1:]
    for step in range(limit):
        token = pick(logits)
        for row, value in zip(alive, token.tolist(), strict=True):
            if finished[row]:
                continue
            if value in ends:
                finished[row] = True
            else:
                written[row].append(value)
        going = [place for place, row in enumerate(alive) if not finished[row]]
        if not going or step == limit - 1:
            break
        if len(going) < DROP_AT * len(alive):
            kept = torch.tensor(going, device=device)
            cache.batch_select_indices(kept)
            token, mask, last = token[kept], mask[kept], last[kept]
            alive = [alive[place] for place in going]
        mask = torch.cat([mask, mask.new_ones((len(alive), 1))], dim=1)
        last = last + 1
        out = model(
            input_ids=token[:, None], attention_mask=mask, position_ids=last, past_key_values=cache, use_cache=True
        )
        cache, logits = out.past_key_values, out.logits[:, -1]
    return [(ids, not done) for ids, done in zip(written, finished, strict=True)]


def _pick(logits: torch.Tensor, temperature: float | None, top_p: float, generator: torch.Generator) -> torch.Tensor:
    """Choose the next token of every row. ``logits``: [rows, vocabulary]; returns [rows]."""
    import torch

    if temperature is None:
        return logits.argmax(-1)
    probabilities = torch.softmax(logits.float() / temperature, -1)
    if top_p < 1:
        ranked, order = probabilities.sort(-1, descending=True)
        # Keep the smallest set that reaches top_p: drop what begins after it has been reached.
        ranked[ranked.cumsum(-1) - ranked >= top_p] = 0
        choice = torch.multinomial(ranked, 1, generator=generator)
        return order.gather(-1, choice).squeeze(-1)
    return torch.multinomial(probabilities, 1, generator=generator).squeeze(-1)


def _ends(model: Any, tokenizer: Any) -> frozenset[int]:
    """Return the ids that end an answer: the generation config's and the tokenizer's."""
    named = model.generation_config.eos_token_id
    ids = set(named if isinstance(named, list) else [named])
    ids.add(tokenizer.eos_token_id)
    return frozenset(id for id in ids if id is not None)
