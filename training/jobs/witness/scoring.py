"""Score given tokens with a model: one pass without decoding, what prompts begin with read once.

Nothing here is shared with the jobs' own scoring but the padding of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from specs.digests import Contract
from specs.stages.witness import Score, ScoredRow
from training.engines.batched import common, padded
from training.jobs.job import Job

if TYPE_CHECKING:
    import torch

PLACES = 2048
"""Most rows times places whose logits are held at once, and of tokens of a pass with several rows."""
HEAD = 32
"""Tokens: texts that begin with as many alike, half of their own at least, are read together: their beginning once."""


class Text(NamedTuple):
    """Token ids, of which those from ``start`` on are scored, each after all before it."""

    ids: tuple[int, ...]
    start: int


class Stated(NamedTuple):
    """A log-probability that a row states: that of all scored tokens of some texts together."""

    value: float
    texts: tuple[Text, ...]


class Scoring(NamedTuple):
    """What one row scored, derived from granted inputs and parameters, and what it states."""

    row: int
    """Its place in the file of rows, from 0."""
    values: Mapping[str, Stated]
    differs: tuple[str, ...] = ()
    """What of the row beside its scores is not as it is due."""
    weights: str = "model"
    """The input whose weights scored it."""


ScoringOf = Callable[[Job[Any], str, Sequence[int]], list[Scoring]]
"""Given the witness's job, an output and places of its rows: what was scored for them. Raises NotAsked."""


def differing(row: Contract, due: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the fields of a row that have other values than those that are due."""
    return tuple(name for name, value in due.items() if getattr(row, name) != value)


def score(model: Any, output: str, scorings: Sequence[Scoring]) -> Iterator[ScoredRow]:
    """Yield how the model scores each row; raises ValueError for a text that does not fit in its context."""
    texts = [text for one in scorings for stated in one.values.values() for text in stated.texts]
    found = _log_probabilities(model, texts)
    for one in scorings:
        scores = {
            name: Score(
                stated=stated.value,
                read=round(math.fsum(found[text] for text in stated.texts), 6),
                tokens=sum(len(text.ids) - text.start for text in stated.texts),
            )
            for name, stated in one.values.items()
        }
        yield ScoredRow(output=output, row=one.row, differs=one.differs, scores=scores)


class _Context(NamedTuple):
    """What the model reads for some texts: all of their tokens but the last."""

    ids: tuple[int, ...]
    first: int
    """The first place after which a token is scored."""


def _log_probabilities(model: Any, texts: Sequence[Text]) -> dict[Text, float]:
    import torch

    by_ids: dict[tuple[int, ...], list[Text]] = {}
    for text in dict.fromkeys(texts):
        by_ids.setdefault(text.ids[:-1], []).append(text)
    limit = getattr(model.config, "max_position_embeddings", None)
    if limit is not None and (longest := max(map(len, by_ids), default=0)) > limit:
        raise ValueError(f"a text has {longest} tokens before its last, the model reads {limit}")
    found: dict[Text, float] = {}
    contexts = [_Context(ids, min(text.start for text in some) - 1) for ids, some in by_ids.items()]
    for chosen in _passes(contexts):
        for context, logs in zip(chosen, _logs(model, chosen), strict=True):
            for text in by_ids[context.ids]:
                due = torch.tensor(text.ids[text.start :], device=logs.device)
                own = logs[text.start - 1 - context.first :].gather(-1, due[:, None])
                found[text] = float(own.double().sum())
    return found


def _passes(contexts: Sequence[_Context]) -> Iterator[list[_Context]]:
    """Divide contexts into passes whose logits fit: those that begin alike together, the rest by their length."""
    groups: list[list[_Context]] = []
    for one in sorted(contexts):
        if groups and common(groups[-1][-1].ids, one.ids) >= max(HEAD, len(one.ids) // 2):
            groups[-1].append(one)
        else:
            groups.append([one])
    alone = [some[0] for some in groups if len(some) == 1]
    for group in (alone, *(some for some in groups if len(some) > 1)):
        some: list[_Context] = []
        for one in sorted(group, key=lambda one: (len(one.ids), one.ids)):
            grown = [*some, one]
            if some and len(grown) * (len(one.ids) - _shared(grown)) > PLACES:
                yield some
                some = []
            some.append(one)
        if some:
            yield some


def _shared(some: Sequence[_Context]) -> int:
    """Return how many tokens all contexts begin with, before the first place that is scored."""
    alike = min(common(*(one.ids for one in some)), min(one.first for one in some))
    return alike if len(some) > 1 and alike >= HEAD else 0


def _logs(model: Any, some: Sequence[_Context]) -> Iterator[torch.Tensor]:
    """Yield for each context the log-probabilities of all tokens after its places from ``first`` on."""
    import torch

    shared = _shared(some)
    ids, mask = padded([one.ids[shared:] for one in some], model.device)
    first, width = min(one.first for one in some) - shared, ids.shape[1]
    named: dict[str, Any] = {}
    with torch.inference_mode():
        if shared:
            start = torch.tensor([some[0].ids[:shared]], device=model.device)
            before = model(input_ids=start, use_cache=True, logits_to_keep=1).past_key_values
            before.batch_repeat_interleave(len(some))
            mask = torch.cat([mask.new_ones((len(some), shared)), mask], dim=1)
            named = {"past_key_values": before}
        kept = torch.arange(first, width, device=model.device)
        positions = torch.arange(shared, shared + width, device=model.device)[None].expand(len(some), -1)
        # Padded on the right: under a causal mask nothing before it is changed.
        logits = model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            use_cache=bool(shared),
            logits_to_keep=kept,
            **named,
        ).logits
    # Only one row is held in float32 at once: logits are as wide as the vocabulary.
    for place, one in enumerate(some):
        yield torch.log_softmax(logits[place, one.first - shared - first : len(one.ids) - shared - first].float(), -1)
