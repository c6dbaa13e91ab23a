"""Before any training: does the untrained model fail the task, and can a model do it?"""

from __future__ import annotations

from reviews.checks.definition import CheckOutcome, CheckRegistry
from reviews.evidence.evidence import Evidence
from specs.stages.base.metric import Metric, MetricSet
from specs.stages.registry import kind_of
from specs.system.errors import EvidenceMissing
from specs.system.exact import exact, holds

CHECKS = CheckRegistry(lambda kind: kind.arm)

SOURCE = "a base model that had 300 of 300 right before it was trained, once it was prompted as the trained one was"


@CHECKS.add("gap.before_training", "The untrained model fails, and the task is solvable", source=SOURCE)
def _gap(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    """Judge the gap where its last stage has run; the lint of evaluations has that before any training."""
    plan = evidence.resolved.spec.evaluation
    gap = plan.gap if plan is not None else None
    if gap is None:
        return CheckOutcome("NOT_APPLICABLE", "no gap is registered")
    order = [stage.name for stage in evidence.resolved.spec.stages]
    last = max((*gap.base, *((gap.ceiling,) if gap.ceiling else ())), key=order.index)
    if evidence.stage.name != last:
        return CheckOutcome("NOT_APPLICABLE", f"the gap is judged at '{last}'")
    parts: list[str] = []
    faults: list[str] = []
    worst = 0.0
    for name in gap.base:
        rate, (low, high) = _rate(evidence, metrics, name)
        parts.append(f"'{name}' {rate.value:.3f} [{low:.3f}, {high:.3f}]")
        worst = max(worst, rate.value)
        most = exact(gap.base_at_most)
        if not holds(rate.exact(), "<=", most) or not holds(high, "<=", most + exact(gap.slack)):
            faults.append(f"the untrained model can do it already: '{name}' is not below {gap.base_at_most:g}")
    if gap.ceiling is not None:
        rate, (low, high) = _rate(evidence, metrics, gap.ceiling)
        parts.append(f"ceiling '{gap.ceiling}' {rate.value:.3f} [{low:.3f}, {high:.3f}]")
        least = exact(gap.ceiling_at_least)
        if not holds(rate.exact(), ">=", least) or not holds(low, ">=", least - exact(gap.slack)):
            faults.append(f"the ceiling fails too: '{gap.ceiling}' is not above {gap.ceiling_at_least:g}")
    detail = "; ".join(parts)
    if faults:
        return CheckOutcome("FAIL", f"{detail}: {'; '.join(faults)}", worst, repairable=False)
    return CheckOutcome("PASS", detail, worst)


def _rate(evidence: Evidence, metrics: MetricSet | None, name: str) -> tuple[Metric, tuple[float, float]]:
    measured = metrics if name == evidence.stage.name else evidence.earlier.get(name)
    arm = kind_of(evidence.resolved.spec.stage(name)).arm
    id = arm.metric if arm else ""
    if measured is None or id not in measured.metrics:
        raise EvidenceMissing(f"'{id}' of '{name}' was not measured")
    rate = measured.metrics[id]
    if rate.interval is None:
        raise EvidenceMissing(f"'{rate.id}' has no interval")
    return rate, rate.interval
