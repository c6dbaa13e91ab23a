"""Score given tokens with a model: one pass without decoding."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from specs.stages.base.witness import Score, ScoredRow
from specs.system.digests import Contract
from training.jobs.job import Job
from training.jobs.witness.passes import Context, read_through


class ScoredSpan(NamedTuple):
    """Token ids, of which those from ``start`` on are scored, each after all before it."""

    ids: tuple[int, ...]
    start: int


class StatedLogprob(NamedTuple):
    """A log-probability that a row states: that of all scored tokens of some texts together."""

    value: float
    texts: tuple[ScoredSpan, ...]


class Scoring(NamedTuple):
    """What one row scored, derived from granted inputs and parameters, and what it states."""

    row: int
    """Its place in the file of rows, from 0."""
    values: Mapping[str, StatedLogprob]
    differs: tuple[str, ...] = ()
    """What of the row next to its scores is not as it is due."""
    weights: str = "model"
    """The input whose weights scored it."""


ScoringOf = Callable[[Job[Any], str, Sequence[int]], list[Scoring]]
"""Given the witness's job, an output and places of its rows: what was scored for them. Raises NotAsked."""


def differing(row: Contract, pending: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the fields of a row that differ from the expected values."""
    return tuple(name for name, value in pending.items() if getattr(row, name) != value)


def score(model: Any, output: str, scorings: Sequence[Scoring]) -> Iterator[ScoredRow]:
    """Yield how the model scores each row; raises ValueError for a text that does not fit in its context."""
    texts = [text for scoring in scorings for stated in scoring.values.values() for text in stated.texts]
    results = _log_probabilities(model, texts)
    for scoring in scorings:
        scores = {
            name: Score(
                stated=stated.value,
                read=round(math.fsum(results[text] for text in stated.texts), 6),
                tokens=sum(len(text.ids) - text.start for text in stated.texts),
            )
            for name, stated in scoring.values.items()
        }
        yield ScoredRow(output=output, row=scoring.row, differs=scoring.differs, scores=scores)


def _log_probabilities(model: Any, texts: Sequence[ScoredSpan]) -> dict[ScoredSpan, float]:
    import torch

    by_ids: dict[tuple[int, ...], list[ScoredSpan]] = {}
    for text in dict.fromkeys(texts):
        by_ids.setdefault(text.ids[:-1], []).append(text)
    limit = getattr(model.config, "max_position_embeddings", None)
    if limit is not None and (longest := max(map(len, by_ids), default=0)) > limit:
        raise ValueError(f"a text has {longest} tokens before its last, the model reads {limit}")
    results: dict[ScoredSpan, float] = {}
    # All tokens but the last are read.
    contexts = [Context(ids, min(text.start for text in spans) - 1) for ids, spans in by_ids.items()]
    for context, logits in read_through(model, contexts):
        # Only one row is held in float32 at once: logits are as wide as the vocabulary.
        logs = torch.log_softmax(logits.float(), -1)
        for text in by_ids[context.ids]:
            tensor = torch.tensor(text.ids[text.start :], device=logs.device)
            own = logs[text.start - 1 - context.first :].gather(-1, tensor[:, None])
            results[text] = float(own.double().sum())
    return results
