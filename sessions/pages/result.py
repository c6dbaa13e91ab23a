"""How a session ended or why it waits, in words and figures, from entries and stored values alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from reviews.acceptance.scorecard import scorecard_of
from reviews.history.history import History
from reviews.history.people import Question, last_question, overrides, waits_for_budget
from reviews.history.recorded_history import is_in_force
from reviews.trail.chain.envelope import RecordedEntry
from sessions.pages.comparison import p_of
from sessions.pages.overview import is_waiting, waits_for_verdict
from specs.jobs.job_records import WITNESS
from specs.stages.base.metric import Metric
from specs.stages.metric_catalog import TEST_NAMES
from specs.system.exact import holds
from specs.system.text import plain
from specs.trail.entry import DESIGN
from specs.trail.gate_bodies import (
    AmendmentEntry,
    DecisionEntry,
    HumanAnswerEntry,
    OverrideEntry,
    PlanEntry,
    RetractionEntry,
)
from specs.trail.session_bodies import (
    BudgetEntry,
    ReplicationEntry,
    ReplicationPlanEntry,
    SpendEntry,
)
from specs.trail.verdict import CheckResult, Status


def result_in_words(history: History, outcome: str, comparison: dict[str, Any] | None) -> str:
    """Return one sentence on how the session ended."""
    last = history.newest(DecisionEntry)
    stage = (last.body.stage if last else None) or DESIGN
    exploratory = " (exploratory: amended after data had been seen)" if history.is_exploratory else ""
    match outcome:
        case "approve":
            accepted = f"accepted{_describe_limits(history)}{exploratory}{_form(comparison)}"
            return f"{accepted}: {_sentence(comparison)}" if comparison else accepted
        case "overridden":
            lifted = f"not accepted by every gate, {_describe_overrides(history)}{exploratory}"
            return f"{lifted}: {_sentence(comparison)}" if comparison else lifted
        case "null":
            none = f"{_nothing(comparison)}{exploratory}"
            return f"{none}: {_sentence(comparison)}" if comparison else none
        case "reject":
            spent = ", before anything was paid for" if stage == "design" else ""
            return f"rejected at the gate of '{stage}'{spent}"
        case "stop":
            return f"stopped by a person at the gate of '{stage}'"
        case "budget":
            return f"stopped after the gate of '{stage}': the next attempt does not fit in the budget"
        case _:
            return f"{outcome} after the gate of '{stage}'"


def _describe_limits(history: History) -> str:
    """Return how many limits keep the registered comparison from being shown whole; empty where none do."""
    limits = next((row.limits for row in scorecard_of(history).rows if row.id == "H-1"), ())
    return f", with {len(limits)} limit{'' if len(limits) == 1 else 's'} that the scorecard names" if limits else ""


def _form(comparison: dict[str, Any] | None) -> str:
    """Return what of the gain is form; empty where it holds with answers that hold the right one counted as right."""
    if comparison is None or (form := comparison.get("form")) is None:
        return ""
    return (
        f", with a warning of scorer.length ({form['baseline']} of {form['items']} answers of the baseline and "
        f"{form['treatment']} of the treatment hold the right one and count as wrong: counted as right, the gain is "
        f"{form['gain']:+.3f})"
    )


def _describe_overrides(history: History) -> str:
    """Return who decided instead of the gates, and how often."""
    results = overrides(history)
    people = ", ".join(dict.fromkeys(plain(value.body.by, 100) for value in results))
    return f"{people} decided {len(results)} time{'' if len(results) == 1 else 's'} over a gate or check"


def _nothing(comparison: dict[str, Any] | None) -> str:
    """Return what a session without a result found in place of the registered difference."""
    if comparison is not None:
        metrics, analysis = comparison["metrics"], comparison["registered"]
        p, gain = (Metric.model_validate(value).exact() for value in (p_of(comparison), metrics["accuracy_gain"]))
        if holds(p, "<", analysis["alpha"]):
            if gain < 0:
                return "no result, the treatment is significantly worse"
            smaller = not holds(gain, ">=", analysis["minimum_effect"])
            if not smaller and _misses_transfer(comparison):
                return "no result, the gain is not shown on the transfer split"
            if not smaller and (missed := _list_missed_arms(comparison)):
                return f"no result, the treatment is not shown to be better than {', '.join(missed)}"
            return f"no result, {'the gain is smaller than' if smaller else 'the difference is not'} the registered one"
    return "no significant difference"


def _sentence(comparison: dict[str, Any]) -> str:
    metrics, analysis = comparison["metrics"], comparison["registered"]
    gain = metrics["accuracy_gain"]
    low, high = gain["interval"]
    word = comparison["primary_metric"].replace("_", " ")
    return (
        f"held-out {word} {comparison['baseline_accuracy']:.3f} -> {comparison['treatment_accuracy']:.3f} on "
        f"{gain['n']} items, gain {gain['value']:+.3f} [{low:+.3f}, {high:+.3f}], "
        f"{metrics['gained']['value']:.0f} gained, {metrics['lost']['value']:.0f} lost, "
        f"{_describe_at_k(metrics)}{TEST_NAMES[p_of(comparison)['id']]} p = {p_of(comparison)['value']:.2g} "
        f"(registered: p < {analysis['alpha']:g} and gain >= {analysis['minimum_effect']:g})"
        f"{_describe_transfer(comparison)}{_describe_remaining_gain(comparison)}{_describe_arms(comparison)}; one seed"
        f"{_describe_witnesses(comparison)}"
    )


def _describe_at_k(metrics: dict[str, Any]) -> str:
    """Return the gain of pass@k; empty where no k is registered."""
    if (gain := metrics.get("gain_at_k")) is None:
        return ""
    low, high = gain["interval"]
    return f"at k {gain['value']:+.3f} [{low:+.3f}, {high:+.3f}], "


def _describe_transfer(comparison: dict[str, Any]) -> str:
    """Return the gain on the transfer split; empty where none is registered."""
    if (transfer := comparison.get("transfer")) is None:
        return ""
    gain, p = (comparison["metrics"][name] for name in ("transfer_gain", "transfer_p"))
    low, high = gain["interval"]
    return (
        f"; transfer split '{transfer['data']}' {gain['value']:+.3f} [{low:+.3f}, {high:+.3f}] on {gain['n']} items, "
        f"p = {p['value']:.2g} (registered: gain >= {transfer['minimum_effect']:g})"
    )


def _describe_remaining_gain(comparison: dict[str, Any]) -> str:
    """Return the gain that remains without the kind of items that carries it; empty if none does."""
    if (rest := comparison["without_kind"]) is None:
        return ""
    kind = " ".join(plain(rest["without"], 100).split())
    return f"; without '{kind}' {rest['gain']:+.3f} on {rest['items']} items"


def _describe_witnesses(comparison: dict[str, Any]) -> str:
    """Return how many answers of each arm, and steps of each training, a witness recomputed; empty if none did."""
    parts = [f"{rows} of {of} answers of '{name}' recomputed" for name, (rows, of) in comparison["witnessed"].items()]
    parts += [
        f"{steps} of {of} steps of '{name}' trained again" for name, (steps, of) in comparison["replayed"].items()
    ]
    parts += [f"training of '{stage}' not replayed" for stage in comparison["not_replayed"]]
    parts += [
        f"{claims} scores of '{stage}' are its scorer's claim"
        for stage, claims in comparison.get("claimed", {}).items()
    ]
    parts += [f"pairs of '{name}' not judged" for name in comparison.get("not_judged", ())]
    return "".join(f"; {part}" for part in parts)


def further_seeds(history: History) -> str:
    """Return what came of the further seeds of a closed session, or which session's seed this is; empty without any."""
    if (counted := history.find(ReplicationEntry)) is not None:
        return str(history.store.get_value(counted.body.result)["summary"])
    if (planned := history.find(ReplicationPlanEntry)) is not None:
        return f"{len(planned.body.seeds)} further seeds are registered and not yet counted"
    of = history.opening.replicates
    return f"one of the further seeds of '{plain(of.session, 100)}'" if of else ""


def why_it_ended(history: History, outcome: str) -> list[str]:
    """Return the reasons of the last judgement, with the rows that show them where a check failed.

    Of a session in which people decided instead of gates: what each of them decided.
    """
    if outcome == "overridden":
        lifted = (
            (plain(override.body.by, 100), describe_human_entry(override), override.body.reason)
            for override in overrides(history)
        )
        return [f"{by} {what}: {plain(reason, 500)}" for by, what, reason in lifted]
    newest = history.newest(DecisionEntry, HumanAnswerEntry, BudgetEntry)
    match newest.body if newest else None:
        case BudgetEntry() as short:
            return [plain(reason, 500) for reason in short.reasons]
        case HumanAnswerEntry() as answer:
            return [f"{plain(answer.by, 100)} answered '{answer.answer}': {plain(answer.reason, 500)}"]
        case DecisionEntry() as decision:
            lines = drop_repeated_reasons(decision.reasons)
            if decision.outcome == "reject":
                for check in history.attempt(decision.stage or DESIGN, decision.attempt).check_results:
                    if check.status == "FAIL" and check.blocking:
                        lines += [f"{check.id}: {_row(row)}" for row in check.rows]
            return lines
        case None:
            return []


def group_by_detail(results: Iterable[CheckResult], statuses: Iterable[Status]) -> Iterator[tuple[Status, str, str]]:
    """Yield status, names and detail of checks in some statuses; checks with the same fault share a line."""
    alike: dict[tuple[Status, str], list[str]] = {}
    every = set(statuses)
    for result in results:
        if result.status in every:
            alike.setdefault((result.status, result.detail), []).append(result.id)
    for (status, detail), ids in alike.items():
        yield status, ", ".join(ids), detail


def drop_repeated_reasons(reasons: Sequence[str]) -> list[str]:
    """Return a decision's reasons without the checklist's findings that repeat a check before them."""
    checks = [reason.partition(": ")[2] for reason in reasons if reason.startswith("check ")]
    return [
        reason
        for reason in reasons
        if not (reason.startswith("checklist: ") and reason.endswith(tuple(f". {c}" for c in checks)))
    ]


def describe_human_entry(value: RecordedEntry) -> str:
    """Return what a person did by an entry: an answer, an override, an amendment or a retraction."""
    match value.body:
        case HumanAnswerEntry() as answer:
            what = f"answered '{answer.answer}' at {answer.stage or DESIGN}.{answer.attempt}"
            what += f", waiving {', '.join(answer.waives)}" if answer.waives else ""
        case OverrideEntry() as override:
            is_check = override.check is not None
            lifted = f"check {override.check} of {override.stage}" if is_check else f"condition {override.condition}"
            what = f"lifted {lifted}"
        case AmendmentEntry() as amendment:
            status = "in force" if is_in_force(value) else f"not in force ({amendment.outcome})"
            what = f"amended {', '.join(change.pointer for change in amendment.changes)}: {status}"
            what += ", over its review" if amendment.overridden else ""
        case RetractionEntry() as retraction:
            what = f"took back {', '.join(retraction.judgements)}"
        case _:
            what = value.kind
    return plain(what, 1000)


def _row(row: dict[str, Any]) -> str:
    if {"how", "train_text"} <= row.keys():
        return (
            f'{row["how"]} ({row["similarity"]:g}): {row["train"]} "{row["train_text"]}" '
            f'= held-out {row["heldout"]} "{row["heldout_text"]}"'
        )
    return ", ".join(f"{name} {value}" for name, value in row.items())


def _misses_transfer(comparison: dict[str, Any]) -> bool:
    """Return whether a transfer split is registered and the gain is not shown on it."""
    if (transfer := comparison.get("transfer")) is None:
        return False
    gain, p = (Metric.model_validate(comparison["metrics"][name]).exact() for name in ("transfer_gain", "transfer_p"))
    alpha = comparison["registered"]["alpha"]
    return not (holds(p, "<", alpha) and holds(gain, ">=", transfer["minimum_effect"]))


def _list_missed_arms(comparison: dict[str, Any]) -> list[str]:
    """Return the names of the arms that the treatment had to beat, and is not shown to."""
    return [f"'{row['name']}'" for row in comparison.get("arms", ()) if row.get("must_be_beaten") and not row["beaten"]]


def _describe_arms(comparison: dict[str, Any]) -> str:
    """Return the treatment's lead over each arm that it must beat; empty without any."""
    leads = [
        f"lead over '{row['name']}' {row['lead']:+.3f}, adjusted p = {row['lead_p_adjusted']:.2g}"
        for row in comparison.get("arms", ())
        if row.get("must_be_beaten")
    ]
    return "".join(f"; {lead}" for lead in leads)


def witness_time(history: History) -> float:
    """Return the share of the wall time of all jobs that witnesses took; 0 without jobs."""
    seconds = {entry.key: entry.body.seconds for entry in history.of(SpendEntry) if entry.body.seconds is not None}
    return sum(value for key, value in seconds.items() if key.endswith(WITNESS)) / (sum(seconds.values()) or 1.0)


def question(history: History) -> RecordedEntry[Question] | None:
    """Return the entry a person is asked about; None if no one is asked, or only for a verdict."""
    if not is_waiting(history) or waits_for_verdict(history) is not None:
        return None
    return waits_for_budget(history) or last_question(history)


def result_of(request: RecordedEntry[Question]) -> str:
    """Return in one sentence why the session waits."""
    stage = request.body.stage or DESIGN
    match request.body:
        case BudgetEntry():
            return f"interim, after the gate of '{stage}': the session waits for a larger budget"
        case RetractionEntry():
            return "interim: a judgement was taken back, and a person is asked how to continue"
        case PlanEntry():
            return f"interim: at '{stage}' the builder asks a person how to continue"
        case DecisionEntry():
            return f"interim: the gate of '{stage}' stays closed, and a person is asked how to continue"


def reasons_of(request: RecordedEntry[Question]) -> list[str]:
    """Return why a person is asked."""
    body = request.body
    reasons = (body.reason,) if isinstance(body, PlanEntry) else body.reasons
    if isinstance(body, RetractionEntry) and not reasons:
        reasons = (body.reason,)
    return [plain(reason, 500) for reason in reasons if reason]
