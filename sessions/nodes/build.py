"""Where the builder works: planning, watching, submitting. What it leaves undone is settled here, never assumed."""

from __future__ import annotations

from contextlib import suppress

from sessions.builder.helper_workbench import HelperWorkbench
from sessions.builder.loop_detection import MOST_REVISIONS, revisions_in_a_row
from sessions.builder.tools.tool_context import Launch
from sessions.builder.workbench import SessionWorkbench
from sessions.session import Session
from sessions.state import State
from specs.errors import BudgetExceeded
from specs.stages.registry import Stage
from specs.trail.builder_tools import Phase


def open_bench(session: Session, stage: Stage, attempt: int, phase: Phase) -> SessionWorkbench:
    """Return the workbench of a phase, at which helpers may be asked too."""
    return SessionWorkbench(session, stage, attempt, phase, open_helper=HelperWorkbench)


def work_through(session: Session, stage: Stage, attempt: int) -> Launch:
    """Have the builder plan; one that gives up has a person asked, and so has one whose attempts all come back."""
    back = revisions_in_a_row(session.trail.iterate("decision", "human", "retraction"), stage.name)
    if back >= MOST_REVISIONS:
        return Launch(reason=f"the gate sent {back} attempts in a row back", escalate=True)
    bench = open_bench(session, stage, attempt, "plan")
    if not bench.done:
        session.builder.work(bench)
    if bench.work.launch is not None:
        return bench.work.launch
    return Launch(reason=f"the builder stopped: {bench.gave_up or 'it asked for no launch'}", escalate=True)


def watch_over(session: Session, stage: Stage, attempt: int) -> None:
    """Let the builder watch its job, if it wants to. The session waits for the end in any case."""
    bench = open_bench(session, stage, attempt, "watch")
    if not bench.done:
        # Without money for the builder, nobody watches but the session: the job is paid for.
        with suppress(BudgetExceeded):
            session.builder.work(bench)


def submit(session: Session, state: State) -> State:
    """Let the builder state what it claims of the attempt; without a submission there are no claims."""
    stage = session.resolved.spec.stage(state.get("stage", ""))
    attempt = state.get("attempt", 0)
    key = f"submit/{stage.name}.{attempt}"
    if session.trail.find(key) is not None:
        return {"route": "go"}
    bench = open_bench(session, stage, attempt, "submit")
    if not bench.done:
        session.builder.work(bench)
    handed_in = bench.work.submission
    body = {
        "stage": stage.name,
        "attempt": attempt,
        "claims": [one.model_dump(mode="json") for one in handed_in.claims] if handed_in else [],
        "answers": handed_in.answers if handed_in else {},
        "sent_back": bench.sent_back,
        "unsubmitted": "" if handed_in else bench.gave_up or "the builder handed nothing in",
    }
    session.trail.append("submit", key, body)
    return {"route": "go"}
