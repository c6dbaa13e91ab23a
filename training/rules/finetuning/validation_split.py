"""The examples or pairs to train on, and those to measure with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from specs.stages.base.artifacts import Example, Preference
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
            raise ValueError(f"{len(both)} groups are on both sides, for example '{min(both)}'")
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
