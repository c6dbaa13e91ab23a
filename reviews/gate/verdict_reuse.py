"""The same evidence gets the same verdict: an earlier one, turned to the packet that shows the evidence again."""

from __future__ import annotations

from specs.trail.verdict import Verdict


def turned(verdict: Verdict, before: str, now: str) -> Verdict:
    """Return a verdict whose spans point into the packet ``now`` where they pointed into ``before``."""
    findings = tuple(
        one.model_copy(
            update={
                "evidence": tuple(
                    span.model_copy(update={"artifact": now}) if span.artifact == before else span
                    for span in one.evidence
                )
            }
        )
        for one in verdict.findings
    )
    return verdict.model_copy(update={"findings": findings})
