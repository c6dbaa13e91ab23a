"""Every flaw operator, by family."""

from __future__ import annotations

from bench.flaws.families import data, design, files, human, judging, places, records, rows, shipping, training
from bench.flaws.operator import FAMILIES

_FILES = (data, design, rows, training, shipping, records, files, human, judging, places)
_EVERY = [operator for file in _FILES for operator in file.OPERATORS]
OPERATORS = tuple(sorted(_EVERY, key=lambda value: FAMILIES.index(value.family)))
