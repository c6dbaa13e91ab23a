"""Passes of a model over given tokens, without decoding: what texts begin with is read once, the head only where asked.

Nothing here is shared with the jobs' own engines but the padding of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from training.engines.batched import common, pad_rows

if TYPE_CHECKING:
    import torch

TOKENS = 2048
"""Most tokens of a pass with several texts, and thereby most places whose logits are held at once."""
PASS = 32
"""Tokens that take as long as what a pass does before it reads any."""
HEAD = 16
"""Tokens: texts of a pass that begin with as many alike are read together, their beginning once."""


class Context(NamedTuple):
    """Token ids that a model reads."""

    ids: tuple[int, ...]
    first: int
    """The first place whose logits are wanted; those of all places after it are too."""


def read_through(model: Any, contexts: Sequence[Context]) -> Iterator[tuple[Context, torch.Tensor]]:
    """Yield each context with its logits from ``first`` on, [places, vocabulary], in the order they are read in.

    What another context begins with, such as a critique and the revision that follows it, is read with that one.
    """
    parts = _join_beginnings(contexts)
    for batch in _passes(list(parts)):
        for context, logits in zip(batch, _logits(model, batch), strict=True):
            for part in parts[context]:
                yield part, logits[part.first - context.first : len(part.ids) - context.first]


def _join_beginnings(contexts: Sequence[Context]) -> dict[Context, list[Context]]:
    """Return what is read, and of each which contexts it holds."""
    groups: list[list[Context]] = []
    # In this order what a context begins with follows it, and all between begin so too.
    for context in sorted(contexts, reverse=True):
        if groups and groups[-1][0].ids[: len(context.ids)] == context.ids:
            groups[-1].append(context)
        else:
            groups.append([context])
    return {Context(group[0].ids, min(context.first for context in group)): group for group in groups}


def _passes(contexts: Sequence[Context]) -> Iterator[list[Context]]:
    """Divide contexts into passes: those of which half begins alike together, the rest by their length."""
    groups: list[list[Context]] = []
    for context in sorted(contexts):
        if groups and common(groups[-1][-1].ids, context.ids) >= max(HEAD, len(context.ids) // 2):
            groups[-1].append(context)
        else:
            groups.append([context])
    alone = [members[0] for members in groups if len(members) == 1]
    for group in (alone, *(members for members in groups if len(members) > 1)):
        batch: list[Context] = []
        for context in sorted(group, key=lambda context: (len(context.ids), context.ids)):
            grown = [*batch, context]
            shared = _count_shared_tokens(grown)
            # A longer text pads all before it; another pass reads their common beginning again.
            padding = len(batch) * (len(context.ids) - len(batch[-1].ids)) if batch else 0
            if batch and (padding > shared + PASS or len(grown) * (len(context.ids) - shared) > TOKENS):
                yield batch
                batch = []
            batch.append(context)
        if batch:
            yield batch


def _count_shared_tokens(contexts: Sequence[Context]) -> int:
    """Return how many tokens all contexts begin with, before the first place whose logits are wanted."""
    alike = min(common(*(context.ids for context in contexts)), min(context.first for context in contexts))
    return alike if len(contexts) > 1 and alike >= HEAD else 0


def _logits(model: Any, contexts: Sequence[Context]) -> Iterator[torch.Tensor]:
    import torch

    shared = _count_shared_tokens(contexts)
    before = _read_once(model, contexts[0].ids[:shared]) if shared else None
    shared = shared if before is not None else 0
    ids, mask = pad_rows([context.ids[shared:] for context in contexts], model.device)
    first, width = min(context.first for context in contexts) - shared, ids.shape[1]
    named: dict[str, Any] = {}
    if before is not None:
        before.batch_repeat_interleave(len(contexts))
        mask = torch.cat([mask.new_ones((len(contexts), shared)), mask], dim=1)
        named = {"past_key_values": before}
    with torch.inference_mode():
        tensor = torch.arange(first, width, device=model.device)
        positions = torch.arange(shared, shared + width, device=model.device)[None].expand(len(contexts), -1)
        # Padded on the right: under a causal mask nothing before it is changed.
        logits = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            use_cache=bool(shared),
            logits_to_keep=tensor,
            **named,
        ).logits
    for place, context in enumerate(contexts):
        yield logits[place, context.first - shared - first : len(context.ids) - shared - first]


def _read_once(model: Any, ids: Sequence[int]) -> Any:
    """Return the cache of these tokens; None where it holds a state next to them, which serves no other texts."""
    import torch
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

    with torch.inference_mode():
        out = model(input_ids=torch.tensor([ids], device=model.device), use_cache=True, logits_to_keep=1)
    cache = getattr(out, "past_key_values", None)
    layers = getattr(cache, "layers", None) or [None]
    return cache if all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in layers) else None
