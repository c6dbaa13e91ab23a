"""Rates that can break off a stage which samples (``parameters.quality``), where no older metric counts the same."""

from __future__ import annotations

from specs.stages.metric import MetricDefinition, Scope
from specs.stages.metric import defined as _m

_CALLS = "all calls, probes left out"
_EMPTY = "without a visible character"
_RUNAWAY = "with a mark of another turn, or of more than 500 characters"
_LEAKED = (
    "with a stop string of the stage (of sample_responses, where it has none) nobody asked for, or the beginning of one"
)
_REPEATED = "whose words (case, marks and white space ignored) are those of an earlier one"


def _rates(prefix: str, scope: Scope, population: str, rows: str, *counted: tuple[str, str]) -> list[MetricDefinition]:
    return [
        _m(f"{prefix}_{name}_rate", scope, "fraction", population, f"{rows} {what} / {rows}", "lower")
        for name, what in counted
    ]


_ALL = (("empty", _EMPTY), ("runaway", _RUNAWAY), ("leak", _LEAKED), ("repeat", _REPEATED))
SAMPLED_METRICS: tuple[MetricDefinition, ...] = (
    *_rates("generate", "generate", "all sampled completions of the attempt", "completions", *_ALL),
    *_rates("instruct", "self_instruct", _CALLS, "calls", ("leak", _LEAKED), ("repeat", _REPEATED)),
    *_rates(
        "response",
        "sample_responses",
        "all answers, after cleaning and before any is dropped",
        "answers",
        ("empty", _EMPTY),
        ("repeat", _REPEATED),
    ),
    *_rates(
        "revision",
        "revise",
        "all chains of critique and revision, one for each example",
        "chains",
        ("empty", "with a critique or revision without a visible character"),
        ("runaway", f"with a revision {_RUNAWAY}"),
        ("leak", f"with a revision {_LEAKED}"),
        ("repeat", "whose last revision has the words (case, marks and white space ignored) of an earlier one"),
    ),
    *_rates("candidate", "best_of_n", "all sampled responses", "responses", *_ALL),
)
