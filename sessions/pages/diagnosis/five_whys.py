"""The chain from an outcome down to the cause that binds. Each step cites a figure; without one it is left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from reviews.checks.job_endings import log_lines
from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry
from sessions.pages.comparison import comparison_of, p_of
from sessions.pages.diagnosis.attempts import TrainingAttempt
from sessions.pages.diagnosis.causes import DEPTHS, IN_WORDS, binding, detector_of, has_fired, rows_in_words, steps_in
from specs.stages.base.metric import Metric
from specs.system.exact import holds
from specs.trail.entry import DESIGN
from specs.trail.gate_bodies import DecisionEntry, PlanEntry
from specs.trail.session_bodies import CloseEntry
from specs.trail.verdict import CheckResult

GOOD = ("approve", None)


class Why(NamedTuple):
    """One step: what is the case, and where it is on record."""

    description: str
    cites: tuple[str, ...]


def whys_of(history: History, attempt: TrainingAttempt, results: Sequence[CheckResult]) -> tuple[Why, ...]:
    """Return the steps from the outcome to the cause; empty where nothing failed and no detector fired."""
    first = binding(results)
    outcome = _outcome(history, attempt)
    if outcome is None and first is None:
        return ()
    steps = [outcome, _comparison(history), _course(attempt)]
    cited = {cite for step in steps if step for cite in step.cites}
    if first is not None:
        detector = detector_of(first)
        same = [
            result
            for result in results
            if result.id != first.id and has_fired(result) and detector_of(result).cause == detector.cause
        ]
        same.sort(key=lambda check_result: DEPTHS.index(detector_of(check_result).depth))
        above = [
            check_result
            for check_result in same
            if DEPTHS.index(detector_of(check_result).depth) < DEPTHS.index(detector.depth)
        ]
        steps += [_explain_check(check_result) for check_result in above if f"check {check_result.id}" not in cited]
        beside = "apart from what closed the gate, " if _closed_otherwise(attempt, results) else ""
        steps.append(_explain_check(first, f"{beside}{IN_WORDS[detector.cause]}: "))
        steps.append(_explain_parameters(history, attempt, detector.parameters))
    elif attempt.checks:
        passed = sum(result.status == "PASS" for result in results)
        cites = (f"checks/{attempt.stage}.{attempt.attempt}",)
        steps.append(Why(f"no detector explains it: {passed} detectors passed", cites))
    return tuple(step for step in steps if step)


def _closed_otherwise(attempt: TrainingAttempt, results: Sequence[CheckResult]) -> bool:
    """Return whether checks closed the gate of the training, and none of them is a detector."""
    closing = [check for check in attempt.checks if check.closes]
    return bool(closing) and not any(result.closes and has_fired(result) for result in results)


def _outcome(history: History, attempt: TrainingAttempt) -> Why | None:
    """Return how the session, or the attempt, ended badly; None where it did not, or has not ended."""
    closed, last = history.newest(CloseEntry), history.newest(DecisionEntry)
    if closed is not None and closed.body.decision not in GOOD:
        where = f" at the gate of {_place(last.body)}" if last else ""
        message = f"the session ended with '{closed.body.decision}'{where}"
        return Why(message + _because(history, last), _entries(closed, last))
    if last is not None and last.body.outcome != "approve":
        message = f"the gate of {_place(last.body)} decided '{last.body.outcome}'"
        return Why(message + _because(history, last), _entries(last))
    curves = attempt.curves
    if attempt.launched and not attempt.ended and curves.stated and curves.steps:
        planned = f" of {curves.planned}" if curves.planned else ""
        message = f"the job has no recorded end: it states {curves.steps[-1]}{planned} steps"
        return Why(f"{message}, the last loss {curves.losses[-1]:.4g}", ("progress.jsonl, as claimed by the job",))
    return None


def _because(history: History, last: RecordedEntry[DecisionEntry] | None) -> str:
    if last is None:
        return ""
    decision = last.body
    check_results = history.attempt(decision.stage or DESIGN, decision.attempt).check_results
    closing = [f"{check_result.id} {check_result.status}" for check_result in check_results if check_result.closes]
    return f": {', '.join(closing[:5] or decision.reasons[:1])}" if closing or decision.reasons else ""


def _comparison(history: History) -> Why | None:
    """Return the registered comparison where it was reached and missed."""
    results = comparison_of(history)
    if results is None or "accuracy_gain" not in results["metrics"]:
        return None
    metrics: dict[str, Any] = results["metrics"]
    gain, p = (Metric.model_validate(value) for value in (metrics["accuracy_gain"], p_of(results)))
    analysis = history.resolved.spec.analysis
    if holds(gain.exact(), ">=", analysis.minimum_effect) and holds(p.exact(), "<", analysis.alpha):
        return None
    message = f"the gain is {gain.value:+.4g} with p = {p.value:.2g}"
    limits = f"registered were a gain of at least {analysis.minimum_effect:g} and p below {analysis.alpha:g}"
    return Why(f"{message}; {limits}", (f"metrics accuracy_gain, {p.id} of {analysis.treatment}",))


def _course(attempt: TrainingAttempt) -> Why | None:
    """Return the course of the loss, as measured from the rows."""
    names = [(name, metric) for name, metric in attempt.metrics.items() if name.endswith(("first_loss", "last_loss"))]
    if len(names) != 2:
        return None
    (first, before), (last, after) = names
    rows = f"rows 1 to {len(attempt.curves.steps)} of {attempt.stage}.{attempt.attempt}"
    message = f"in training the loss went from {before:.4g} to {after:.4g}"
    return Why(message, (f"metrics {first}, {last}", *((rows,) if attempt.curves.steps else ())))


def _explain_check(acceptance_criterion: CheckResult, before: str = "") -> Why:
    figure = f"figure {acceptance_criterion.figure:.4g}" if acceptance_criterion.figure is not None else ""
    limit = f"threshold {acceptance_criterion.threshold}" if acceptance_criterion.threshold else ""
    rows = rows_in_words(steps_in(acceptance_criterion))
    log = log_lines(acceptance_criterion)
    text = f"{before}{acceptance_criterion.detail}{f'; its log ends: {log[-1].strip()}' if log else ''}"
    return Why(text, tuple(filter(None, (f"check {acceptance_criterion.id}", figure, limit, rows))))


def _explain_parameters(history: History, attempt: TrainingAttempt, names: tuple[str, ...]) -> Why | None:
    """Return what was granted that explains it, and who chose it."""
    known = {
        name: attempt.granted_parameters[name] for name in names if attempt.granted_parameters.get(name) is not None
    }
    if not known:
        return None
    changed = sorted(known.keys() & attempt.changes.keys())
    by = f"the builder chose {', '.join(changed)}" if changed else "as registered in the spec"
    message = ", ".join(f"{name} {value}" for name, value in known.items())
    planned = history.find(PlanEntry, attempt.stage, attempt.attempt)
    return Why(f"the stage was granted {message}: {by}", _entries(planned if changed else history[0]))


def _place(decision: DecisionEntry) -> str:
    return f"'{decision.stage}.{decision.attempt}'" if decision.stage else "the design"


def _entries(*recorded: RecordedEntry | None) -> tuple[str, ...]:
    return tuple(f"entry {value.seq} ({value.kind})" for value in recorded if value is not None)
