"""The examples or pairs to train on, those to measure with, and the rule that ends a training by what they say.

The order of the decision is that of transformers' ``EarlyStoppingCallback`` with ``load_best_model_at_end``: the best
reading is the first that no other is better than, whatever ``min_improvement``, which only resets the patience.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from specs.stages.base.artifacts import Example, Preference
from specs.stages.finetuning.parameters import ExampleStopping, PairStopping, StopRule
from specs.stages.finetuning.rows import PairReading, ValidationRow
from specs.system.text import plural
from training.rules.seeded_order import draw_share

FIFTHS = 5
"""Parts of a training: the kept examples are read before it and after each."""


class ValidationSplit(NamedTuple):
    """Lines of the input file, by the side they are on."""

    train: tuple[int, ...]
    validation: tuple[int, ...]


def divide(pairs: list[Preference], share: float, seed: int) -> ValidationSplit:
    """Keep whole groups out of training: the groups that the file marks, or else ``share`` of them, drawn by the seed.

    Raises ValueError if only some lines are marked, or a group is marked on both sides.
    """
    marked = {preference.split is not None for preference in pairs}
    if marked == {True, False}:
        raise ValueError("some pairs are marked as train or validation and some are not")
    if True in marked:
        texts = {preference.group for preference in pairs if preference.split == "validation"}
        both = texts & {preference.group for preference in pairs if preference.split == "train"}
        if both:
            raise ValueError(f"{plural(len(both), 'group is', 'groups are')} on both sides, for example '{min(both)}'")
    else:
        texts = draw_share((preference.group for preference in pairs), share, seed)
    return _apart([preference.group for preference in pairs], texts)


def divide_examples(examples: Sequence[Example], share: float, seed: int) -> ValidationSplit:
    """Keep a share of the groups out of training, drawn by the seed; none of a share of 0, or of a single group."""
    groups = [example.group for example in examples]
    return _apart(groups, draw_share(groups, share, seed))


def measured_after(steps: int, every: int | None = None) -> tuple[int, ...]:
    """Return after which of so many steps what is kept out is read: each fifth, or ``every`` so many; 0: before all."""
    if every is not None:
        return (*range(0, steps, every), steps)
    return tuple(sorted({steps * part // FIFTHS for part in range(FIFTHS + 1)}))


def _apart(groups: Sequence[str], texts: set[str]) -> ValidationSplit:
    places = range(len(groups))
    return ValidationSplit(
        tuple(place for place in places if groups[place] not in texts),
        tuple(place for place in places if groups[place] in texts),
    )


Reading = TypeVar("Reading", ValidationRow, PairReading)


class StopDecision(NamedTuple):
    """What a rule says of the readings so far."""

    best: int | None
    """The step whose weights are saved; None before the first reading after a step."""
    last: int | None
    """The step after which the training ends; None where it goes on to the last planned step."""


def decide_stop(values: Mapping[int, float], rule: StopRule) -> StopDecision:
    """Return what a rule says of the values of its metric, by step; step 0 cannot be the best."""
    sign = -1.0 if rule.metric == "validation_loss" else 1.0
    best, most, waited = None, -math.inf, 0
    for step, value in sorted(values.items()):
        if step == 0:
            continue
        score = sign * value
        waited = 0 if best is None or score - most > rule.min_improvement else waited + 1
        if best is None or score > most:
            best, most = step, score
        if waited >= rule.patience:
            return StopDecision(best, step)
    return StopDecision(best, None)


def by_step(rows: Sequence[Reading]) -> dict[int, list[Reading]]:
    """Return the rows of each step, in order."""
    readings: dict[int, list[Reading]] = {}
    for row in rows:
        readings.setdefault(row.step, []).append(row)
    return dict(sorted(readings.items()))


def loss_of(rows: Sequence[ValidationRow]) -> float:
    """Return the loss over rows, in nats per token of the responses; infinite where no response has a token."""
    tokens = sum(row.tokens for row in rows)
    return -math.fsum(row.log_probability for row in rows) / tokens if tokens else math.inf


def example_values(rows: Sequence[ValidationRow], rule: ExampleStopping) -> dict[int, float]:
    """Return the value of a rule's metric at each step that examples were read after."""
    if rule.metric == "validation_loss":
        return {step: loss_of(step_rows) for step, step_rows in by_step(rows).items()}
    return {
        step: sum(row.correct for row in step_rows) / max(1, sum(row.tokens for row in step_rows))
        for step, step_rows in by_step(rows).items()
    }


def pair_values(rows: Sequence[PairReading], rule: PairStopping) -> dict[int, float]:
    """Return the value of a rule's metric at each step that pairs were read after, compared with step 0.

    Raises:
        ValueError: a pair was not read before the first step.
    """
    before = {row.pair: row.chosen - row.rejected for row in rows if row.step == 0}
    if missing := [row.pair for row in rows if row.pair not in before]:
        raise ValueError(f"pair {missing[0]} was not read before the first step")
    values: dict[int, float] = {}
    for step, step_rows in by_step(rows).items():
        gains = [row.chosen - row.rejected - before[row.pair] for row in step_rows]
        if rule.metric == "validation_accuracy":
            gains = [float(gain > 0) for gain in gains]
        values[step] = math.fsum(gains) / len(gains)
    return values
