"""What the page of one session shows: result, gates, job, curves, stages, and what it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from reviews.acceptance.criterion_state import acceptance_of
from reviews.history.history import History
from reviews.history.people import is_override, obligations
from sessions.pages.overview import waits_for_verdict
from sessions.pages.report.next_steps import remedies, waiting_for
from sessions.pages.report.page_result import page_result, page_scorecard
from sessions.pages.report.plots import curve
from sessions.pages.report.report import curves_of, stage_of
from sessions.pages.report.trail_page import gates_of
from sessions.pages.report.transcript import AttemptTranscript, Event, Transcript
from sessions.pages.result import further_seeds
from sessions.pages.view.job_progress import running_job
from sessions.pages.view.places import Read, state_of
from sessions.pages.view.waits import busy_with
from specs.trail.entry import DESIGN
from specs.trail.gate_bodies import AmendmentEntry, HumanAnswerEntry, MetricsEntry, OverrideEntry
from specs.trail.session_bodies import CloseEntry

NEWEST_EVENTS = 8
"""The newest events of the transcript on the page of the session."""


def session_page(read: Read) -> dict[str, Any]:
    """Return everything on the page of a session; raises what reading its registration or its store raises."""
    history, store = read.history, read.store
    state = state_of(read.place, history)
    spec = history.resolved.spec
    job = None if read.place.is_export else running_job(read.place.folder, history)
    stages = [stage_of(history, stage.name, stage.kind, spec.thresholds) for stage in spec.stages]
    attempts = list(Transcript(store).attempts(history))
    waits = None
    if state.state in ("waiting", "paused"):
        waits = waiting_for(history, read.place.folder)
    return {
        "state": state,
        "result": page_result(history),
        "scorecard": page_scorecard(history),
        "numbers": numbers_of(history, f"/s/{quote(read.name, safe='')}/number"),
        "strip": gate_strip(history, job, waits),
        "job": job | {"curves": [curve(values, name) for name, values in job["noted"].items()]} if job else None,
        "curves": curves_of(history),
        "stages": [stage for stage in stages if stage["attempts"]],
        "conditions": obligations(history, history[-1].time_ns),
        "acceptance": acceptance_of(history),
        "waits": waits,
        "busy": busy_with(history) if state.state == "running" else "",
        "remedies": remedies(history),
        "seeds": further_seeds(history),
        "newest": newest_events(attempts, NEWEST_EVENTS),
        "builder": spec.builder.vendor,
        "reviewer": ", ".join(reviewer.vendor for reviewer in spec.reviewers()),
    }


def gate_strip(history: History, job: dict[str, Any] | None, waits: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return one mark for each gate that has decided, for the stage that runs, and for each that is still to come.

    ``waits`` is the question to a person, whose gate is marked.
    """
    by_people = filter(is_override, history.of(HumanAnswerEntry, OverrideEntry, AmendmentEntry))
    lifted = {DESIGN if isinstance(entry.body, AmendmentEntry) else entry.body.stage or DESIGN for entry in by_people}
    marks = [
        value | {"lifted": value["outcome"] != "approve" and value["stage"] in lifted} for value in gates_of(history)
    ]
    for current_mark in marks:
        if waits is not None and waits["since"] == current_mark["seq"]:
            current_mark |= {"outcome": "waiting for a person", "state": "escalate"}
    decided = {mark["stage"] for mark in marks}
    packet = waits_for_verdict(history)
    judging = (packet.body.stage or DESIGN) if packet is not None else None
    closed = history.newest(CloseEntry) is not None
    for name in (DESIGN, *(stage.name for stage in history.resolved.spec.stages)):
        runs_now = job is not None and job["stage"] == name
        if runs_now or name not in decided:
            outcome = "running" if runs_now else "not reached" if closed else "to come"
            mark = {"stage": name, "attempt": None, "outcome": outcome, "state": "", "lifted": False}
            marks.append(mark | ({"outcome": "waiting for a verdict", "state": "escalate"} if name == judging else {}))
    return marks


_RESULTS = {"gain": "accuracy_gain", "gained": "gained", "lost": "lost"}
"""Numbers of the effect, and the metrics they are."""


def numbers_of(history: History, base: str) -> dict[str, str]:
    """Return the addresses of the numbers of the effect, by their names in the result."""
    analysis = history.resolved.spec.analysis
    measured = {entry.body.stage: entry.body.attempt for entry in history.of(MetricsEntry)}
    pairs = {name: (getattr(analysis, name), analysis.primary_metric) for name in ("baseline", "treatment")}
    names = _RESULTS | {"p": analysis.p_metric}
    pairs |= {name: (analysis.treatment, metric) for name, metric in names.items()}
    return {
        name: f"{base}/{stage}/{measured[stage]}/{metric}"
        for name, (stage, metric) in pairs.items()
        if stage in measured
    }


def newest_events(attempts: Sequence[AttemptTranscript], most: int) -> list[dict[str, Any]]:
    """Return the last events of a transcript, the newest first."""
    events = [(event, f"{attempt.stage}.{attempt.attempt}") for attempt in attempts for event in attempt.events]
    return [{"at": at, "event": event} for event, at in sorted(events, key=_seq, reverse=True)[:most]]


def _seq(pair: tuple[Event, str]) -> int:
    return pair[0].seq
