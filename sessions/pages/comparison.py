"""The registered comparison of a session, from entries and stored values alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reviews.history.attempt import read_order
from reviews.history.history import History
from reviews.stages.evaluation.benchmark_checks import SCORES
from specs.session.evaluation_plan import Arm
from specs.session.session_spec import SessionSpec
from specs.stages.metric_catalog import TEST_NAMES, metrics_of
from specs.stages.registry import kind_of
from specs.trail.gate_bodies import ChecksEntry, MetricsEntry
from specs.trail.session_bodies import ExitEntry, WitnessEntry
from specs.trail.verdict import CheckResult


def p_of(comparison: dict[str, Any]) -> dict[str, Any]:
    """Return the metric that holds the p of the registered test."""
    return next(value for name, value in comparison["metrics"].items() if name in TEST_NAMES)


def comparison_of(history: History) -> dict[str, Any] | None:
    """Return the registered comparison from the metric sets of the two arms; None if it was not reached."""
    analysis, plan = history.resolved.spec.analysis, history.resolved.spec.evaluation
    baseline, treatment = (_latest_metrics(history, arm) for arm in (analysis.baseline, analysis.treatment))
    if baseline is None or treatment is None or analysis.p_metric not in treatment[1]:
        return None
    claimed = {
        arm: claims
        for arm in (analysis.baseline, analysis.treatment)
        if (claims := _count_claimed_scores(history, arm))
    }
    names = ("accuracy_gain", "mcnemar_p", "gained", "lost", "cohens_h", *metrics_of("rule"))
    return {
        "primary_metric": analysis.primary_metric,
        "baseline_accuracy": baseline[1][analysis.primary_metric]["value"],
        "treatment_accuracy": treatment[1][analysis.primary_metric]["value"],
        "metrics": {name: treatment[1][name] for name in names if name in treatment[1]},
        "baseline_metrics": baseline[0],
        "treatment_metrics": treatment[0],
        "without_kind": _without_kind(history, analysis.treatment),
        "witnessed": count_witnessed_rows(history, (analysis.baseline, analysis.treatment)),
        "replayed": count_witnessed_rows(history, list_replayed_stages(history.resolved.spec)),
        "not_replayed": not_replayed(history, history.resolved.spec),
        "registered": {"alpha": analysis.alpha, "minimum_effect": analysis.minimum_effect, "n": analysis.n},
        **({"claimed": claimed} if claimed else {}),
        **({"not_judged": list(plan.not_judged)} if plan and plan.not_judged else {}),
        **({"form": form} if (form := _form_in(history, analysis.treatment)) else {}),
        **({"arms": arms} if (arms := _list_arms(history)) else {}),
        **({"principles": rows} if (rows := _list_principles(history)) else {}),
        **({"transfer": analysis.transfer.model_dump(mode="json")} if analysis.transfer else {}),
        **({"curve": curve} if (curve := _list_curve(history)) else {}),
    }


def _list_arms(history: History) -> list[dict[str, Any]]:
    """Return the row of each arm as the treatment's gate compared it; none where no further arm is registered."""
    arms = {arm.name: arm for arm in history.resolved.spec.analysis.arms}
    check = _find_check(history, "arms.compared")
    return [row | _describe_arm(arms.get(row["name"])) for row in (check.rows if check else ())]


def _describe_arm(arm: Arm | None) -> dict[str, str]:
    """Return what the difference to an arm shows, with the time that its data took of people."""
    if arm is None:
        return {"shows": ""}
    return {"shows": arm.shows + (f" ({arm.human_minutes:g} minutes of people)" if arm.human_minutes else "")}


def _list_principles(history: History) -> list[dict[str, Any]]:
    """Return how often each arm keeps to each principle, as the treatment's gate counted it."""
    check = _find_check(history, "strata.principles")
    return list(check.rows) if check else []


def _list_curve(history: History) -> dict[str, Any]:
    """Return the learning curve as the treatment's gate fitted it; empty where none is registered."""
    check = _find_check(history, "curve.forecast")
    return {"detail": check.detail, "points": list(check.rows)} if check and check.rows else {}


def _find_check(history: History, id: str) -> CheckResult | None:
    """Return a check of the treatment's newest gate; None where it did not run."""
    checks = _newest_checks(history, history.resolved.spec.analysis.treatment)
    return next((check for check in checks if check.id == id), None)


def _form_in(history: History, treatment: str) -> dict[str, Any] | None:
    """Return how many wrong answers hold the right one, where `scorer.length` warns of it."""
    checks = _newest_checks(history, treatment)
    return next((check.rows[0] for check in checks if check.id == "scorer.length" and check.rows), None)


def _without_kind(history: History, treatment: str) -> dict[str, Any] | None:
    """Return the least gain that is left without a kind of items, where it is less than the registered effect."""
    checks = _newest_checks(history, treatment)
    return next((check.rows[0] for check in checks if check.id == "strata.sensitivity" and check.rows), None)


def _count_claimed_scores(history: History, stage: str) -> int:
    """Return how many scores of a stage's newest attempt are what a benchmark's own scorer says."""
    check_results = _newest_checks(history, stage)
    return next(
        (
            int(check_result.figure or 0)
            for check_result in check_results
            if check_result.id == SCORES and check_result.status == "WARN"
        ),
        0,
    )


def _newest_checks(history: History, stage: str) -> Sequence[CheckResult]:
    """Return the checks of a stage's newest attempt; none before its first gate."""
    attempts = [entry.body.attempt for entry in history.of(ChecksEntry) if entry.body.stage == stage]
    return history.attempt(stage, attempts[-1]).check_results if attempts else ()


def count_witnessed_rows(history: History, stages: Sequence[str]) -> dict[str, list[int]]:
    """Return for each stage how many rows of its latest attempt a witness read, and of how many."""
    counts: dict[str, list[int]] = {}
    for entry in history.of(WitnessEntry):
        if entry.body.stage in stages and entry.body.rows:
            order = read_order(history.attempt(entry.body.stage, entry.body.attempt).challenge, history.store)
            if order is not None and order.challenge is not None:
                counts[entry.body.stage] = list(order.challenge.counts())
    return {stage: counts[stage] for stage in stages if stage in counts}


def list_replayed_stages(spec: SessionSpec) -> list[str]:
    """Return the stages of which a witness trains steps again."""
    return [stage.name for stage in spec.stages if kind_of(stage).replay_job]


def not_replayed(history: History, spec: SessionSpec) -> list[str]:
    """Return the stages that have trained and that no witness can repeat."""
    ended = {entry.body.stage for entry in history.of(ExitEntry)}
    return [stage.name for stage in spec.stages if stage.witness == "weights_only" and stage.name in ended]


def not_witnessed(history: History, spec: SessionSpec) -> list[str]:
    """Return the stages whose jobs ended and of which no witness made anything again; :func:`not_replayed` apart."""
    ended = {entry.body.stage for entry in history.of(ExitEntry)}
    others = [stage.name for stage in spec.stages if stage.name in ended and stage.witness != "weights_only"]
    counts = count_witnessed_rows(history, others)
    return [name for name in others if name not in counts]


def _latest_metrics(history: History, stage: str) -> tuple[str, dict[str, Any]] | None:
    for entry in reversed(history.of(MetricsEntry)):
        if entry.body.stage == stage and entry.body.metrics:
            return entry.body.metrics, history.store.get_value(entry.body.metrics)["metrics"]
    return None
