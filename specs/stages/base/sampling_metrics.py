"""Rates that can break off a stage which samples (``parameters.quality``), where no older metric counts the same."""

from __future__ import annotations

from operator import attrgetter
from typing import Literal

from specs.stages.base.metric import Population, RowMetric, rate

SAMPLED = "sampled"
"""What the rates are over: the rows that were sampled, by what is wrong with them."""
Counts = Literal["empty", "runaway", "leaked", "repeated"]
"""What of a sampled row a rate counts (``training/rules/sampling_quality.py``)."""
_NAMES: dict[Counts, str] = {"empty": "empty", "runaway": "runaway", "leaked": "leak", "repeated": "repeat"}
_TOLD: dict[Counts, str] = {
    "empty": "without a visible character",
    "runaway": "with a mark of another turn, or of more than 500 characters",
    "leaked": "with a stop string of the stage (of sample_responses, where it has none) no one asked for, or the "
    "beginning of one",
    "repeated": "whose words (case, marks and white space ignored) are those of an earlier one",
}


def rates(prefix: str, population: str, rows: str, **parts: str) -> tuple[RowMetric, ...]:
    """Return the rates of a kind over sampled rows; their ids begin with ``prefix``, and ``rows`` says what a row is.

    ``told`` says, by what a rate counts (:data:`Counts`), which rows those are; empty for the usual words.
    """
    over = Population(population, output=SAMPLED)
    return tuple(
        rate(
            f"{prefix}_{_NAMES[what]}_rate",
            f"{rows} {parts[what] or words}",
            attrgetter(what),
            "lower",
            over=over,
            of=rows,
        )
        for what, words in _TOLD.items()
        if what in parts
    )


def describe_revision_fault(what: Counts) -> str:
    """Return what is wrong with a revision, in words."""
    return f"with a revision {_TOLD[what]}"
