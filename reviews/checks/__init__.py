"""Deterministic checks: the floor that no reviewer can lift. One small function each, by family."""

from __future__ import annotations

from reviews.checks import health, jobs, leakage, package, parity, power, registration, training
from reviews.checks.check import Check, apply
from reviews.checks.design import design_checks
from reviews.evidence import Evidence
from specs.metrics import MetricSet
from specs.verdicts import CheckResult

__all__ = ["CHECKS", "design_checks", "run_checks"]

CHECKS: tuple[Check, ...] = (
    *registration.CHECKS,
    *jobs.CHECKS,
    *leakage.CHECKS,
    *power.CHECKS,
    *parity.CHECKS,
    *health.CHECKS,
    *training.CHECKS,
    *package.CHECKS,
)


def run_checks(evidence: Evidence, metrics: MetricSet | None) -> tuple[CheckResult, ...]:
    """Run every check that belongs to the stage's kind, in a fixed order."""
    return tuple(apply(check, evidence, metrics) for check in CHECKS if evidence.stage.kind in check.kinds)
