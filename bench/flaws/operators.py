"""Every flaw operator, by family and by set."""

from __future__ import annotations

from bench.flaws.families import (
    arms,
    data,
    design,
    files,
    further_arms,
    human,
    judging,
    places,
    records,
    rows,
    sealed,
    several,
    shipping,
    texts,
    training,
    transfer,
    unseen,
)
from bench.flaws.operator import FAMILIES

_FIRST = (data, design, further_arms, transfer, several, rows, training, shipping, records, files, human, places)
_SECOND = (arms, texts, judging)
SETS = {
    name: tuple(operator for file in files for operator in file.OPERATORS)
    for name, files in (("first", _FIRST), ("second", _SECOND), ("third", (sealed,)), ("sealed", (unseen,)))
}
"""The operators by when they were written: see the head of the page of figures."""
_EVERY = [operator for operators in SETS.values() for operator in operators]
OPERATORS = tuple(sorted(_EVERY, key=lambda value: FAMILIES.index(value.family)))
