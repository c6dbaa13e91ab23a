"""Metrics of packaged checkpoints."""

from __future__ import annotations

from specs.stages.row_metric import Over, count, metric, rate

_PROBES = Over("the items re-generated from the packaged model")

PACKAGING_METRICS = (
    rate(
        "identical_outputs",
        "outputs equal, token for token, to the checkpoint's",
        lambda row: row.expected == row.reloaded,
        over=_PROBES,
        of="items",
        better="higher",
    ),
    metric("probes", unit="items", over=_PROBES, value=count),
)
