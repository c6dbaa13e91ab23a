"""Rates that can break off a stage which samples (``parameters.quality``), where no older metric counts the same."""

from __future__ import annotations

from typing import Literal

from specs.stages.metric import MetricDefinition, Scope

Counts = Literal["empty", "runaway", "leaked", "repeated"]
"""What of a sampled row a rate counts (``training/rules/sampling_quality.py``)."""


class SampledMetric(MetricDefinition):
    """The share of the sampled rows with something wrong; value and traced lines follow from ``counts``."""

    counts: Counts


_NAMES: dict[Counts, str] = {"empty": "empty", "runaway": "runaway", "leaked": "leak", "repeated": "repeat"}
_CALLS = "all calls, probes left out"
_EMPTY = "without a visible character"
_RUNAWAY = "with a mark of another turn, or of more than 500 characters"
_LEAKED = (
    "with a stop string of the stage (of sample_responses, where it has none) nobody asked for, or the beginning of one"
)
_REPEATED = "whose words (case, marks and white space ignored) are those of an earlier one"


def _rates(prefix: str, scope: Scope, population: str, rows: str, *counted: tuple[Counts, str]) -> list[SampledMetric]:
    return [
        SampledMetric(
            id=f"{prefix}_{_NAMES[counts]}_rate",
            scope=scope,
            unit="fraction",
            population=population,
            definition=f"{rows} {what} / {rows}",
            direction="lower",
            counts=counts,
        )
        for counts, what in counted
    ]


_ALL: tuple[tuple[Counts, str], ...] = (
    ("empty", _EMPTY),
    ("runaway", _RUNAWAY),
    ("leaked", _LEAKED),
    ("repeated", _REPEATED),
)
SAMPLED_METRICS: tuple[SampledMetric, ...] = (
    *_rates("generate", "generate", "all sampled completions of the attempt", "completions", *_ALL),
    *_rates("instruct", "self_instruct", _CALLS, "calls", ("leaked", _LEAKED), ("repeated", _REPEATED)),
    *_rates(
        "response",
        "sample_responses",
        "all answers, after cleaning and before any is dropped",
        "answers",
        ("empty", _EMPTY),
        ("repeated", _REPEATED),
    ),
    *_rates(
        "revision",
        "revise",
        "all chains of critique and revision, one for each example",
        "chains",
        ("empty", "with a critique or revision without a visible character"),
        ("runaway", f"with a revision {_RUNAWAY}"),
        ("leaked", f"with a revision {_LEAKED}"),
        ("repeated", "whose last revision has the words (case, marks and white space ignored) of an earlier one"),
    ),
    *_rates("candidate", "best_of_n", "all sampled responses", "responses", *_ALL),
)
