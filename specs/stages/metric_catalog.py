"""The metrics Peergate can measure, each with a unit, a population and a definition, by id.

A criterion names an id, so that two numbers with one name never meet in a gate.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping
from typing import Literal

from specs.stages.base.metric import MetricDefinition, Scope
from specs.stages.registry import STAGE_KINDS

_Line = tuple[str, str, Literal["higher", "lower"], str]
"""Id, unit, direction and definition."""


def _over(scope: str, population: str, *lines: _Line) -> tuple[MetricDefinition, ...]:
    return tuple(
        MetricDefinition(id=id, scope=scope, unit=unit, population=population, definition=message, direction=direction)
        for id, unit, direction, message in lines
    )


TEST_NAMES = {"mcnemar_p": "exact McNemar", "sign_flip_p": "exact sign-flip"}
"""The tests of the registered comparison by the metric of their p."""

_ADJUSTED = "exact McNemar p of the kind, adjusted over the kinds (Benjamini-Hochberg), below alpha"

COMPARED_METRICS: tuple[MetricDefinition, ...] = (
    *_over(
        "comparison",
        "held-out items answered by both arms",
        ("accuracy_gain", "fraction", "higher", "treatment accuracy - baseline accuracy (positive = treatment better)"),
        ("mcnemar_p", "probability", "lower", "exact two-sided McNemar p on the discordant pairs"),
        ("gained", "items", "higher", "baseline wrong, treatment right; of several answers: more of them right"),
        ("lost", "items", "lower", "baseline right, treatment wrong; of several answers: fewer of them right"),
        ("cohens_h", "radians", "higher", "2 asin(sqrt(p_treatment)) - 2 asin(sqrt(p_baseline))"),
    ),
    *_over(
        "comparison",
        "constraint kinds of the held-out items",
        ("kinds_gained", "kinds", "higher", f"kinds with a gain: {_ADJUSTED}"),
        ("kinds_lost", "kinds", "lower", f"kinds that got worse: {_ADJUSTED}"),
    ),
    *_over(
        "rule",
        "held-out items of analysis.kinds.primary, answered by both arms",
        ("primary_kind_gain", "difference", "higher", "share the treatment has right - share the baseline has right"),
        (
            "primary_kind_p",
            "probability",
            "lower",
            "exact two-sided McNemar p of the kind, adjusted over all kinds (Benjamini-Hochberg)",
        ),
    ),
    *_over(
        "rule",
        "kinds of the held-out items",
        (
            "kinds_risen",
            "kinds",
            "higher",
            "kinds that gained more than they lost, with a p so adjusted below analysis.kinds.false_discovery",
        ),
        (
            "kinds_kept",
            "kinds",
            "higher",
            "kinds whose gain has a 95 % interval (Bonett and Price) that begins above -analysis.kinds.margin",
        ),
    ),
    *_over(
        "rule",
        "held-out items answered several times by both arms",
        (
            "sign_flip_p",
            "probability",
            "lower",
            "exact two-sided p of the sign-flip test over items: each item's share of right answers, treatment - baseline",
        ),
        (
            "gain_at_k",
            "difference",
            "higher",
            "accuracy_at_k of the treatment - accuracy_at_k of the baseline (interval over items)",
        ),
    ),
    *_over(
        "rule",
        "held-out conversations held by both arms, with their history and under every registered control",
        (
            "control_excess",
            "difference",
            "higher",
            "gain of the arms - gain of the same models under the control (resampled 95 % interval); the least of all "
            "controls",
        ),
        (
            "control_excess_p",
            "probability",
            "lower",
            "exact sign test: conversations that changed for the better with their history than under the control, "
            "against items that changed for the worse; the largest of all controls",
        ),
    ),
    *_over(
        "rule",
        "items of the transfer split answered by analysis.transfer's two stages",
        (
            "transfer_gain",
            "difference",
            "higher",
            "accuracy with the treatment's model - accuracy with the baseline's (positive = treatment better)",
        ),
        ("transfer_p", "probability", "lower", "p of the registered test on these items, not adjusted"),
    ),
    *_over(
        "rule",
        "held-out items answered by the treatment and by each arm that it must beat",
        (
            "arms_lead",
            "difference",
            "higher",
            "treatment accuracy - accuracy of the arm (positive = treatment better); the least of all arms to be beaten",
        ),
        (
            "arms_p",
            "probability",
            "lower",
            "exact two-sided McNemar p, treatment against arm, adjusted over all comparisons of all arms (Holm); the "
            "largest of all arms to be beaten",
        ),
    ),
)


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
