"""Where the builder works: planning, watching, submitting."""

from __future__ import annotations

from contextlib import suppress

from sessions.builder.helper_workbench import HelperWorkbench
from sessions.builder.loop_detection import MOST_REVISIONS, revisions_in_a_row
from sessions.builder.tools.tool_context import LaunchRequest
from sessions.builder.workbench import SessionWorkbench
from sessions.session import Session, State
from specs.jobs.grant_and_claim import Claim
from specs.stages.registry import Stage
from specs.system.errors import BudgetExceeded
from specs.trail.gate_bodies import SubmitEntry
from specs.trail.tool_arguments import Phase


def open_bench(session: Session, stage: Stage, attempt: int, phase: Phase) -> SessionWorkbench:
    """Return the workbench of a phase, which may open helpers."""
    return SessionWorkbench(session, stage, attempt, phase, open_helper=HelperWorkbench)


def work_through(session: Session, stage: Stage, attempt: int) -> LaunchRequest:
    """Have the builder plan; a person is asked if it gives up or the gate sends too many attempts back."""
    back = revisions_in_a_row(session.history, stage.name)
    if back >= MOST_REVISIONS:
        return LaunchRequest(reason=f"the gate sent back {back} attempts in a row", escalate=True)
    bench = open_bench(session, stage, attempt, "plan")
    if not bench.done:
        session.builder.work(bench)
    if bench.work.launch is not None:
        return bench.work.launch
    return LaunchRequest(reason=f"the builder stopped: {bench.gave_up or 'it requested no launch'}", escalate=True)


def watch_over(session: Session, stage: Stage, attempt: int) -> None:
    """Let the builder watch its job. The session waits for the end in any case."""
    bench = open_bench(session, stage, attempt, "watch")
    if not bench.done:
        # Without money for the builder only the session watches: the job is paid for.
        with suppress(BudgetExceeded):
            session.builder.work(bench)


def submit(session: Session, state: State) -> State:
    """Let the builder state its claims about the attempt; without a submission there are none."""
    stage = session.resolved.spec.stage(state.get("stage", ""))
    attempt = state.get("attempt", 0)
    if session.find(SubmitEntry, stage.name, attempt) is not None:
        return {"route": "go"}
    bench = open_bench(session, stage, attempt, "submit")
    if not bench.done:
        session.builder.work(bench)
    handed_in = bench.work.submission
    body = SubmitEntry(
        stage=stage.name,
        attempt=attempt,
        # Whole: a tolerance that was not stated is recorded too.
        claims=tuple(Claim(**dict(claim)) for claim in handed_in.claims) if handed_in else (),
        answers=handed_in.answers if handed_in else {},
        sent_back=bench.sent_back,
        unsubmitted="" if handed_in else bench.gave_up or "the builder handed nothing in",
    )
    session.trail.append(body)
    return {"route": "go"}
