"""Does the job declare which code ran, is it that of the session, and can it be had again?"""

from __future__ import annotations

from reviews.checks.definition import CheckOutcome, CheckRegistry, manifest_of
from reviews.evidence.evidence import Evidence
from specs.stages.base.metric import MetricSet

CHECKS = CheckRegistry()


@CHECKS.add(
    "provenance.code",
    "The code that ran is declared, that of the session and of a commit",
    source="results that no one could repeat because the code was changed and not kept",
)
def _code(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Read the state of the code from the manifest: another fails; changed or unknown warns or fails."""
    manifest = manifest_of(evidence)
    state = manifest.code_state
    if state.digest != manifest.code:
        return CheckOutcome(
            "FAIL", f"the code changed while the job ran: {state.digest} when it began, {manifest.code} after"
        )
    if manifest.code != evidence.ordered_code:
        return CheckOutcome("FAIL", f"the job ran the code {manifest.code}, the session runs {evidence.ordered_code}")
    if state.state == "clean":
        return CheckOutcome("PASS", f"ran {state}", 0.0)
    figure = None if state.changed is None else float(state.changed)
    if evidence.resolved.spec.clean_code == "required":
        return CheckOutcome("FAIL", f"ran {state}; the spec requires clean code", figure)
    return CheckOutcome("WARN", f"ran {state}: the same code cannot be had from the commit alone", figure)
