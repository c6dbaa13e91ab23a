"""Does what the builder states agree with what was measured?"""

from __future__ import annotations

from typing import Any

from reviews.checks.claim_lookup import CLAIMS, claim_results
from reviews.checks.definition import Checks, Found, listed
from reviews.evidence.evidence import Evidence
from specs.stages.metric import MetricSet
from specs.trail.grant_and_claim import ClaimResult

CHECKS = Checks()


@CHECKS.add(
    CLAIMS,
    "What the builder states is what was measured",
    source="real numbers in the wrong cell; pilots called passed against their own rows",
)
def _claims(evidence: Evidence, metrics: MetricSet | None) -> Found:
    if evidence.claims is None:
        return Found("NOT_APPLICABLE", "nothing was handed in with the attempt")
    results = claim_results(evidence, metrics)
    contradicted = [one for one in results if one.status == "contradicted"]
    unsupported = [one for one in results if one.status == "unsupported"]
    again = f"; {evidence.sent_back} submissions were sent back before" if evidence.sent_back else ""
    if contradicted:
        told = f"the rows contradict {listed(_name(one) for one in contradicted)}{again}"
        return Found("FAIL", told, float(len(contradicted)), tuple(_row(one) for one in contradicted))
    if unsupported:
        told = f"nothing measured bears out {listed(_name(one) for one in unsupported)}{again}"
        return Found("WARN", told, float(len(unsupported)), tuple(_row(one) for one in unsupported))
    told = f"{len(results)} claims, all as measured" if results else "no claims are made"
    return Found("WARN" if again else "PASS", f"{told}{again}", 0.0)


def _name(one: ClaimResult) -> str:
    return f"{one.claim.stage} {one.claim.metric}"


def _row(one: ClaimResult) -> dict[str, Any]:
    claim = one.claim
    return {"stage": claim.stage, "metric": claim.metric, "stated": claim.value, "measured": one.measured}
