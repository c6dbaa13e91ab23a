"""Batched decoding that does not waste: prompts sorted by length, each read once, finished rows dropped.

Same inputs, seed and thread count give the same outputs. Not guaranteed: the same outputs for another batch size,
because padding changes the order of floating point sums; that is why arms must share it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from training.engines.stop_strings import Watch
from training.engines.token_sampling import Penalty, Sampling, pick

if TYPE_CHECKING:
    import torch

Finish = Literal["eos", "stop", "length"]
DROP_AT = 0.75
"""The batch is shrunk when less than this share of its rows is still being written."""


LEAST_SHARED = 16
"""Ids: a shorter beginning is read with every prompt."""


class Output(NamedTuple):
    """One completion: text, its token ids without the end token, and how it ended."""

    text: str
    """Without the stop string and what came after it."""
    ids: tuple[int, ...]
    """All that was written, the tokens of a stop string included."""
    truncated: bool
    """Whether it hit the limit."""
    finish: Finish
    stop: str | None
    """The stop string that ended it."""


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
        prompts: token ids.
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
    sampling = Sampling(max_new_tokens, temperature, top_p)
    return complete(
        model, tokenizer, prompts, sampling, batch_size=batch_size, samples=samples, seed=seed, on_batch=on_batch
    )


def complete(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[Sequence[int]],
    sampling: Sampling,
    *,
    batch_size: int,
    samples: int = 1,
    seed: int = 0,
    generator: torch.Generator | None = None,
    share: bool = False,
    on_batch: Callable[[int], None] = lambda _: None,
) -> list[list[Output]]:
    """Complete every prompt as :func:`decode` does, with stop strings and a repetition penalty as well.

    Args as there, and ``generator``: draws the samples instead of one that is made of the seed; ``share``: read the
    beginning that all prompts of a batch have in common once for all of them. Sums are then taken in another order, so
    that outputs can differ from those without it.

    Raises:
        ValueError: a stop string is empty.
    """
    import torch

    generator = generator or torch.Generator(device=model.device).manual_seed(seed)
    watch = Watch(tokenizer, sampling.stops, keep_special=sampling.keep_special)
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
                sampling,
                _ends(model, tokenizer),
                watch,
                generator,
                share,
            )
        for position, index in enumerate(chosen):
            for ids, finish in rows[position * samples : (position + 1) * samples]:
                results[index].append(output_of(ids, finish, watch))
        on_batch(start + len(chosen))
    return results


def output_of(ids: Sequence[int], finish: Finish, watch: Watch) -> Output:
    """Return an answer that has ended: its text without the stop string and what came after it."""
    found = watch.found_in(ids)
    text = watch.text_of(ids)
    if found is not None:
        return Output(text[: found.at], tuple(ids), False, "stop", found.stop)
    return Output(text, tuple(ids), finish == "length", finish, None)


def _decode_batch(
    model: Any,
    prompts: list[Sequence[int]],
    samples: int,
    sampling: Sampling,
    ends: frozenset[int],
    watch: Watch,
    generator: torch.Generator,
    share: bool,
) -> list[tuple[list[int], Finish]]:
    """Return (ids, how it ended) per row; a prompt's samples stand next to each other."""
    import torch

    limit = sampling.max_new_tokens
    common = shared_beginning(prompts) if share else 0
    cache, logits, mask, last = _read(model, prompts, samples, common)
    penalty = None
    if sampling.repetition_penalty != 1:
        penalty = Penalty(sampling.repetition_penalty, prompts, samples, logits)
    written: list[list[int]] = [[] for _ in range(len(prompts) * samples)]
    ended: list[Finish | None] = [None] * len(written)
    alive = list(range(len(written)))
    for step in range(limit):
        token = pick(penalty.on(logits) if penalty else logits, sampling.temperature, sampling.top_p, generator)
        for row, value in zip(alive, token.tolist(), strict=True):
            if ended[row] is not None:
                continue
            if value in ends:
                ended[row] = "eos"
                continue
            written[row].append(value)
            if watch.has_stopped(written[row]):
                ended[row] = "stop"
        going = [place for place, row in enumerate(alive) if ended[row] is None]
        if not going or step == limit - 1:
            break
        if penalty:
            penalty.add(token)
        if len(going) < DROP_AT * len(alive):
            kept = torch.tensor(going, device=model.device)
            cache.batch_select_indices(kept)
            token, mask, last = token[kept], mask[kept], last[kept]
            alive = [alive[place] for place in going]
            if penalty:
                penalty.keep(kept)
        mask = torch.cat([mask, mask.new_ones((len(alive), 1))], dim=1)
        last = last + 1
        out = model(
            input_ids=token[:, None], attention_mask=mask, position_ids=last, past_key_values=cache, use_cache=True
        )
        cache, logits = out.past_key_values, out.logits[:, -1]
    return [(ids, finish or "length") for ids, finish in zip(written, ended, strict=True)]


def shared_beginning(prompts: Sequence[Sequence[int]]) -> int:
    """Return how many ids all prompts begin with, when reading them once is worth it; every prompt keeps its last."""
    first, *others = prompts
    most = min(len(prompt) for prompt in prompts) - 1
    count = next((at for at in range(most) if any(other[at] != first[at] for other in others)), most)
    return count if others and count >= LEAST_SHARED else 0


def _read(
    model: Any, prompts: list[Sequence[int]], samples: int, common: int
) -> tuple[Any, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Read each prompt once; return cache, last logits, mask and last position for ``samples`` rows a prompt."""
    import torch

    cache = None
    if common:
        beginning = torch.tensor([prompts[0][:common]], device=model.device)
        cache = model(input_ids=beginning, use_cache=True, logits_to_keep=1).past_key_values
        cache.batch_repeat_interleave(len(prompts))
        prompts = [prompt[common:] for prompt in prompts]
    longest = max(len(prompt) for prompt in prompts)
    # Left padding: the last position of every row is the one that predicts.
    ids = torch.zeros((len(prompts), longest), dtype=torch.long, device=model.device)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, longest - len(prompt) :] = torch.tensor(prompt, device=model.device)
        mask[row, longest - len(prompt) :] = 1
    positions = common + (mask.cumsum(-1) - 1).clamp(min=0)
    mask = torch.cat([mask.new_ones((len(prompts), common)), mask], dim=1)
    out = model(
        input_ids=ids,
        attention_mask=mask,
        position_ids=positions,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    cache, logits = out.past_key_values, out.logits[:, -1]
    if samples > 1:
        # The prompt was read once; only its cache is repeated.
        cache.batch_repeat_interleave(samples)
        logits, mask = logits.repeat_interleave(samples, 0), mask.repeat_interleave(samples, 0)
        positions = positions.repeat_interleave(samples, 0)
    return cache, logits, mask, positions[:, -1:]


def _ends(model: Any, tokenizer: Any) -> frozenset[int]:
    """Return the ids that end an answer: the generation config's and the tokenizer's."""
    named = model.generation_config.eos_token_id
    ids = set(named if isinstance(named, list) else [named])
    ids.add(tokenizer.eos_token_id)
    return frozenset(id for id in ids if id is not None)
