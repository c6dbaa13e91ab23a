"""How a session ended or why it waits, in words and figures, from entries and stored values alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reviews.acceptance.scorecard import scorecard_of
from reviews.evidence.gather import find
from reviews.history.history import History, is_in_force
from reviews.history.people import last_question, overrides, waits_for_budget
from reviews.stages.evaluation.benchmark_checks import SCORES
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from sessions.pages.overview import is_waiting, waits_for_verdict
from specs.jobs.job_records import WITNESS, JobOrder
from specs.session.session_spec import ResolvedSpec, SessionSpec
from specs.stages.base.metric import Metric
from specs.stages.metric_catalog import metrics_of
from specs.stages.registry import kind_of
from specs.system.exact import holds
from specs.system.text import plain
from specs.trail.verdict import CheckResult


def result_in_words(
    entries: Sequence[RecordedEntry],
    store: Store,
    resolved: ResolvedSpec,
    outcome: str,
    comparison: dict[str, Any] | None,
) -> str:
    """Return one sentence on how the session ended."""
    last = next((entry for entry in reversed(entries) if entry.kind == "decision"), None)
    stage = (last.raw["stage"] or "design") if last else "design"
    amended = any(is_in_force(entry) and entry.raw["exploratory"] for entry in entries)
    exploratory = " (exploratory: amended after data had been seen)" if amended else ""
    match outcome:
        case "approve":
            accepted = f"accepted{_describe_limits(entries, store)}{exploratory}{_form(comparison)}"
            return f"{accepted}: {_sentence(comparison)}" if comparison else accepted
        case "overridden":
            lifted = f"not accepted by every gate, {_describe_overrides(entries)}{exploratory}"
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


def _describe_limits(entries: Sequence[RecordedEntry], store: Store) -> str:
    """Return how many limits keep the registered comparison from being shown whole; empty where none do."""
    limits = next((row.limits for row in scorecard_of(entries, store).rows if row.id == "H-1"), ())
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


def _describe_overrides(entries: Sequence[RecordedEntry]) -> str:
    """Return who decided instead of the gates, and how often."""
    results = overrides(History(entries))
    people = ", ".join(dict.fromkeys(plain(str(value.raw["by"]), 100) for value in results))
    return f"{people} decided {len(results)} time{'' if len(results) == 1 else 's'} over a gate or check"


def _nothing(comparison: dict[str, Any] | None) -> str:
    """Return what a session without a result did not find: any difference, or the registered one."""
    if comparison is not None:
        metrics, analysis = comparison["metrics"], comparison["registered"]
        p, gain = (Metric.model_validate(metrics[name]).exact() for name in ("mcnemar_p", "accuracy_gain"))
        if holds(p, "<", analysis["alpha"]) and holds(gain, ">=", analysis["minimum_effect"]):
            return "no result, the difference is not the registered one"
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
        f"exact McNemar p = {metrics['mcnemar_p']['value']:.2g} "
        f"(registered: p < {analysis['alpha']:g} and gain >= {analysis['minimum_effect']:g})"
        f"{_describe_remaining_gain(comparison)}; one seed{_describe_witnesses(comparison)}"
    )


def _describe_remaining_gain(comparison: dict[str, Any]) -> str:
    """Return what is left of the gain without the kind of items that carries it; nothing where none does."""
    if (rest := comparison["without_kind"]) is None:
        return ""
    kind = " ".join(plain(rest["without"], 100).split())
    return f"; without '{kind}' {rest['gain']:+.3f} on {rest['items']} items"


def _describe_witnesses(comparison: dict[str, Any]) -> str:
    """Return how many answers of each arm, and steps of each training, a witness made again; nothing where none did."""
    parts = [f"{rows} of {of} answers of '{name}' read again" for name, (rows, of) in comparison["witnessed"].items()]
    parts += [
        f"{steps} of {of} steps of '{name}' trained again" for name, (steps, of) in comparison["replayed"].items()
    ]
    parts += [f"training of '{stage}' not replayed" for stage in comparison["not_replayed"]]
    parts += [
        f"{claims} scores of '{stage}' are its scorer's claim"
        for stage, claims in comparison.get("claimed", {}).items()
    ]
    return "".join(f"; {part}" for part in parts)


def further_seeds(entries: Sequence[RecordedEntry], store: Store) -> str:
    """Return what came of the further seeds of a closed session, or which session's seed this is; empty without any."""
    if (counted := find(entries, "replicated")) is not None:
        return str(store.get_value(counted.raw["result"])["told"])
    if (planned := find(entries, "replication")) is not None:
        return f"{len(planned.raw['seeds'])} further seeds are registered and not yet counted"
    opened = find(entries, "open")
    of = opened.raw.get("replicates") if opened else None
    return f"one of the further seeds of '{plain(of['session'], 100)}'" if of else ""


def why_it_ended(entries: Sequence[RecordedEntry], store: Store, outcome: str) -> list[str]:
    """Return the reasons of the last judgement, with the rows that show them where a check failed.

    Of a session in which people decided instead of gates: what each of them decided.
    """
    if outcome == "overridden":
        lifted = (
            (plain(override.raw["by"], 100), done_by_person(override), override.raw["reason"])
            for override in overrides(History(entries))
        )
        return [f"{by} {what}: {plain(reason, 500)}" for by, what, reason in lifted]
    last = next((entry for entry in reversed(entries) if entry.kind in ("decision", "human", "budget")), None)
    if last is None:
        return []
    if last.kind == "budget":
        return [plain(reason, 500) for reason in last.raw["reasons"]]
    if last.kind == "human":
        return [f"{plain(last.raw['by'], 100)} answered '{last.raw['answer']}': {plain(last.raw['reason'], 500)}"]
    lines = told_once(last.raw["reasons"])
    if last.raw["outcome"] == "reject":
        for check in checks_of(entries, store, last.raw["stage"] or "design", last.raw["attempt"]):
            if check.status == "FAIL" and check.blocking:
                lines += [f"{check.id}: {_row(row)}" for row in check.shown]
    return lines


def told_once(reasons: Sequence[str]) -> list[str]:
    """Return a decision's reasons without the checklist's findings that repeat a check before them."""
    checks = [reason.partition(": ")[2] for reason in reasons if reason.startswith("check ")]
    return [
        reason
        for reason in reasons
        if not (reason.startswith("checklist: ") and reason.endswith(tuple(f". {c}" for c in checks)))
    ]


def done_by_person(value: RecordedEntry) -> str:
    """Return what a person did by an entry: an answer, an override, an amendment or a retraction."""
    kind, body = value.kind, value.raw
    match kind:
        case "human":
            what = f"answered '{body['answer']}' at {body['stage'] or 'design'}.{body['attempt']}"
            what += f", waiving {', '.join(body['waives'])}" if body["waives"] else ""
        case "override":
            lifted = f"check {body['check']} of {body['stage']}" if body["check"] else f"condition {body['condition']}"
            what = f"lifted {lifted}"
        case "amendment":
            status = "in force" if is_in_force(value) else f"not in force ({body['outcome']})"
            what = f"amended {', '.join(change['pointer'] for change in body['changes'])}: {status}"
            what += ", over its review" if body["overridden"] else ""
        case _:
            what = f"took back {', '.join(body['judgements'])}"
    return plain(what, 1000)


def _row(row: dict[str, Any]) -> str:
    if {"how", "train_text"} <= row.keys():
        return (
            f'{row["how"]} ({row["similarity"]:g}): {row["train"]} "{row["train_text"]}" '
            f'= held-out {row["heldout"]} "{row["heldout_text"]}"'
        )
    return ", ".join(f"{name} {value}" for name, value in row.items())


def checks_of(entries: Sequence[RecordedEntry], store: Store, stage: str, attempt: int) -> list[CheckResult]:
    """Return the recorded results of the checks of an attempt."""
    recorded = find(entries, f"checks/{stage}.{attempt}")
    return [CheckResult.model_validate(value) for value in store.get_value(recorded.raw["checks"])] if recorded else []


def comparison_of(entries: Sequence[RecordedEntry], store: Store, resolved: ResolvedSpec) -> dict[str, Any] | None:
    """Return the registered comparison from the metric sets of the two arms; None if it was not reached."""
    analysis = resolved.spec.analysis
    baseline, treatment = (_latest_metrics(entries, store, arm) for arm in (analysis.baseline, analysis.treatment))
    if baseline is None or treatment is None or "mcnemar_p" not in treatment[1]:
        return None
    claimed = {
        arm: claims
        for arm in (analysis.baseline, analysis.treatment)
        if (claims := _count_claimed_scores(entries, store, arm))
    }
    names = ("accuracy_gain", "mcnemar_p", "gained", "lost", "cohens_h", *metrics_of("rule"))
    return {
        "primary_metric": analysis.primary_metric,
        "baseline_accuracy": baseline[1][analysis.primary_metric]["value"],
        "treatment_accuracy": treatment[1][analysis.primary_metric]["value"],
        "metrics": {name: treatment[1][name] for name in names if name in treatment[1]},
        "baseline_metrics": baseline[0],
        "treatment_metrics": treatment[0],
        "without_kind": _without_kind(entries, store, analysis.treatment),
        "witnessed": count_witnessed_rows(entries, store, (analysis.baseline, analysis.treatment)),
        "replayed": count_witnessed_rows(entries, store, list_replayed_stages(resolved.spec)),
        "not_replayed": not_replayed(entries, resolved.spec),
        "registered": {"alpha": analysis.alpha, "minimum_effect": analysis.minimum_effect, "n": analysis.n},
        **({"claimed": claimed} if claimed else {}),
        **({"form": form} if (form := _form_in(entries, store, analysis.treatment)) else {}),
    }


def _form_in(entries: Sequence[RecordedEntry], store: Store, treatment: str) -> dict[str, Any] | None:
    """Return how many wrong answers hold the right one, where `scorer.length` warns of it."""
    checks = _newest_checks(entries, store, treatment)
    return next((check.shown[0] for check in checks if check.id == "scorer.length" and check.shown), None)


def _without_kind(entries: Sequence[RecordedEntry], store: Store, treatment: str) -> dict[str, Any] | None:
    """Return the least gain that is left without a kind of items, where it is less than the registered effect."""
    checks = _newest_checks(entries, store, treatment)
    return next((check.shown[0] for check in checks if check.id == "strata.sensitivity" and check.shown), None)


def _count_claimed_scores(entries: Sequence[RecordedEntry], store: Store, stage: str) -> int:
    """Return how many scores of a stage's newest attempt are what a benchmark's own scorer says."""
    check_results = _newest_checks(entries, store, stage)
    return next(
        (
            int(check_result.figure or 0)
            for check_result in check_results
            if check_result.id == SCORES and check_result.status == "WARN"
        ),
        0,
    )


def _newest_checks(entries: Sequence[RecordedEntry], store: Store, stage: str) -> Sequence[CheckResult]:
    """Return the checks of a stage's newest attempt; none before its first gate."""
    gates = [entry.raw["attempt"] for entry in entries if entry.kind == "checks" and entry.raw["stage"] == stage]
    return checks_of(entries, store, stage, gates[-1]) if gates else []


def count_witnessed_rows(entries: Sequence[RecordedEntry], store: Store, stages: Sequence[str]) -> dict[str, list[int]]:
    """Return for each stage how many rows of its latest attempt a witness read, and of how many."""
    counts: dict[str, list[int]] = {}
    for entry in entries:
        if entry.kind == "witness" and entry.raw["stage"] in stages and entry.raw["rows"]:
            request = find(entries, f"challenge/{entry.raw['stage']}.{entry.raw['attempt']}")
            order = JobOrder.model_validate_json(store.get(request.raw["order"])) if request else None
            if order is not None and order.challenge is not None:
                counts[entry.raw["stage"]] = list(order.challenge.counts())
    return {stage: counts[stage] for stage in stages if stage in counts}


def list_replayed_stages(spec: SessionSpec) -> list[str]:
    """Return the stages of which a witness trains steps again."""
    return [stage.name for stage in spec.stages if kind_of(stage).replay_job]


def not_replayed(entries: Sequence[RecordedEntry], spec: SessionSpec) -> list[str]:
    """Return the stages that have trained and that no witness can repeat."""
    ended = {entry.raw["stage"] for entry in entries if entry.kind == "exit"}
    return [stage.name for stage in spec.stages if stage.witness == "weights_only" and stage.name in ended]


def not_witnessed(entries: Sequence[RecordedEntry], store: Store, spec: SessionSpec) -> list[str]:
    """Return the stages whose jobs ended and of which no witness made anything again; :func:`not_replayed` apart."""
    ended = {entry.raw["stage"] for entry in entries if entry.kind == "exit"}
    others = [stage.name for stage in spec.stages if stage.name in ended and stage.witness != "weights_only"]
    counts = count_witnessed_rows(entries, store, others)
    return [name for name in others if name not in counts]


def witness_time(entries: Sequence[RecordedEntry]) -> float:
    """Return the share of the wall time of all jobs that witnesses took; 0 without jobs."""
    settled = [entry for entry in entries if entry.kind == "spend" and entry.raw.get("seconds") is not None]
    seconds = {value.key: value.raw["seconds"] for value in settled}
    return sum(value for key, value in seconds.items() if key.endswith(WITNESS)) / (sum(seconds.values()) or 1.0)


def _latest_metrics(entries: Sequence[RecordedEntry], store: Store, stage: str) -> tuple[str, dict[str, Any]] | None:
    for entry in reversed(entries):
        if entry.kind == "metrics" and entry.raw["stage"] == stage and entry.raw["metrics"]:
            return entry.raw["metrics"], store.get_value(entry.raw["metrics"])["metrics"]
    return None


def question(entries: Sequence[RecordedEntry]) -> RecordedEntry | None:
    """Return the entry a person is asked about; None if no one is asked, or only for a verdict."""
    every = list(entries)
    if not is_waiting(every) or waits_for_verdict(every) is not None:
        return None
    return waits_for_budget(History(every)) or last_question(History(every))


def result_of(request: RecordedEntry) -> str:
    """Return in one sentence why the session waits."""
    stage = request.raw.get("stage") or "design"
    match request.kind:
        case "budget":
            return f"interim, after the gate of '{stage}': the session waits for a larger budget"
        case "retraction":
            return "interim: a judgement was taken back, and a person is asked how to continue"
        case "plan":
            return f"interim: at '{stage}' the builder asks a person how to continue"
        case _:
            return f"interim: the gate of '{stage}' stays closed, and a person is asked how to continue"


def reasons_of(request: RecordedEntry) -> list[str]:
    """Return why a person is asked."""
    return [
        plain(str(reason), 500) for reason in request.raw.get("reasons") or [request.raw.get("reason", "")] if reason
    ]
