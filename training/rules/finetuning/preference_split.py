"""The preference pairs to train on, and those to measure with."""

from __future__ import annotations

from typing import NamedTuple

from specs.stages.artifacts import Preference
from training.rules.seeded_order import drawn


class Split(NamedTuple):
    """Lines of the input file, by the side they are on."""

    train: tuple[int, ...]
    validation: tuple[int, ...]


def divide(pairs: list[Preference], share: float, seed: int) -> Split:
    """Keep whole groups out of training: those that the file marks, or else ``share`` of them, drawn by the seed.

    Raises ValueError if only some lines are marked, or a group is marked on both sides.
    """
    marked = {one.split is not None for one in pairs}
    if marked == {True, False}:
        raise ValueError("some pairs are marked as train or validation and some are not")
    if True in marked:
        kept = {one.group for one in pairs if one.split == "validation"}
        both = kept & {one.group for one in pairs if one.split == "train"}
        if both:
            raise ValueError(f"{len(both)} groups are on both sides, for example '{min(both)}'")
    else:
        kept = drawn((one.group for one in pairs), share, seed)
    places = range(len(pairs))
    return Split(
        tuple(place for place in places if pairs[place].group not in kept),
        tuple(place for place in places if pairs[place].group in kept),
    )
