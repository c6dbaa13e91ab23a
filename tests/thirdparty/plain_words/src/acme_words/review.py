"""Reviews in the reviewer's process: an objective that says "prove" is refused, and so is what a check refuses."""

from __future__ import annotations

from reviews.reviewers.checklist import FOR_A_PERSON, Checklist
from reviews.reviewers.vendors.plugin_reviewer import PluginReviewRequest
from specs.trail.verdict import Finding, Packet, Span, Verdict


def review(packet: Packet, request: PluginReviewRequest) -> Verdict:
    """Return the checklist's verdict with one finding more."""
    verdict = Checklist().review(packet, request.digest)
    objective = str(packet.registered["objective"])
    if "prove" not in objective.lower():
        return verdict
    finding = Finding(
        id="words",
        severity="blocking",
        statement="one session proves nothing: state what is measured",
        evidence=(Span(artifact=request.digest, pointer="/registered/objective", quote=objective),),
        required_change=FOR_A_PERSON,
    )
    return verdict.model_copy(update={"findings": (*verdict.findings, finding), "approve": False})
