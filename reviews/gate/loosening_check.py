"""Does an amendment loosen what just failed? Then no rule approves it: a person does, with a reason, on record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from reviews.checks.definition import CheckLimit, CheckOutcome, CheckRegistry, join_names, result, run_guarded
from reviews.gate.amendments import changes
from reviews.gate.check_list import all_checks
from reviews.gate.packet_derivation import check_design
from reviews.history.recorded_history import RecordedHistory
from specs.session.design import ResolvedDesign
from specs.system.exact import exact
from specs.trail.entry import AMENDMENT
from specs.trail.gate_bodies import DecisionEntry
from specs.trail.verdict import CheckResult

AMENDMENT_GATE = (AMENDMENT,)
"""In the place of stage kinds: this check gets two designs and the trail."""
CHECKS = CheckRegistry(AMENDMENT_GATE)
_HYPOTHESIS = (CheckLimit("<", "analysis.alpha"), CheckLimit(">=", "analysis.minimum_effect"))
"""What the registered hypothesis is judged by; of the rest of the analysis, no value is known to be stricter."""

_UNMET = "the hypothesis at "


@CHECKS.add(
    "amendment.loosens",
    "No limit that just failed is loosened",
    source="thresholds that were moved after the results until they passed",
)
def _check_loosens(history: RecordedHistory, old: ResolvedDesign, new: ResolvedDesign) -> CheckOutcome:
    """Compare the limits of the checks and of the hypothesis that failed last with those of the amended spec.

    `peergate amend --override` puts such a change in force in a person's name, with a reason.
    """
    failed = list(_find_failures(history, old))
    visible = [
        {"failed": what, "limit": limit.key, "before": before, "after": after}
        for what, limit in failed
        if _looser(limit, before := limit.value(old.spec), after := limit.value(new.spec))
    ]
    if stage := next((what for what, limit in failed if limit in _HYPOTHESIS and what.startswith(_UNMET)), ""):
        limits = {limit.key for limit in _HYPOTHESIS}
        visible += [
            {"failed": stage, "limit": key, "before": change.before, "after": change.after}
            for change in changes(old, new)
            if (key := change.pointer[1:].replace("/", ".")).startswith("analysis.") and key not in limits
        ]
    if not visible:
        return CheckOutcome("PASS", "no limit that failed last is loosened", 0.0)
    limits = join_names(
        f"{value['limit']} from {value['before']} to {value['after']} after {value['failed']}" for value in visible
    )
    detail = f"it loosens what just failed: {limits}; fix what failed, or put it in force with --override and a reason"
    return CheckOutcome("FAIL", detail, float(len(visible)), tuple(visible), repairable=False)


def amendment_checks(
    history: RecordedHistory, old: ResolvedDesign, new: ResolvedDesign, costs: Mapping[str, float]
) -> tuple[CheckResult, ...]:
    """Judge an amended design as it would be judged before a session, and what it changes after what has failed."""
    own = (result(check, run_guarded(check.run, history, old, new), new.spec, ()) for check in CHECKS)
    return (*check_design(new, history.store, costs), *own)


def _looser(limit: CheckLimit, before: float, after: float) -> bool:
    return exact(after) < exact(before) if limit.sign.startswith(">") else exact(after) > exact(before)


def _find_failures(history: RecordedHistory, old: ResolvedDesign) -> Iterator[tuple[str, CheckLimit]]:
    """Yield what closed the newest gate of each stage that no later attempt or person has opened, with its limits."""
    limits = {check.id: check.limits for check in all_checks(old)}
    newest = {decision.body.stage: decision.body for decision in history.standing_of(DecisionEntry)}
    for stage, decision in newest.items():
        packet = history.attempt_of(decision).packet_value
        if stage is None or packet is None or decision.outcome == "approve" or history.accepted_attempt(stage):
            continue
        for check in packet.checks:
            if check.closes:
                yield from ((f"{check.id} at {stage}", limit) for limit in limits.get(check.id, ()))
        if any(criterion.hypothesis and not criterion.met for criterion in packet.criteria):
            yield from ((f"{_UNMET}{stage}", limit) for limit in _HYPOTHESIS)
