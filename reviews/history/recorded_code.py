"""The code that ran, as recorded by the session when it opened or resumed, and by each job."""

from __future__ import annotations

from reviews.history.recorded_history import RecordedHistory
from specs.jobs.job_records import CodeState, Manifest
from specs.system.errors import PeergateError
from specs.trail.session_bodies import ExitEntry, OpenEntry, ResumeEntry


def code_lines(history: RecordedHistory) -> list[str]:
    """Return the distinct states, each with how many processes ran it, in the order they appeared."""
    states: dict[str, list[str]] = {}
    for who, state in _states(history):
        states.setdefault(str(state or "the state of the code was not recorded"), []).append(who)
    return [f"{state} ({_describe_counts(who)})" for state, who in states.items()]


def unknown_code(history: RecordedHistory) -> str:
    """Return in a sentence what is unknown about the code that ran; empty if all of it was that of a commit."""
    states = [state for _, state in _states(history)]
    counts = {
        "ran code with changes that no commit holds": sum(
            state is not None and state.state == "changed" for state in states
        ),
        "ran code of an unknown commit": sum(state is not None and state.state == "unknown" for state in states),
        "did not record the state of their code": sum(state is None for state in states),
    }
    parts = [f"{count} {what}" for what, count in counts.items() if count]
    return f"which code ran, beyond its digest: of {len(states)} processes {', '.join(parts)}" if parts else ""


def _states(history: RecordedHistory) -> list[tuple[str, CodeState | None]]:
    pairs: list[tuple[str, CodeState | None]] = []
    for body in (entry.body for entry in history.of(OpenEntry, ResumeEntry, ExitEntry)):
        if not isinstance(body, ExitEntry):
            pairs.append(("session", body.code_state))
        elif body.manifest:
            try:
                pairs.append(("job", Manifest.model_validate_json(history.store.get(body.manifest)).code_state))
            except (PeergateError, ValueError):
                pairs.append(("job", None))
    return pairs


def _describe_counts(who: list[str]) -> str:
    jobs, sessions = who.count("job"), who.count("session")
    parts = ["the session" if sessions == 1 else f"the session, {sessions} times"] if sessions else []
    parts += [f"{jobs} job{'s' if jobs > 1 else ''}"] if jobs else []
    return " and ".join(parts)
