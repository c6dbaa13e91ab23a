"""The state of a session, read from its trail alone: for `list`, `status` and the report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from reviews.history.history import History
from reviews.history.people import waits_for_budget
from reviews.history.recorded_history import is_in_force
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.tables.open_table import read_entries
from sessions.run.lease import is_running
from sessions.run.run_layout import TRAIL, is_run
from specs.system.errors import BlockedError, ExitCode, PeergateError
from specs.trail.entry import DESIGN, EntryKind
from specs.trail.gate_bodies import (
    AmendmentEntry,
    DecisionEntry,
    HumanAnswerEntry,
    PacketEntry,
    PlanEntry,
    RetractionEntry,
    VerdictEntry,
)
from specs.trail.session_bodies import CloseEntry, LaunchEntry, OpenEntry, PauseEntry, ResumeEntry, SpendEntry

SessionState = Literal["running", "waiting", "paused", "closed", "damaged"]

OPEN: tuple[SessionState, ...] = ("waiting", "paused")
STATE_KINDS: tuple[EntryKind, ...] = (
    *("open", "plan", "packet", "verdict", "decision", "human", "budget", "amendment", "retraction", "close"),
    *("pause", "resume"),
)
"""The kinds of entries that decide the state of a session."""

EXIT_CODES: dict[str, ExitCode] = {
    "approve": ExitCode.DONE,
    "null": ExitCode.DONE,
    "overridden": ExitCode.REJECTED,
    "reject": ExitCode.REJECTED,
    "stop": ExitCode.REJECTED,
    "retracted": ExitCode.REJECTED,
    "budget": ExitCode.BUDGET,
    "cancelled": ExitCode.INTERRUPTED,
}
"""The exit code of a closed session, by its decision."""


@dataclass(frozen=True)
class Overview:
    """One session in a few words."""

    name: str
    path: Path
    state: SessionState
    decision: str | None
    """approve, null, overridden, reject, stop, budget, cancelled or retracted; None while the session is open."""
    stage: str | None
    attempt: int | None
    gate: str | None
    """The newest decision of a gate: ``STAGE.ATTEMPT OUTCOME``."""
    started: str | None
    ended: str | None
    reasons: tuple[str, ...]
    entries: int

    def as_json(self) -> dict[str, Any]:
        """Return the form of `list --json` and `status --json`."""
        return vars(self) | {"path": str(self.path), "reasons": list(self.reasons)}


def overview(run: Path) -> Overview:
    """Read the state of the session in a run folder; a damaged trail is a state, not an error."""
    try:
        history = History(read_entries(run / TRAIL))
        result = summary(run.name, run, history, len(history))
    except (PeergateError, OSError) as error:
        return make_damaged_overview(run.name, run, error)
    return running(result) if result.state in OPEN and is_running(run) else result


def running(overview_of: Overview) -> Overview:
    """Return the overview of an open session that a process runs: why it was paused no longer counts."""
    reasons = () if overview_of.state == "paused" else overview_of.reasons
    return replace(overview_of, state="running", reasons=reasons)


def spent_nothing(run: Path) -> bool:
    """Return whether a session ended, or waits for a person, before it launched a job or spent money."""
    if overview(run).state not in ("closed", "waiting"):
        return False
    history = History(read_entries(run / TRAIL))
    return not history.of(LaunchEntry) and not any(entry.body.usd > 0 for entry in history.of(SpendEntry))


def make_damaged_overview(name: str, path: Path, error: Exception) -> Overview:
    """Return the overview of a session whose trail cannot be read."""
    return Overview(name, path, "damaged", None, None, None, None, None, None, (str(error),), 0)


def summary(name: str, path: Path, history: History, count: int) -> Overview:
    """Return the state that a trail of ``count`` entries shows.

    ``entries`` has those of :data:`STATE_KINDS`.
    """
    closed, last_plan, gate = history.newest(CloseEntry), history.newest(PlanEntry), history.newest(DecisionEntry)
    judged = history.newest_judgement
    taken_back = closed is not None and judged is not None and isinstance(judged.body, RetractionEntry)
    decision = closed.body.decision if closed else None
    state: SessionState = "closed" if closed else "waiting" if is_waiting(history) else "paused"
    return Overview(
        name=name,
        path=path,
        state=state,
        decision="retracted" if taken_back else decision,
        stage=last_plan.body.stage if last_plan else None,
        attempt=last_plan.body.attempt if last_plan else None,
        gate=f"{gate.body.stage or DESIGN}.{gate.body.attempt} {gate.body.outcome}" if gate else None,
        started=when(history[0]) if history else None,
        ended=when(closed) if closed else None,
        reasons=_reasons(history, state, decision),
        entries=count,
    )


def _reasons(history: History, state: SessionState, decision: str | None) -> tuple[str, ...]:
    """Return why a session is in its state."""
    if decision == "cancelled" or state == "paused":
        return (_paused_by(history, "cancelled" if decision == "cancelled" else "paused"),)
    if state == "waiting" and (packet := waits_for_verdict(history)) is not None:
        return (f"gate {packet.key.partition('/')[2]} waits for a person's verdict",)
    if state == "waiting" and (short := waits_for_budget(history)) is not None:
        return short.body.reasons
    if state == "waiting" and (plan := _stopped_builder(history)) is not None:
        return (f"{plan.stage}.{plan.attempt}: {plan.reason}",)
    judged = history.newest_judgement
    return judged.body.reasons if judged and not isinstance(judged.body, HumanAnswerEntry) else ()


def _paused_by(history: History, what: str) -> str:
    """Return who paused or cancelled a session, or what it waited for and has; a killed process leaves no entry."""
    stop = history.newest(PauseEntry, ResumeEntry)
    if stop is not None and isinstance(stop.body, PauseEntry):
        return f"{what} by {stop.body.by}, {when(stop)[:16].replace('T', ' ')} UTC"
    if what == "cancelled":
        return what
    last = history.newest(AmendmentEntry, VerdictEntry, DecisionEntry, HumanAnswerEntry, ResumeEntry)
    if last is not None and is_in_force(last):
        return "the design was amended: `peergate resume` continues"
    if last is not None and isinstance(last.body, VerdictEntry) and last.body.reviewer == "person":
        return "a person has judged the gate: `peergate resume` continues"
    return "its process ended without a pause: it was killed, or its machine stopped"


def _stopped_builder(history: History) -> PlanEntry | None:
    """Return the plan with which the builder handed over to a person, if nothing was answered since."""
    last = history.newest(PlanEntry, HumanAnswerEntry, DecisionEntry)
    return last.body if last is not None and isinstance(last.body, PlanEntry) and last.body.escalate else None


def waits_for_verdict(history: History) -> RecordedEntry[PacketEntry] | None:
    """Return the newest packet if a person reviews and has not judged it."""
    opened, packet = history.find(OpenEntry), history.newest(PacketEntry)
    if packet is None or opened is None or "person" not in opened.body.reviewer:
        return None
    return None if history.find(VerdictEntry, packet.key.partition("/")[2]) else packet


def is_waiting(history: History) -> bool:
    """Return whether the session waits for a person: to answer, or to give a verdict."""
    if waits_for_verdict(history) is not None or waits_for_budget(history) is not None:
        return True
    for entry in reversed(history.of(RetractionEntry, HumanAnswerEntry, DecisionEntry, PlanEntry)):
        match entry.body:
            case RetractionEntry():
                return True
            case HumanAnswerEntry():
                return False
            case DecisionEntry() as decision:
                return decision.outcome == "escalate"
            case PlanEntry() as plan if plan.escalate:
                return True
            case _:
                continue
    return False


def find_runs(runs: Path) -> list[Path]:
    """Return the run folders below a folder, by name; raises Blocked if the folder cannot be read."""
    try:
        below = list(runs.iterdir()) if runs.is_dir() else []
    except OSError as error:
        raise BlockedError(f"cannot be read: {error.strerror}", where=str(runs)) from error
    # Names with a dot in front are those of keys, or of a session that is being opened.
    return sorted(path for path in below if not path.name.startswith(".") and is_run(path))


def when(recorded: RecordedEntry) -> str:
    """Return the time of an entry, in UTC, to the second."""
    return datetime.fromtimestamp(recorded.time_ns / 1e9, UTC).isoformat(timespec="seconds")
