"""Metrics of packaged checkpoints."""

from __future__ import annotations

from specs.stages.metric import MetricDefinition
from specs.stages.metric import defined as _m

_PROBES = "the items re-generated from the packaged model"

PACKAGING_METRICS: tuple[MetricDefinition, ...] = (
    _m(
        "identical_outputs",
        "package",
        "fraction",
        _PROBES,
        "outputs equal, token for token, to the checkpoint's / items",
        "higher",
    ),
    _m("probes", "package", "items", _PROBES, "number of rows", "none"),
)
