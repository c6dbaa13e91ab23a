"""What a model has to know to continue an attempt, from the trail alone; texts are redacted and enclosed by markers."""

from __future__ import annotations

from collections.abc import Iterator

from reviews.evidence.gather import find
from reviews.gate.conditions import open_for
from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry
from sessions.builder.redaction import Redactor
from sessions.builder.stage_view import opener_of
from sessions.builder.tools.tool_context import PhaseWork
from sessions.run.money import ledger
from sessions.session import Session
from specs.jobs.grant_and_claim import StageView
from specs.session.session_spec import Budget
from specs.stages.registry import Stage
from specs.system.resources import attempt_usd
from specs.system.vendors.untrusted_text import enclose
from specs.trail.builder_tools import Phase
from specs.trail.verdict import Verdict

STATEMENT = 600
NOTE = 1500
NEWEST_NOTES = 6

_DO: dict[Phase, str] = {
    "plan": (
        "Decide how the open stage is run. Read what you need, put your plan on record with propose_plan, and end this "
        "phase with launch_stage, or with ask_person if you cannot continue inside the allowed ranges."
    ),
    "watch": (
        "The job runs. job_status waits for its end; job_logs shows its log. This phase ends when the job has ended."
    ),
    "submit": (
        "The job has ended and its rows are measured. Read the metrics, run the checks if you like, leave a note for "
        "later stages with write_note, and end this phase with submit_stage. The gate decides on the measured rows; "
        "numbers you claim are only looked up among them."
    ),
}


def write_brief(work: PhaseWork, view: StageView) -> str:
    """Return the brief of one phase of one attempt."""
    session, stage, attempt, phase, wall = work.session, work.stage, work.attempt, work.phase, work.wall
    entries = list(session.trail.iterate())
    spec = session.resolved.spec
    limits = [f"{name} in [{low:g}, {high:g}]" for name, (low, high) in sorted(view.ranges.items())]
    limits += [f"{name} one of {', '.join(map(str, values))}" for name, values in sorted(view.choices.items())]
    parts = [
        f"# Session {session.name}: stage '{stage.name}' ({stage.kind}), attempt {attempt}, phase '{phase}'",
        _DO[phase],
        f"Objective: {spec.objective}",
        f"Stages in order: {', '.join(f'{stage.name} ({stage.kind})' for stage in spec.stages)}",
        f"Attempts of this stage: at most {stage.gate.max_rounds}; its job ends after {stage.max_minutes:g} minutes",
        f"Parameters now: {', '.join(f'{name} = {value}' for name, value in view.parameters.items())}",
        f"May be changed: {'; '.join(limits) or 'nothing'}",
        f"Criteria of the gate: {'; '.join(str(criterion) for criterion in stage.gate.criteria) or 'only the checks'}",
        _describe_remaining_budget(entries, spec.budget, stage),
        *_obligations(session, wall, entries, stage),
        *_before(session, wall, entries, stage, attempt, view),
        *_so_far(session, entries),
        *_notes(session, wall, entries),
    ]
    return "\n\n".join(parts)


def _describe_remaining_budget(entries: list[RecordedEntry], budget: Budget, stage: Stage) -> str:
    """Return what may still be spent, without what is held back for others."""
    accounts = ledger.Accounts(entries, budget)
    own = min(limit.usd for limit in accounts.limits("builder", stage))
    job = min(limit.usd for limit in accounts.limits("job", stage))
    hours = budget.max_hours - ledger.active_hours(entries)
    cap = attempt_usd(budget, stage)
    return (
        f"Left: {max(own, 0):.4f} USD for your own turns, {max(job, 0):.4f} USD for jobs of this stage (an attempt may "
        f"take {cap:.4f}), {hours:.2f} hours"
    )


def _obligations(session: Session, wall: Redactor, entries: list[RecordedEntry], stage: Stage) -> Iterator[str]:
    moment = entries[-1].time_ns
    parts = [
        f"- {obligation.id}: {wall.clean(obligation.condition.text, STATEMENT)}"
        for obligation in open_for(History(entries), session.resolved, stage.name, moment)
    ]
    if parts:
        yield "Conditions of earlier approvals that keep this stage from starting.\n" + enclose(
            "conditions", "\n".join(parts)
        )


def _before(
    session: Session, wall: Redactor, entries: list[RecordedEntry], stage: Stage, attempt: int, view: StageView
) -> Iterator[str]:
    """Yield what the gate said about the attempt before, as data."""
    opener = opener_of(session, stage.name, attempt)
    if view.opened_by == "retry":
        yield f"A person asked for another attempt: {wall.clean(str(opener.raw.get('reason', '')), STATEMENT)}"
    judged = find(entries, f"verdict/{stage.name}.{attempt - 1}")
    decided = find(entries, f"decision/{stage.name}.{attempt - 1}")
    if decided is None:
        return
    parts = [f"- {wall.clean(str(reason), STATEMENT)}" for reason in decided.raw["reasons"]]
    if judged is not None:
        verdict = Verdict.model_validate(session.store.get_value(judged.raw["verdict"]))
        for finding in verdict.findings:
            change = (
                f" Required: {wall.clean(finding.required_change.text, STATEMENT)}" if finding.required_change else ""
            )
            statement = wall.clean(finding.statement, STATEMENT)
            parts.append(f"- finding {wall.clean(finding.id, 60)} ({finding.severity}): {statement}{change}")
    required = ", ".join(f"{name} = {value:g}" for name, value in sorted(view.required.items())) or "none by number"
    tasks = [f"- {wall.clean(task, STATEMENT)}" for task in view.tasks]
    if tasks:
        yield "Your task in this attempt, as the gate requires it in words:\n" + enclose("task", "\n".join(tasks))
    yield (
        f"The gate sent attempt {attempt - 1} back ({decided.raw['outcome']}). Required changes: {required}.\n"
        + enclose("decision", "\n".join(parts))
    )


def _so_far(session: Session, entries: list[RecordedEntry]) -> Iterator[str]:
    """Yield every attempt so far with its outcome and the metrics of its gate."""
    void = History(entries).retracted
    parts: list[str] = []
    for entry in entries:
        if entry.kind not in ("decision", "human") or not entry.raw.get("stage"):
            continue
        name, attempt = entry.raw["stage"], entry.raw["attempt"]
        stage = next((each for each in session.resolved.spec.stages if each.name == name), None)
        outcome = entry.raw.get("outcome") or f"{entry.raw.get('answer')} (a person)"
        used = ", taken back" if entry.seq in void else ""
        parts.append(f"- {name}.{attempt}: {outcome}{used}{_figures(session, stage, attempt)}")
    if parts:
        yield "\n".join(["Decided so far:", *parts])


def _figures(session: Session, stage: Stage | None, attempt: int) -> str:
    measured = session.metrics(stage.name, attempt) if stage else None
    if stage is None or measured is None:
        return ""
    metrics = measured.metrics
    names = [criterion.metric for criterion in stage.gate.criteria if criterion.metric in metrics]
    return "".join(f"; {name} {metrics[name].value:.4g}" for name in names)


def _notes(session: Session, wall: Redactor, entries: list[RecordedEntry]) -> Iterator[str]:
    """Yield the builder's newest notes; all can be read by name."""
    notes = [entry for entry in entries if entry.kind == "note"]
    if not notes:
        return
    parts: list[str] = []
    for number, value in list(enumerate(notes, 1))[-NEWEST_NOTES:]:
        text = session.store.get(value.raw["text"]).decode("utf-8", "replace")
        at = f"{value.raw['stage']}.{value.raw['attempt']}"
        parts.append(f"note.{number} ({value.raw['what']}, {at}):\n{wall.clean(text, NOTE)}")
    yield f"Your notes ({len(notes)} in all; the newest):\n" + enclose("notes", "\n\n".join(parts))
