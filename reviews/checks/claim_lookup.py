"""Look stated numbers up among the measured ones. A claim is never copied into a report, supported or not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from reviews.checks.definition import CheckOutcome, CheckRegistry, join_names
from reviews.evidence.evidence import Evidence
from specs.jobs.grant_and_claim import Claim, ClaimResult
from specs.stages.base.metric import MetricSet

CHECKS = CheckRegistry()
CLAIMS = "claims.as_measured"
"""The check on what the builder states."""

WIDEST_TOLERANCE = 0.05
"""The largest tolerance, as a share of the stated value; a claim beyond it is unsupported."""

SMALLEST_TOLERANCE = 5e-4
"""What rounding to three decimals takes; it is allowed for values near 0 too."""


def look_up(claims: Iterable[Claim], measured: Mapping[str, MetricSet]) -> tuple[ClaimResult, ...]:
    """Mark each claim supported, contradicted, or unsupported (nothing was measured for it)."""
    return tuple(_look_up(claim, measured.get(claim.stage)) for claim in claims)


def claim_results(evidence: Evidence, metrics: MetricSet | None) -> tuple[ClaimResult, ...]:
    """Look up what the builder claims of an attempt among its own and earlier metrics."""
    here = {evidence.stage.name: metrics} if metrics else {}
    return look_up(evidence.claims or (), {**evidence.earlier, **here})


def agrees(stated: float, measured: float, tolerance: float) -> bool:
    """Return whether a stated number is the measured one, up to the tolerance it was stated with."""
    return math.isclose(measured, stated, rel_tol=1e-9, abs_tol=tolerance)


def _look_up(claim: Claim, metrics: MetricSet | None) -> ClaimResult:
    metric = metrics.metrics.get(claim.metric) if metrics else None
    if metric is None:
        return ClaimResult(claim=claim, status="unsupported")
    # A tolerance wide enough for anything states nothing.
    if claim.tolerance > WIDEST_TOLERANCE * abs(claim.value) and claim.tolerance > SMALLEST_TOLERANCE:
        return ClaimResult(claim=claim, status="unsupported", measured=metric.value)
    status = "supported" if agrees(claim.value, metric.value, claim.tolerance) else "contradicted"
    return ClaimResult(claim=claim, status=status, measured=metric.value)


@CHECKS.add(
    CLAIMS,
    "The builder's claims equal the measurements",
    source="real numbers in the wrong cell; pilots called passed against their own rows",
)
def _check_claims(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    """Compare what the builder states with what was measured."""
    if evidence.claims is None:
        return CheckOutcome("NOT_APPLICABLE", "nothing was handed in with the attempt")
    results = claim_results(evidence, metrics)
    contradicted = [result for result in results if result.status == "contradicted"]
    unsupported = [result for result in results if result.status == "unsupported"]
    again = f"; {evidence.sent_back} submissions were sent back before" if evidence.sent_back else ""
    if contradicted:
        message = f"the rows contradict {join_names(_name(claim_result) for claim_result in contradicted)}{again}"
        return CheckOutcome(
            "FAIL", message, float(len(contradicted)), tuple(_row(claim_result) for claim_result in contradicted)
        )
    if unsupported:
        message = f"nothing measured bears out {join_names(_name(claim_result) for claim_result in unsupported)}{again}"
        return CheckOutcome(
            "WARN", message, float(len(unsupported)), tuple(_row(claim_result) for claim_result in unsupported)
        )
    message = f"{len(results)} claims, all as measured" if results else "no claims are made"
    return CheckOutcome("WARN" if again else "PASS", f"{message}{again}", 0.0)


def _name(value: ClaimResult) -> str:
    return f"{value.claim.stage} {value.claim.metric}"


def _row(value: ClaimResult) -> dict[str, Any]:
    claim = value.claim
    return {"stage": claim.stage, "metric": claim.metric, "stated": claim.value, "measured": value.measured}
