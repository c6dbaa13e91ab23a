"""What a model has to know to continue an attempt, from the trail alone; texts are redacted and enclosed by markers."""

from __future__ import annotations

from collections.abc import Iterator

from reviews.evidence.gather import find
from reviews.gate.conditions import open_for
from reviews.trail.envelope import Recorded
from reviews.trail.retractions import retracted
from sessions.builder.redaction import Wall
from sessions.builder.stage_view import opener_of
from sessions.builder.tools.tool_context import Work
from sessions.money import ledger
from sessions.session import Session
from specs.resources import attempt_usd
from specs.session.session_spec import Budget
from specs.stages.registry import Stage
from specs.trail.builder_tools import Phase
from specs.trail.grant_and_claim import StageView
from specs.trail.verdict import Verdict
from specs.vendors.untrusted_text import enclose

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


def write_brief(work: Work, view: StageView) -> str:
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
        f"Stages in order: {', '.join(f'{one.name} ({one.kind})' for one in spec.stages)}",
        f"Attempts of this stage: at most {stage.gate.max_rounds}; its job ends after {stage.max_minutes:g} minutes",
        f"Parameters now: {', '.join(f'{name} = {value}' for name, value in view.parameters.items())}",
        f"May be changed: {'; '.join(limits) or 'nothing'}",
        f"Criteria of the gate: {'; '.join(str(one) for one in stage.gate.criteria) or 'none beside the checks'}",
        _left(entries, spec.budget, stage),
        *_obligations(session, wall, entries, stage),
        *_before(session, wall, entries, stage, attempt, view),
        *_so_far(session, entries),
        *_notes(session, wall, entries),
    ]
    return "\n\n".join(parts)


def _left(entries: list[Recorded], budget: Budget, stage: Stage) -> str:
    """Return what may still be spent, without what is held back for others."""
    accounts = ledger.Accounts(entries, budget)
    own = min(one.usd for one in accounts.limits("builder", stage))
    job = min(one.usd for one in accounts.limits("job", stage))
    hours = budget.max_hours - ledger.active_hours(entries)
    cap = attempt_usd(budget, stage)
    return (
        f"Left: {max(own, 0):.4f} USD for your own turns, {max(job, 0):.4f} USD for jobs of this stage (an attempt may "
        f"take {cap:.4f}), {hours:.2f} hours"
    )


def _obligations(session: Session, wall: Wall, entries: list[Recorded], stage: Stage) -> Iterator[str]:
    moment = int(entries[-1].entry.time_ns)
    parts = [
        f"- {one.id}: {wall.clean(one.condition.text, STATEMENT)}"
        for one in open_for(entries, session.resolved, stage.name, moment)
    ]
    if parts:
        yield "Conditions of earlier approvals that keep this stage from starting.\n" + enclose(
            "conditions", "\n".join(parts)
        )


def _before(
    session: Session, wall: Wall, entries: list[Recorded], stage: Stage, attempt: int, view: StageView
) -> Iterator[str]:
    """Yield what the gate said about the attempt before, as data."""
    opener = opener_of(session, stage.name, attempt)
    if view.opened_by == "retry":
        yield f"A person asked for another attempt: {wall.clean(str(opener.body.get('reason', '')), STATEMENT)}"
    judged = find(entries, f"verdict/{stage.name}.{attempt - 1}")
    decided = find(entries, f"decision/{stage.name}.{attempt - 1}")
    if decided is None:
        return
    parts = [f"- {wall.clean(str(reason), STATEMENT)}" for reason in decided.body["reasons"]]
    if judged is not None:
        verdict = Verdict.model_validate(session.store.get_value(judged.body["verdict"]))
        for one in verdict.findings:
            change = f" Required: {wall.clean(one.required_change.text, STATEMENT)}" if one.required_change else ""
            statement = wall.clean(one.statement, STATEMENT)
            parts.append(f"- finding {wall.clean(one.id, 60)} ({one.severity}): {statement}{change}")
    required = ", ".join(f"{name} = {value:g}" for name, value in sorted(view.required.items())) or "none by number"
    tasks = [f"- {wall.clean(one, STATEMENT)}" for one in view.tasks]
    if tasks:
        yield "Your task in this attempt, as the gate requires it in words:\n" + enclose("task", "\n".join(tasks))
    yield (
        f"The gate sent attempt {attempt - 1} back ({decided.body['outcome']}). Required changes: {required}.\n"
        + enclose("decision", "\n".join(parts))
    )


def _so_far(session: Session, entries: list[Recorded]) -> Iterator[str]:
    """Yield every attempt so far with its outcome and the metrics of its gate."""
    void = retracted(entries)
    parts: list[str] = []
    for one in entries:
        if one.entry.kind not in ("decision", "human") or not one.body.get("stage"):
            continue
        name, attempt = one.body["stage"], one.body["attempt"]
        stage = next((each for each in session.resolved.spec.stages if each.name == name), None)
        outcome = one.body.get("outcome") or f"{one.body.get('answer')} (a person)"
        taken = ", taken back" if one.entry.seq in void else ""
        parts.append(f"- {name}.{attempt}: {outcome}{taken}{_figures(session, stage, attempt)}")
    if parts:
        yield "\n".join(["Decided so far:", *parts])


def _figures(session: Session, stage: Stage | None, attempt: int) -> str:
    measured = session.metrics(stage.name, attempt) if stage else None
    if stage is None or measured is None:
        return ""
    found = measured.metrics
    names = [one.metric for one in stage.gate.criteria if one.metric in found]
    return "".join(f"; {name} {found[name].value:.4g}" for name in names)


def _notes(session: Session, wall: Wall, entries: list[Recorded]) -> Iterator[str]:
    """Yield the builder's newest notes; all can be read by name."""
    notes = [one for one in entries if one.entry.kind == "note"]
    if not notes:
        return
    parts: list[str] = []
    for number, one in list(enumerate(notes, 1))[-NEWEST_NOTES:]:
        text = session.store.get(one.body["text"]).decode("utf-8", "replace")
        at = f"{one.body['stage']}.{one.body['attempt']}"
        parts.append(f"note.{number} ({one.body['what']}, {at}):\n{wall.clean(text, NOTE)}")
    yield f"Your notes ({len(notes)} in all; the newest):\n" + enclose("notes", "\n\n".join(parts))
