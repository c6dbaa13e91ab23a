"""Metrics of packaged checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from statistics import fmean, median, pstdev
from typing import Any

from specs.stages.base.metric import Population, Value, count, metric, middle, rate, where

_PROBES = Population("the items re-generated from the packaged model")

PACKAGING_METRICS = (
    rate(
        "identical_outputs",
        "outputs equal, token for token, to the checkpoint's",
        lambda row: row.expected == row.reloaded,
        "higher",
        over=_PROBES,
        of="items",
    ),
    metric("probes", "items", count, over=_PROBES),
)

_READ = Population("the items that llama.cpp read")

EXPORT_METRICS = (
    rate(
        "same_token_ids",
        "texts that the exported tokenizer reads as the checkpoint's",
        lambda row: row.expected == row.read,
        "higher",
        over=Population("the texts that both tokenizers read", output="texts"),
        of="texts",
    ),
    rate(
        "same_greedy_tokens",
        "answers whose tokens llama.cpp finds most likely, every one",
        lambda row: row.expected == row.read,
        "higher",
        over=_READ,
        of="items",
    ),
    metric(
        "same_top_tokens",
        "fraction",
        Value(
            "tokens of the answers that llama.cpp finds most likely / tokens of the answers",
            lambda rows: Fraction(
                sum(value == other for row in rows for value, other in zip(row.expected, row.read, strict=True)),
                sum(len(row.expected) for row in rows),
            ),
        ),
        "higher",
        over=_READ,
    ),
    metric(
        "logit_distance",
        "logits",
        Value("the largest difference of two logits", lambda rows: max(row.largest for row in rows)),
        "lower",
        over=_READ,
    ),
    metric(
        "logit_divergence",
        "nats",
        Value(
            "divergence of the next token, averaged over the tokens of all answers",
            lambda rows: (
                sum(row.divergence * len(row.expected) for row in rows) / sum(len(row.expected) for row in rows)
            ),
        ),
        "lower",
        over=_READ,
    ),
    metric("export_probes", "items", count, over=_READ),
)
"""Only of an export that llama.cpp has read."""

_ENGINE = where("rounds of the engine", lambda row: row.run == "engine")
_PLAIN = where("plain rounds", lambda row: row.run == "plain")


def _of_rounds(rows: Sequence[Any], run: str) -> list[float]:
    return [row.rate for row in rows if row.run == run]


BENCH_METRICS = (
    metric("bench_rounds", "rounds", count, over=_ENGINE),
    metric(
        "tokens_per_second",
        "tokens a second",
        middle("median over the rounds", lambda row: row.rate),
        "higher",
        over=_ENGINE,
    ),
    metric(
        "plain_tokens_per_second",
        "tokens a second",
        middle("median over the rounds", lambda row: row.rate),
        over=_PLAIN,
    ),
    metric(
        "speed_ratio",
        "ratio",
        Value(
            "median rate of the engine / median rate of the plain run",
            lambda rows: median(_of_rounds(rows, "engine")) / median(_of_rounds(rows, "plain")),
        ),
        "higher",
        over=Population("all rounds"),
    ),
    metric(
        "speed_spread",
        "ratio",
        Value(
            "standard deviation of the rates / their mean, the larger one of engine and plain run",
            lambda rows: max(
                pstdev(values) / fmean(values) for values in (_of_rounds(rows, "engine"), _of_rounds(rows, "plain"))
            ),
        ),
        "lower",
        over=Population("all rounds"),
    ),
)
