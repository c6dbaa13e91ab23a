"""What a model has to know to continue an attempt, from the trail alone; texts are redacted and enclosed by markers."""

from __future__ import annotations

from collections.abc import Iterator

from reviews.gate.conditions import open_for
from reviews.history.history import History
from sessions.builder.redaction import Redactor
from sessions.builder.stage_view import opener_of
from sessions.builder.tools.tool_context import PhaseWork
from sessions.run.money import ledger
from sessions.session import Session
from specs.jobs.grant_and_claim import StageView
from specs.session.design import Budget
from specs.session.operations import attempt_usd
from specs.stages.registry import Stage
from specs.system.text import enclose
from specs.trail.gate_bodies import DecisionEntry, HumanAnswerEntry, NoteEntry
from specs.trail.tool_arguments import Phase

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
    history = session.history
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
        _describe_remaining_budget(history, spec.budget, stage),
        *_obligations(session, wall, history, stage),
        *_before(session, wall, history, stage, attempt, view),
        *_so_far(session, history),
        *_notes(session, wall, history),
    ]
    return "\n\n".join(parts)


def _describe_remaining_budget(history: History, budget: Budget, stage: Stage) -> str:
    """Return what may still be spent, without what is held back for others."""
    accounts = ledger.Accounts(history, budget)
    own = min(limit.usd for limit in accounts.limits("builder", stage))
    job = min(limit.usd for limit in accounts.limits("job", stage))
    hours = budget.max_hours - ledger.active_hours(history)
    cap = attempt_usd(budget, stage)
    return (
        f"Left: {max(own, 0):.4f} USD for your own turns, {max(job, 0):.4f} USD for jobs of this stage (an attempt may "
        f"take {cap:.4f}), {hours:.2f} hours"
    )


def _obligations(session: Session, wall: Redactor, history: History, stage: Stage) -> Iterator[str]:
    moment = history[-1].time_ns
    parts = [
        f"- {obligation.id}: {wall.clean(obligation.condition.text, STATEMENT)}"
        for obligation in open_for(history, session.resolved, stage.name, moment)
    ]
    if parts:
        yield "Conditions of earlier approvals that keep this stage from starting.\n" + enclose(
            "conditions", "\n".join(parts)
        )


def _before(
    session: Session, wall: Redactor, history: History, stage: Stage, attempt: int, view: StageView
) -> Iterator[str]:
    """Yield what the gate said about the attempt before, as data."""
    opener = opener_of(history, stage.name, attempt)
    if isinstance(opener, HumanAnswerEntry) and opener.answer == "retry":
        yield f"A person asked for another attempt: {wall.clean(opener.reason, STATEMENT)}"
    before = history.attempt(stage.name, attempt - 1)
    if before.decision is None:
        return
    parts = [f"- {wall.clean(reason, STATEMENT)}" for reason in before.decision.body.reasons]
    if (verdict := before.verdict_value) is not None:
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
        f"The gate sent attempt {attempt - 1} back ({before.decision.body.outcome}). Required changes: {required}.\n"
        + enclose("decision", "\n".join(parts))
    )


def _so_far(session: Session, history: History) -> Iterator[str]:
    """Yield every attempt so far with its outcome and the metrics of its gate."""
    parts: list[str] = []
    for entry in history.of(DecisionEntry, HumanAnswerEntry):
        body = entry.body
        if not body.stage:
            continue
        stage = next((spec_stage for spec_stage in session.resolved.spec.stages if spec_stage.name == body.stage), None)
        outcome = body.outcome if isinstance(body, DecisionEntry) else f"{body.answer} (a person)"
        used = ", taken back" if entry.seq in history.retracted else ""
        parts.append(f"- {body.stage}.{body.attempt}: {outcome}{used}{_figures(history, stage, body.attempt)}")
    if parts:
        yield "\n".join(["Decided so far:", *parts])


def _figures(history: History, stage: Stage | None, attempt: int) -> str:
    measured = history.attempt(stage.name, attempt).metric_set if stage else None
    if stage is None or measured is None:
        return ""
    metrics = measured.metrics
    names = [criterion.metric for criterion in stage.gate.criteria if criterion.metric in metrics]
    return "".join(f"; {name} {metrics[name].value:.4g}" for name in names)


def _notes(session: Session, wall: Redactor, history: History) -> Iterator[str]:
    """Yield the builder's newest notes; all can be read by name."""
    notes = [entry.body for entry in history.of(NoteEntry)]
    if not notes:
        return
    parts: list[str] = []
    for number, note in list(enumerate(notes, 1))[-NEWEST_NOTES:]:
        text = session.store.get(note.text).decode("utf-8", "replace")
        parts.append(f"note.{number} ({note.what}, {note.stage}.{note.attempt}):\n{wall.clean(text, NOTE)}")
    yield f"Your notes ({len(notes)} in all; the newest):\n" + enclose("notes", "\n\n".join(parts))
