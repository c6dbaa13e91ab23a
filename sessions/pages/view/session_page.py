"""What the page of one session shows: result, gates, job, curves, stages, and what it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from reviews.acceptance.criterion_state import acceptance_of
from reviews.evidence.gather import registered_spec
from reviews.history.history import History
from reviews.history.people import is_override, obligations
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
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
from specs.session.session_spec import ResolvedSpec
from specs.trail.entry import DESIGN

NEWEST_EVENTS = 8
"""Of the transcript, on the page of the session."""


def session_page(read: Read) -> dict[str, Any]:
    """Return everything on the page of a session; raises what reading its registration or its store raises."""
    entries, store = read.entries, read.store
    resolved, _ = registered_spec(entries, store)
    state = state_of(read.place, entries)
    spec = resolved.spec
    job = None if read.place.is_export else running_job(read.place.folder, entries)
    stages = [stage_of(entries, store, stage.name, stage.kind, spec.thresholds) for stage in spec.stages]
    attempts = list(Transcript(store).attempts(entries))
    waits = None
    if state.state in ("waiting", "paused"):
        waits = waiting_for(entries, read.place.folder, store, resolved)
    return {
        "state": state,
        "result": page_result(entries, store),
        "scorecard": page_scorecard(entries, store),
        "numbers": numbers_of(entries, resolved, f"/s/{quote(read.name, safe='')}/number"),
        "strip": gate_strip(entries, store, resolved, job, waits),
        "job": job | {"curves": [curve(values, name) for name, values in job["noted"].items()]} if job else None,
        "curves": curves_of(entries, store),
        "stages": [stage for stage in stages if stage["attempts"]],
        "conditions": obligations(History(entries), entries[-1].time_ns),
        "acceptance": acceptance_of(entries, store),
        "waits": waits,
        "busy": busy_with(entries) if state.state == "running" else "",
        "remedies": remedies(entries, store),
        "seeds": further_seeds(entries, store),
        "newest": newest_events(attempts, NEWEST_EVENTS),
        "builder": spec.builder.vendor,
        "reviewer": ", ".join(reviewer.vendor for reviewer in spec.reviewers()),
    }


def gate_strip(
    entries: list[RecordedEntry],
    store: Store,
    resolved: ResolvedSpec,
    job: dict[str, Any] | None,
    waits: dict[str, Any] | None,
) -> list[dict[str, Any]]:
    """Return one mark for each gate that has decided, for the stage that runs, and for each that is still to come.

    ``waits`` says what is asked of a person, whose gate is marked.
    """
    lifted = {(entry.raw.get("stage") or DESIGN) for entry in entries if is_override(entry)}
    marks = [
        value | {"lifted": value["outcome"] != "approve" and value["stage"] in lifted}
        for value in gates_of(entries, store)
    ]
    for current_mark in marks:
        if waits is not None and waits["since"] == current_mark["seq"]:
            current_mark |= {"outcome": "waiting for a person", "state": "escalate"}
    decided = {mark["stage"] for mark in marks}
    packet = waits_for_verdict(entries)
    judging = (packet.raw["stage"] or DESIGN) if packet is not None else None
    closed = any(entry.kind == "close" for entry in entries)
    for name in (DESIGN, *(stage.name for stage in resolved.spec.stages)):
        runs_now = job is not None and job["stage"] == name
        if runs_now or name not in decided:
            outcome = "running" if runs_now else "not reached" if closed else "to come"
            mark = {"stage": name, "attempt": None, "outcome": outcome, "state": "", "lifted": False}
            marks.append(mark | ({"outcome": "waiting for a verdict", "state": "escalate"} if name == judging else {}))
    return marks


_SHOWN = {"gain": "accuracy_gain", "gained": "gained", "lost": "lost", "p": "mcnemar_p"}
"""Numbers of the effect, and the metrics they are."""


def numbers_of(entries: Sequence[RecordedEntry], resolved: ResolvedSpec, base: str) -> dict[str, str]:
    """Return the addresses of the numbers of the effect, by their names in the result."""
    analysis = resolved.spec.analysis
    measured = {entry.raw["stage"]: entry.raw["attempt"] for entry in entries if entry.kind == "metrics"}
    pairs = {name: (getattr(analysis, name), analysis.primary_metric) for name in ("baseline", "treatment")}
    pairs |= {name: (analysis.treatment, metric) for name, metric in _SHOWN.items()}
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
