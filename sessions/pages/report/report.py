"""The report of a session: JSON for machines, Markdown for people, plots for both.

Every number comes from a metric set in the store or is counted from the trail; statements of jobs and builders are not
copied. The trail records the digest of each file.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from reviews.acceptance.criterion_state import acceptance_of
from reviews.acceptance.scorecard import scorecard_of
from reviews.evidence.gather import evaluations
from reviews.evidence.row_reader import read_rows
from reviews.history.attempt import Attempt
from reviews.history.history import History
from reviews.history.people import ByPerson, count_overrides, is_override, obligations
from reviews.history.recorded_code import code_lines
from reviews.reviewers.checklist import NOT_JUDGED
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import write_durably
from sessions.pages import template
from sessions.pages.acceptance.automation import automation_of
from sessions.pages.comparison import (
    comparison_of,
    count_witnessed_rows,
    list_replayed_stages,
    not_replayed,
    not_witnessed,
)
from sessions.pages.diagnosis import curve_plots
from sessions.pages.diagnosis.diagnosis import diagnose_from_trail
from sessions.pages.overview import when
from sessions.pages.report import plots, transcript
from sessions.pages.report.next_steps import answers_to, remedies
from sessions.pages.report.page_result import UNREADABLE
from sessions.pages.report.remarks import critic_in_words, trained_by_scripts
from sessions.pages.report.samples.compared_arms import Arms, arms_of, by_kind, examples_of
from sessions.pages.report.timeline import interruptions
from sessions.pages.result import (
    describe_human_entry,
    question,
    reasons_of,
    result_in_words,
    result_of,
    why_it_ended,
    witness_time,
)
from sessions.run.final_model import final_model
from sessions.run.money import ledger
from sessions.run.run_layout import FINAL, REPORT_JSON, STORE, TRAIL
from specs.session.thresholds import Thresholds
from specs.stages.registry import kind_of
from specs.system.digests import canonical_bytes, digest_bytes, digest_file
from specs.system.errors import AuditDamage, EvidenceMissing, PeergateError
from specs.system.masking import Masker, current, forms_only
from specs.system.regular_files import read_regular
from specs.system.text import one_line, plain
from specs.trail.entry import DESIGN
from specs.trail.gate_bodies import (
    AmendmentEntry,
    DecisionEntry,
    HumanAnswerEntry,
    OverrideEntry,
    RetractionEntry,
    VerdictEntry,
)
from specs.trail.session_bodies import ExitEntry, ModelEntry, ReportEntry
from specs.trail.verdict import Verdict

WAITING = "waiting"
"""The outcome in an interim report."""


def write(run: Path, trail: str, store_name: str, outcome: str, folder: str = FINAL) -> dict[str, Any]:
    """Write the report of a session that ends with ``outcome``; returns the body of its entry in the trail."""
    history = History.read(run / trail, run / store_name)
    data, arms = _data(run, history, outcome)
    data["plots"] = draw_plots(run / folder, data, history)
    texts = _texts(data, arms, history, current())
    for name, text in texts.items():
        write_durably(run / folder / name, text)
    files = {f"{folder}/{name}": digest_file(run / folder / name) for name in (*texts, *data["plots"])}
    return {"files": files, "entries": len(history), "outcome": outcome}


def draw_plots(folder: Path, data: dict[str, Any], history: History, form: curve_plots.Form = "svg") -> list[str]:
    """Draw the plots of a report into a folder; returns the file names, the headline first."""
    trained = [
        curve_plots.AttemptCurves(diagnosis.stage, diagnosis.attempt, diagnosis.curves, diagnosis.marks())
        for diagnosis in diagnose_from_trail(history)
    ]
    return plots.draw(folder, data, _losses(history), trained, form)


def recorded_report(run: Path, history: History) -> dict[str, Any]:
    """Return the recorded report of a closed session.

    Raises:
        EvidenceMissing: the session has no report, or its file cannot be read.
        AuditDamage: the file is not the recorded one.
    """
    written = history.find(ReportEntry)
    digest = written.body.files.get(REPORT_JSON) if written else None
    if digest is None:
        raise EvidenceMissing("the session has no report", where=str(run))
    try:
        data = read_regular(run / REPORT_JSON)
    except OSError as error:
        raise EvidenceMissing(f"the report cannot be read: {error.strerror or error}", where=str(run)) from error
    if digest_bytes(data) != digest:
        raise AuditDamage(f"{REPORT_JSON} is not the recorded {digest}", where=str(run))
    return json.loads(data)


def report_so_far(run: Path, history: History) -> dict[str, Any]:
    """Return the report of a session that has not ended, as data, without plots; nothing of it is recorded."""
    data, _ = _data(run, history, WAITING)
    if question(history) is None:
        data["result"] = "the session has not ended: nothing of it is a result yet"
    return data


def rendered_again(run: Path) -> dict[str, bytes]:
    """Return the texts of a run folder's report as :func:`render` does; empty if the trail records no report."""
    history = History.read(run / TRAIL, run / STORE)
    written = history.find(ReportEntry)
    return {} if written is None else render(run, history, written.body)


def render(folder: Path, history: History, written: ReportEntry) -> dict[str, bytes]:
    """Return the texts of a report as trail and store give them, by path. Its entry, ``written``, names the plots.

    Raises:
        EvidenceMissing: the store lacks something that the report is made from.
        AuditDamage: no report can be made from this trail and store.
    """
    until_then = history[: written.entries]
    try:
        data, arms = _data(folder, until_then, written.outcome)
        data["plots"] = plots.select_plots(written.files, FINAL)
        # Secrets that only this process knows must not change the result.
        texts = _texts(data, arms, until_then, forms_only())
    except PeergateError:
        raise
    except (*UNREADABLE, TemplateError) as error:
        raise AuditDamage(f"the report cannot be rendered: {one_line(str(error), 200)}", where=str(folder)) from error
    return {f"{FINAL}/{name}": text for name, text in texts.items()}


def render_waiting_report(run: Path, trail: str, store_name: str) -> tuple[dict[str, Any], str]:
    """Return the report of a waiting session as data and Markdown; raises EvidenceMissing if it asks nothing."""
    history = History.read(run / trail, run / store_name)
    if question(history) is None:
        raise EvidenceMissing(f"session '{run.name}' asks nothing of a person", where=str(run))
    data, arms = _data(run, history, WAITING)
    return data, as_markdown(data, examples_of(arms), current())


def _texts(data: dict[str, Any], arms: Arms | None, history: History, masker: Masker) -> dict[str, bytes]:
    """Return every file of a report but its plots, by name: the same data gives the same bytes."""
    data = masker.value(data)
    texts = {
        "report.json": json.dumps(json.loads(canonical_bytes(data)), indent=2, ensure_ascii=False),
        "report.md": as_markdown(data, examples_of(arms), masker),
        transcript.MARKDOWN: transcript.render_transcript(history, masker),
    }
    return {name: text.encode() for name, text in texts.items() if text}


def _data(run: Path, history: History, outcome: str) -> tuple[dict[str, Any], Arms | None]:
    """Return the data of a report without its plots, and the judged rows of both arms."""
    resolved, session = history.resolved, history.session
    limits = resolved.spec.thresholds
    stages = [stage_of(history, stage.name, stage.kind, limits) for stage in resolved.spec.stages]
    arms = arms_of(run, history)
    request = question(history) if outcome == WAITING else None
    comparison = comparison_of(history)
    balance = ledger.balance_of(history, resolved.spec.budget)
    model, judged = history.find(ModelEntry), history.newest(VerdictEntry)
    # *retry* has a design judged again.
    designs = sum(entry.body.stage is None for entry in history.of(DecisionEntry))
    data: dict[str, Any] = {
        "schema_version": 1,
        "session": session,
        "outcome": outcome,
        "result": result_of(request) if request else result_in_words(history, outcome, comparison),
        "why": reasons_of(request) if request else why_it_ended(history, outcome) if outcome != "approve" else [],
        "answers": [way.as_json() for way in answers_to(history, request, session)] if request else [],
        "remedies": [remedy._asdict() for remedy in remedies(history)] if request or outcome == "reject" else [],
        "objective": resolved.spec.objective,
        "registration": history.registration,
        "analysis": resolved.spec.analysis.model_dump(mode="json"),
        "heldout": resolved.spec.heldout.digest,
        "model": model.body.model_dump(include={"source", "kind", "digest"}) if model else None,
        "code": code_lines(history),
        "plugins": [f"{what}: {identity}" for what, identity in resolved.plugins.items()],
        "scripts": trained_by_scripts(history),
        "builder": resolved.spec.builder.vendor,
        "reviewer": ", ".join(reviewer.vendor for reviewer in resolved.spec.reviewers()),
        "not_judged": list(
            Verdict.model_validate(history.store.get_value(judged.body.verdict)).not_judged if judged else NOT_JUDGED
        ),
        "design": gate_of(history.attempt(DESIGN, designs)),
        "comparison": comparison,
        "witnessed": count_witnessed_rows(
            history, [stage.name for stage in resolved.spec.stages if not kind_of(stage).replay_job]
        ),
        "replayed": count_witnessed_rows(history, list_replayed_stages(resolved.spec)),
        "not_replayed": not_replayed(history, resolved.spec),
        "not_witnessed": not_witnessed(history, resolved.spec),
        "witness_time": witness_time(history),
        "stages": [stage for stage in stages if stage["attempts"]],
        "diagnosis": [diagnosis.as_json(curves=False) for diagnosis in diagnose_from_trail(history)],
        "not_reached": [stage["stage"] for stage in stages if not stage["attempts"]],
        "evaluations_of_heldout": evaluations(history),
        "interruptions": [
            {"at": when(entry), "entry": entry.seq, "what": what} for entry, what in interruptions(history)
        ],
        "people": [
            _person(entry) for entry in history.of(HumanAnswerEntry, OverrideEntry, AmendmentEntry, RetractionEntry)
        ],
        "overrides": count_overrides(history),
        "conditions": [
            {
                "id": obligation.id,
                "stage": obligation.condition.stage,
                "text": obligation.condition.text,
                "state": obligation.state,
            }
            for obligation in obligations(history, history[-1].time_ns)
        ],
        "exploratory": history.is_exploratory,
        "accuracy_by_kind": by_kind(arms),
        "spent_usd": round(balance.spent_usd, 6),
        "max_cost_usd": resolved.spec.budget.max_cost_usd,
        "hours": round(balance.hours, 4),
        "started": when(history[0]),
        "trail": {"entries": len(history), "head": history[-1].digest},
        "verify": f"peergate audit verify {session}",
        "left": final._asdict() if (final := final_model(history, resolved.spec)) else None,
        "plots": [],
    }
    if outcome != WAITING:
        data["scorecard"] = scorecard_of(history).as_json()
    automation = automation_of(history)
    data["automation"] = automation._asdict() | {"line": automation.line()}
    if line := resolved.spec.describe_constitution():
        data["constitution"] = line
    if resolved.spec.companions:
        data["companions"] = {
            name: companion.model_dump(mode="json") for name, companion in resolved.spec.companions.items()
        }
    if resolved.spec.criteria:
        data["acceptance"] = acceptance_of(history).as_json()
    return data, arms


def as_markdown(data: dict[str, Any], examples: list[dict[str, Any]], masker: Masker) -> str:
    """Return the report for people: what failed first, what passed folded, digests at the end."""
    gates = _gates(data)
    visible = data | {"gates": gates, "open_checks": [row for gate in gates for row in gate["open"]]}
    return masker.text(template.render("report.md.j2", report=visible, examples=examples))


_QUIET = ("PASS", "NOT_APPLICABLE")


def _gates(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Return every gate with the attempt it judged, in order, and what in it did not pass."""
    results: list[dict[str, Any]] = [{"place": "design", "kind": "", "gate": data["design"], "attempt": None}]
    for stage in data["stages"]:
        for attempt in stage["attempts"]:
            place = f"{stage['stage']}.{attempt['attempt']}"
            results.append({"place": place, "kind": stage["kind"], "gate": attempt["gate"], "attempt": attempt})
    for value in results:
        checks = value["gate"]["checks"] if value["gate"] else ()
        value["open"] = [{"place": value["place"], **check} for check in checks if check["status"] not in _QUIET]
        unmet = value["gate"] and (
            any(not criterion["met"] for criterion in value["gate"]["criteria"])
            or any(claim["status"] != "supported" for claim in value["gate"]["claims"])
        )
        value["detailed"] = bool(value["gate"]) and (value["gate"]["outcome"] != "approve" or bool(unmet))
    return [value for value in results if value["gate"] or value["attempt"]]


def _person(entry: RecordedEntry[ByPerson | RetractionEntry]) -> dict[str, Any]:
    """Return what a person did in one sentence, with their name and reason."""
    body = entry.body
    return {
        "kind": entry.kind,
        "what": describe_human_entry(entry),
        "by": plain(body.by, 100),
        "reason": plain(body.reason, 1000),
        "override": is_override(entry),
        "expires": body.expires if isinstance(body, (HumanAnswerEntry, OverrideEntry)) else None,
        "at": when(entry),
    }


def gate_of(attempt: Attempt) -> dict[str, Any] | None:
    """Return what the gate of an attempt saw and decided."""
    if attempt.decision is None:
        return None
    decision, packet = attempt.decision.body, attempt.packet_value
    return {
        "outcome": decision.outcome,
        "reasons": list(decision.reasons),
        "required": decision.required,
        "checks": [
            check_result.model_dump(include={"id", "title", "status", "blocking", "detail"})
            for check_result in attempt.check_results
        ],
        "criteria": [
            {
                "criterion": str(criterion.criterion),
                "value": criterion.value,
                "met": criterion.met,
                "hypothesis": criterion.hypothesis,
            }
            for criterion in (packet.criteria if packet else ())
        ],
        "claims": [claim.model_dump(mode="json") for claim in (packet.claims if packet else ())],
        "packet": attempt.packet.body.packet if attempt.packet else None,
        "verdict": attempt.verdict.body.verdict if attempt.verdict else None,
        "decision": decision.decision,
    }


def stage_of(history: History, name: str, kind: str, limits: Thresholds) -> dict[str, Any]:
    """Return every attempt of a stage, failed ones included."""
    accepted = history.accepted_attempt(name)
    attempts: list[dict[str, Any]] = []
    for attempt in history.attempts(name):
        digest = attempt.metrics.body.metrics if attempt.metrics else None
        metrics: dict[str, Any] = history.store.get_value(digest)["metrics"] if digest else {}
        settled = attempt.settlement
        attempts.append(
            {
                "attempt": attempt.number,
                "changes": attempt.plan.body.changes if attempt.plan else {},
                "job": attempt.job_state,
                "seconds": settled.seconds if settled else None,
                "usd": settled.usd if settled else None,
                "metrics_digest": digest,
                "metrics": metrics,
                "critic": critic_in_words(kind, metrics, limits),
                "gate": gate_of(attempt),
            }
        )
    return {
        "stage": name,
        "kind": kind,
        "accepted_attempt": accepted.number if accepted else None,
        "attempts": attempts,
    }


def _losses(history: History) -> dict[str, list[float]]:
    """Return the step losses of each training attempt, from its raw rows."""
    return {f"{stage}, attempt {number}": values for (stage, number), values in steps_of(history).items()}


def steps_of(history: History, name: str = "loss") -> dict[tuple[str, int], list[float]]:
    """Return a column of the steps of each training attempt, from its raw rows, by stage and attempt."""
    spec = history.resolved.spec
    training = {stage.name for stage in spec.stages if kind_of(stage).trains}
    curves: dict[tuple[str, int], list[float]] = {}
    for body in (entry.body for entry in history.of(ExitEntry)):
        if body.stage in training and "rows" in body.outputs:
            # Rows that cannot be read were no evidence either, so they have no curve.
            with suppress(EvidenceMissing):
                path = history.store.path(body.outputs["rows"].digest)
                rows = read_rows(path, kind_of(spec.stage(body.stage)).rows["rows"], "steps")
                values = [getattr(row, name, None) for row in rows]
                curves[body.stage, body.attempt] = [value for value in values if value is not None]
    return curves


def curves_of(history: History) -> list[dict[str, Any]]:
    """Return the loss and the learning rate of each training attempt, from its raw rows."""
    results: list[dict[str, Any]] = []
    for name, title in (("loss", "loss, nats per token"), ("learning_rate", "learning rate")):
        for (stage, attempt), values in steps_of(history, name).items():
            drawn = plots.curve(values, title)
            if drawn is not None:
                results.append(drawn | {"stage": stage, "attempt": attempt})
    return sorted(results, key=lambda value: (value["stage"], value["attempt"]))
