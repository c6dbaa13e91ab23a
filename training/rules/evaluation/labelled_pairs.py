"""Pairs of answers that people labelled, as items, to measure a judge."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, get_args

from specs.stages.base.artifacts import Item

Label = Literal["reference", "candidate", "tie"]
KEYS = ("reference", "candidate", "label")


class LabelledPair(NamedTuple):
    """Two answers to one item, and which of them a person prefers."""

    item: Item
    reference: str
    candidate: str
    label: Label


def labelled_pairs(items: Iterable[Item]) -> tuple[LabelledPair, ...]:
    """Return pairs whose constraint has just ``reference``, ``candidate``, ``label``; raises ValueError without any."""
    pairs: list[LabelledPair] = []
    for item in items:
        constraint = item.constraint
        label = constraint.get("label")
        if set(constraint) != set(KEYS) or label not in get_args(Label):
            raise ValueError(
                f"pair '{item.id}' has {sorted(constraint)} with label {label!r}, expected {', '.join(KEYS)}"
            )
        side: Label = label  # pyright: ignore[reportAssignmentType]
        pairs.append(LabelledPair(item, str(constraint["reference"]), str(constraint["candidate"]), side))
    if not pairs:
        raise ValueError("no labelled pairs: the judge cannot be calibrated")
    return tuple(pairs)
