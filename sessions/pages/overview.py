"""The state of a session, read from its trail alone: for `list`, `status` and the report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from reviews.history.history import History
from reviews.history.people import waits_for_budget
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.tables.open_table import read_entries
from sessions.run.lease import is_running
from sessions.run.run_layout import TRAIL, is_run
from specs.system.errors import BlockedError, ExitCode, PeergateError
from specs.trail.entry import EntryKind

SessionState = Literal["running", "waiting", "paused", "closed", "damaged"]

OPEN: tuple[SessionState, ...] = ("waiting", "paused")
TOLD_BY: tuple[EntryKind, ...] = (
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
        entries = read_entries(run / TRAIL)
    except (PeergateError, OSError) as error:
        return make_damaged_overview(run.name, run, error)
    matching_overview = summary(run.name, run, entries, len(entries))
    return running(matching_overview) if matching_overview.state in OPEN and is_running(run) else matching_overview


def running(overview_of: Overview) -> Overview:
    """Return the overview of an open session that a process runs: why it was paused no longer counts."""
    reasons = () if overview_of.state == "paused" else overview_of.reasons
    return replace(overview_of, state="running", reasons=reasons)


def spent_nothing(run: Path) -> bool:
    """Return whether a session ended, or waits for a person, before it launched a job or paid anybody."""
    if overview(run).state not in ("closed", "waiting"):
        return False
    return not any(
        entry.kind == "launch" or (entry.kind == "spend" and entry.raw["usd"] > 0)
        for entry in read_entries(run / TRAIL)
    )


def make_damaged_overview(name: str, path: Path, error: Exception) -> Overview:
    """Return the overview of a session whose trail cannot be read."""
    return Overview(name, path, "damaged", None, None, None, None, None, None, (str(error),), 0)


def summary(name: str, path: Path, entries: list[RecordedEntry], count: int) -> Overview:
    """Return the state that a trail of ``count`` entries shows.

    ``entries`` has those of :data:`TOLD_BY`.
    """
    closed = next((entry for entry in entries if entry.kind == "close"), None)
    last_plan = next((entry for entry in reversed(entries) if entry.kind == "plan"), None)
    judged = History(entries).newest_judgement
    taken_back = closed is not None and judged is not None and judged.kind == "retraction"
    decision = closed.raw["decision"] if closed else None
    state: SessionState = "closed" if closed else "waiting" if is_waiting(entries) else "paused"
    gate = next((entry.raw for entry in reversed(entries) if entry.kind == "decision"), None)
    return Overview(
        name=name,
        path=path,
        state=state,
        decision="retracted" if taken_back else decision,
        stage=last_plan.raw["stage"] if last_plan else None,
        attempt=last_plan.raw["attempt"] if last_plan else None,
        gate=f"{gate['stage'] or 'design'}.{gate['attempt']} {gate['outcome']}" if gate else None,
        started=when(entries[0]) if entries else None,
        ended=when(closed) if closed else None,
        reasons=_reasons(entries, judged, state, decision),
        entries=count,
    )


def _reasons(
    entries: list[RecordedEntry], judged: RecordedEntry | None, state: SessionState, decision: str | None
) -> tuple[str, ...]:
    """Return why a session is in its state."""
    if decision == "cancelled":
        return (_paused_by(entries, "cancelled"),)
    if state == "paused":
        return (_paused_by(entries, "paused"),)
    if state == "waiting" and (packet := waits_for_verdict(entries)) is not None:
        return (f"gate {packet.key.partition('/')[2]} waits for a person's verdict",)
    if state == "waiting" and (short := waits_for_budget(History(entries))) is not None:
        return tuple(short.raw.get("reasons", ()))
    if state == "waiting" and (plan := _stopped_builder(entries)) is not None:
        return (f"{plan.raw['stage']}.{plan.raw['attempt']}: {plan.raw['reason']}",)
    return tuple(judged.raw.get("reasons", ())) if judged else ()


def _paused_by(entries: list[RecordedEntry], what: str) -> str:
    """Return who paused or cancelled a session; a process that was killed leaves no entry of it."""
    stop = next((entry for entry in reversed(entries) if entry.kind in ("pause", "resume")), None)
    if stop is not None and stop.kind == "pause":
        return f"{what} by {stop.raw['by']}, {when(stop)[:16].replace('T', ' ')} UTC"
    if what == "cancelled":
        return what
    return "its process ended without a pause: it was killed, or its machine stopped"


def _stopped_builder(entries: list[RecordedEntry]) -> RecordedEntry | None:
    """Return the plan with which the builder handed over to a person, if nothing was answered since."""
    last = next((entry for entry in reversed(entries) if entry.kind in ("plan", "human", "decision")), None)
    return last if last is not None and last.kind == "plan" and last.raw["escalate"] else None


def waits_for_verdict(entries: list[RecordedEntry]) -> RecordedEntry | None:
    """Return the newest packet if a person reviews and has not judged it."""
    opened = entries[0].raw.get("reviewer", "") if entries else ""
    packet = next((entry for entry in reversed(entries) if entry.kind == "packet"), None)
    if packet is None or "person" not in opened:
        return None
    at = packet.key.partition("/")[2]
    return None if any(entry.key == f"verdict/{at}" for entry in entries) else packet


def is_waiting(entries: list[RecordedEntry]) -> bool:
    """Return whether the session waits for a person: to answer, or to give a verdict."""
    if waits_for_verdict(entries) is not None or waits_for_budget(History(entries)) is not None:
        return True
    for recorded in reversed(entries):
        kind, body = recorded.kind, recorded.raw
        if kind == "retraction":
            return True
        if kind == "human":
            return False
        if kind == "decision":
            return body["outcome"] == "escalate"
        if kind == "plan" and body["escalate"]:
            return True
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
