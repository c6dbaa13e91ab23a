"""Metrics of packaged checkpoints."""

from __future__ import annotations

from specs.stages.row_metric import Over, count, metric, rate

_PROBES = Over("the items re-generated from the packaged model")

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
