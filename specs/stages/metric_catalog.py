"""The metrics Peergate can measure, each with a unit, a population and a definition, by id.

A criterion names an id, so that two numbers with one name never meet in a gate.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping

from specs.stages.base.comparison_metrics import COMPARED_METRICS
from specs.stages.base.metric import MetricDefinition, Scope
from specs.stages.registry import STAGE_KINDS


class _Catalog(Mapping[str, MetricDefinition]):
    """The metrics of the comparison and of every kind that is known to this process."""

    def __getitem__(self, id: str) -> MetricDefinition:
        return self._every()[id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._every())

    def __len__(self) -> int:
        return len(self._every())

    def items(self) -> ItemsView[str, MetricDefinition]:
        """Return ids and metrics; the inherited way gathers all metrics anew for each of them."""
        return self._every().items()

    def _every(self) -> dict[str, MetricDefinition]:
        kinds = (metric for kind in STAGE_KINDS.values() for metric in kind.metrics)
        return {metric_definition.id: metric_definition for metric_definition in (*COMPARED_METRICS, *kinds)}


METRICS: Mapping[str, MetricDefinition] = _Catalog()


def metrics_of(scope: Scope) -> list[str]:
    """Return the ids measured for a stage kind (or for the comparison)."""
    return [id for id, definition in METRICS.items() if definition.scope == scope]
