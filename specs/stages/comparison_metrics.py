"""Metrics of the registered comparison and of what the analysis asks of kinds and controls."""

from __future__ import annotations

from specs.stages.metric import MetricDefinition, defined

_KINDS = "kinds of the held-out items"

_PRIMARY = "held-out items of analysis.kinds.primary, answered by both arms"

_CONTROLLED = "held-out conversations held by both arms, with their history and under every registered control"


_PAIRS = "held-out items answered by both arms"
_CONSTRAINTS = "constraint kinds of the held-out items"

COMPARED_METRICS: tuple[MetricDefinition, ...] = (
    defined(
        "accuracy_gain",
        "comparison",
        "fraction",
        _PAIRS,
        "treatment accuracy - baseline accuracy (positive = treatment better)",
        "higher",
    ),
    defined(
        "mcnemar_p",
        "comparison",
        "probability",
        _PAIRS,
        "exact two-sided McNemar p on the discordant pairs",
        "lower",
    ),
    defined("gained", "comparison", "items", _PAIRS, "baseline wrong, treatment right", "higher"),
    defined("lost", "comparison", "items", _PAIRS, "baseline right, treatment wrong", "lower"),
    defined(
        "cohens_h",
        "comparison",
        "radians",
        _PAIRS,
        "2 asin(sqrt(p_treatment)) - 2 asin(sqrt(p_baseline))",
        "higher",
    ),
    defined(
        "kinds_gained",
        "comparison",
        "kinds",
        _CONSTRAINTS,
        "kinds with a gain: exact McNemar p of the kind, adjusted over the kinds (Benjamini-Hochberg), below alpha",
        "higher",
    ),
    defined(
        "kinds_lost",
        "comparison",
        "kinds",
        _CONSTRAINTS,
        "kinds that got worse: exact McNemar p of the kind, adjusted over the kinds (Benjamini-Hochberg), below alpha",
        "lower",
    ),
    defined(
        "primary_kind_gain",
        "rule",
        "difference",
        _PRIMARY,
        "share the treatment has right - share the baseline has right",
        "higher",
    ),
    defined(
        "primary_kind_p",
        "rule",
        "probability",
        _PRIMARY,
        "exact two-sided McNemar p of the kind, adjusted over all kinds (Benjamini-Hochberg)",
        "lower",
    ),
    defined(
        "kinds_risen",
        "rule",
        "kinds",
        _KINDS,
        "kinds that gained more than they lost, with a p so adjusted below analysis.kinds.false_discovery",
        "higher",
    ),
    defined(
        "kinds_kept",
        "rule",
        "kinds",
        _KINDS,
        "kinds whose gain has a 95 % interval (Bonett and Price) that begins above -analysis.kinds.margin",
        "higher",
    ),
    defined(
        "control_excess",
        "rule",
        "difference",
        _CONTROLLED,
        "gain of the arms - gain of the same models under the control (resampled 95 % interval); the least of all "
        "controls",
        "higher",
    ),
    defined(
        "control_excess_p",
        "rule",
        "probability",
        _CONTROLLED,
        "exact sign test: conversations that changed for the better with their history than under the control, against "
        "those that did for the worse; the largest of all controls",
        "lower",
    ),
)
