"""The form of a metric's definition. Definitions stand in ``specs/metrics.py``, those of an area in its own file."""

from __future__ import annotations

from typing import Literal

from specs.digests import Contract

Scope = Literal[
    "guard",
    "instruct",
    "respond",
    "critique_instructions",
    "critique_responses",
    "revise",
    "prefer",
    "prefer_verified",
    "generate",
    "evaluate",
    "perplexity",
    "choose",
    "compare",
    "converse",
    "sft",
    "dpo",
    "package",
    "recipe",
    "comparison",
    "rule",
]
"""The stage kind whose raw rows hold the population; ``comparison`` pairs the two arms of the analysis, and ``rule``
belongs to what the analysis registers of kinds and controls, which also judges it.

No metric is measured by recipes: what builder's code computes is a claim."""


class MetricDefinition(Contract):
    """What a metric id means; ``direction`` says which way is better (``none`` for descriptions)."""

    id: str
    scope: Scope
    unit: str
    population: str
    definition: str
    direction: Literal["higher", "lower", "none"]


def defined(
    id: str, scope: Scope, unit: str, population: str, definition: str, direction: Literal["higher", "lower", "none"]
) -> MetricDefinition:
    """Return a definition; its parts in the order of a line of the table in docs/writing-specs.md."""
    return MetricDefinition(
        id=id, scope=scope, unit=unit, population=population, definition=definition, direction=direction
    )
