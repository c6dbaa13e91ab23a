"""Pairs of answers that people labelled, as items, to measure a judge."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, get_args

from specs.stages.artifacts import Item

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
    found: list[LabelledPair] = []
    for item in items:
        given = item.constraint
        label = given.get("label")
        if set(given) != set(KEYS) or label not in get_args(Label):
            raise ValueError(f"pair '{item.id}' has {sorted(given)} with label {label!r}; due are {', '.join(KEYS)}")
        side: Label = label  # pyright: ignore[reportAssignmentType]
        found.append(LabelledPair(item, str(given["reference"]), str(given["candidate"]), side))
    if not found:
        raise ValueError("there are no labelled pairs: a judge that is held against nothing shows nothing")
    return tuple(found)
