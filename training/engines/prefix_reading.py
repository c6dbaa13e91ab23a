"""Last logits of many prompts that begin alike; each common beginning is read once.

Prompts are laid out as a tree of tokens in one row: a common beginning is there once, and a mask lets each token attend
to the tokens before it in its prompt only (tree attention: Miao et al. 2023, arXiv:2305.09781). Nothing is padded.
Models that do not support this read padded rows.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from training.engines.batched import common, pad_rows
from training.engines.checkpoint import apart, device_of, most_difference

PASS_TOKENS = 512
"""Most tokens of a pass with several prompts: attention over a tree grows with their square."""
_APART: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


class PromptTree(NamedTuple):
    """Prompts laid out in one row; the root is in the cache."""

    ids: list[int]
    depths: list[int]
    """How many tokens of its prompt precede each token, not counting the cache."""
    ends: list[int]
    """For each prompt the place of its last token."""
    paths: list[tuple[int, list[int]]]
    """For each prompt how many tokens it shares with its predecessor, and the places of all its tokens."""


def build_prompt_tree(prompts: Sequence[Sequence[int]]) -> PromptTree:
    """Return the tree of prompts that are in lexicographic order and not empty."""
    ids: list[int] = []
    depths: list[int] = []
    paths: list[tuple[int, list[int]]] = []
    before: Sequence[int] = ()
    path: list[int] = []
    for prompt in prompts:
        # In lexicographic order no earlier prompt shares more than its predecessor.
        alike = common(before, prompt)
        path = [*path[:alike], *range(len(ids), len(ids) + len(prompt) - alike)]
        ids.extend(prompt[alike:])
        depths.extend(range(alike, len(prompt)))
        paths.append((alike, path))
        before = prompt
    return PromptTree(ids, depths, [path[-1] for _, path in paths], paths)


def passes(prompts: Sequence[Sequence[int]], most: int) -> list[list[int]]:
    """Divide prompts into passes of at most ``most``; return their numbers, in lexicographic order of the prompts.

    A pass with several prompts has at most :data:`PASS_TOKENS` tokens, those of the cache not counted.
    """
    order = sorted(range(len(prompts)), key=lambda number: (prompts[number], number))
    counts: list[list[int]] = []
    tokens = 0
    for number in order:
        prompt = prompts[number]
        new = len(prompt) - common(prompts[counts[-1][-1]], prompt) if counts else 0
        if not counts or len(counts[-1]) == most or tokens + new > PASS_TOKENS:
            counts.append([])
            tokens, new = 0, len(prompt)
        counts[-1].append(number)
        tokens += new
    return counts


def last_logits(model: Any, prompts: Sequence[Sequence[int]], shared: int, before: Any, tree: bool) -> Any:
    """Return the logits after each prompt, in float32: prompts by vocabulary.

    ``prompts`` are in lexicographic order, without the ``shared`` tokens in the one-row cache ``before``, which stays
    unchanged. ``tree``: lay them out as a tree, else in padded rows.
    """
    return _as_tree(model, prompts, shared, before) if tree else _in_rows(model, prompts, shared, before)


def keeps_apart(model: Any, longest: int) -> bool:
    """Return whether the model can read prompts of up to so many tokens as a tree; it is probed once.

    Three prompts are read both ways: a model that ignores mask or positions gives other logits, and a model that
    takes no such mask raises. A sliding window is not in the mask, so it must be longer than every prompt.
    """
    config = model.config.get_text_config()
    windows = (getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size"))
    if any(window is not None and longest > window for window in windows):
        return False
    if model not in _APART:
        _APART[model] = _supports_tree_attention(model, config.vocab_size)
    return _APART[model]


def _supports_tree_attention(model: Any, vocabulary: int) -> bool:
    import torch

    ids = [(7 * n + 3) % vocabulary for n in range(12)]
    start, tails = ids[:4], sorted((ids[4:8], [*ids[4:6], *ids[9:11]], ids[8:12]))
    with torch.inference_mode():
        rows = torch.tensor([start + tail for tail in tails], device=model.device)
        try:
            alone = model(input_ids=rows, use_cache=False).logits[:, -1].float()
            before = model(input_ids=rows[:1, : len(start)], use_cache=True, logits_to_keep=1).past_key_values
            together = _as_tree(model, tails, len(start), before)
        # Whatever a model has against it: it is read in rows then.
        except Exception:
            return False
        return apart(alone, together) <= most_difference(device_of(model)[1])


def _as_tree(model: Any, prompts: Sequence[Sequence[int]], shared: int, before: Any) -> Any:
    import torch

    tree = build_prompt_tree(prompts)
    device, count = model.device, len(tree.ids)
    hidden = torch.finfo(model.dtype).min
    mask = torch.full((count, shared + count), hidden, dtype=model.dtype)
    mask[:, :shared] = 0
    for alike, path in tree.paths:
        own = torch.tensor(path)
        seen_tensor = torch.full((len(path) - alike, len(path)), hidden, dtype=model.dtype).triu(alike + 1)
        mask[own[alike:, None], shared + own[None]] = seen_tensor
    named = {} if before is None else {"past_key_values": copy.deepcopy(before)}
    out = model(
        input_ids=torch.tensor([tree.ids], device=device),
        attention_mask=mask[None, None].to(device),
        position_ids=shared + torch.tensor([tree.depths], device=device),
        use_cache=before is not None,
        # Logits are as wide as the vocabulary: only the places where some prompt ends are computed.
        logits_to_keep=torch.tensor(tree.ends, device=device),
        **named,
    )
    return out.logits[0].float()


def _in_rows(model: Any, prompts: Sequence[Sequence[int]], shared: int, before: Any) -> Any:
    import torch

    device = model.device
    ids, mask = pad_rows(prompts, device)
    mask = torch.cat([mask.new_ones((len(prompts), shared)), mask], dim=1)
    ends = torch.tensor([len(prompt) - 1 for prompt in prompts], device=device)
    places, which = ends.unique(return_inverse=True)
    named: dict[str, Any] = {}
    if before is not None:
        repeated = copy.deepcopy(before)
        repeated.batch_repeat_interleave(len(prompts))
        named["past_key_values"] = repeated
    positions = torch.arange(shared, mask.shape[1], device=device)[None].expand(len(prompts), -1)
    out = model(
        input_ids=ids, attention_mask=mask, position_ids=positions,
        use_cache=before is not None, logits_to_keep=places, **named,
    )  # fmt: skip
    return out.logits[torch.arange(len(prompts), device=device), which].float()
