"""The timeline of a trail for people, and what interrupted its session. Nothing is verified here."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from reviews.history.history import History
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from sessions.run.money.ledger import ends_a_stretch, is_from_outside
from specs.system.errors import PeergateError
from specs.system.text import plain
from specs.trail.entry import DESIGN, Body
from specs.trail.gate_bodies import (
    AmendmentEntry,
    DecisionEntry,
    HumanAnswerEntry,
    OverrideEntry,
    RetractionEntry,
    VerdictEntry,
)
from specs.trail.requested_review import AnswerEntry, QuestionEntry
from specs.trail.session_bodies import (
    BudgetEntry,
    CloseEntry,
    ExitEntry,
    KeysEntry,
    LaunchEntry,
    LostJobEntry,
    OpenEntry,
    PauseEntry,
    PruningEntry,
    ReplicationEntry,
    ReplicationPlanEntry,
    ResumeEntry,
)

Lines = tuple[str, list[str]]
"""What happened in a sentence, and details."""
_KINDS = frozenset(
    form.KIND
    for form in (
        *(OpenEntry, DecisionEntry, HumanAnswerEntry, OverrideEntry, AmendmentEntry, RetractionEntry, BudgetEntry),
        *(LaunchEntry, ExitEntry, LostJobEntry, QuestionEntry, AnswerEntry, KeysEntry, PauseEntry, ResumeEntry),
        *(ReplicationPlanEntry, ReplicationEntry, PruningEntry, CloseEntry),
    )
)


class TimelineStep(NamedTuple):
    """One step: the entry, what happened in a sentence, and details."""

    entry: RecordedEntry
    what: str
    lines: tuple[str, ...]


def describe_entries(history: History) -> Iterator[TimelineStep]:
    """Yield what happened, in the order of the trail. Texts are untrusted, as in the trail."""
    for entry in history:
        if entry.kind not in _KINDS:
            continue
        if not entry.fits:
            yield TimelineStep(entry, f"{entry.key} (its body does not have the form of its kind)", ())
        elif (described := _describe(entry, history)) is not None:
            yield TimelineStep(entry, described[0], tuple(described[1]))


def _describe(entry: RecordedEntry, history: History) -> Lines | None:
    match entry.body:
        case DecisionEntry() as decision:
            return _describe_decision(decision, history)
        case BudgetEntry() as short:
            at = f"{short.stage or DESIGN}.{short.attempt}"
            return f"{at} stopped at '{short.at}': it waits for a larger budget", list(short.reasons)
        case HumanAnswerEntry() | OverrideEntry() | AmendmentEntry() | RetractionEntry() as act:
            return _describe_act(act)
        case LaunchEntry(key=job):
            return f"job {job} launched", []
        case ExitEntry(key=job):
            return f"job {job} ended", []
        case LostJobEntry() as lost:
            return lost_in_words(lost), []
        case QuestionEntry() | AnswerEntry() as request:
            return _describe_request(request, history.store)
        case ReplicationEntry(by=by, result=digest):
            lines: list[str] = []
            with suppress(PeergateError, ValueError, OSError):
                lines = [str(history.store.get_value(digest)["summary"])]
            return f"further seeds counted{_by(by)}", lines
        case body:
            return _describe_session(body)


def _describe_session(body: Body) -> Lines | None:
    match body:
        case OpenEntry() as opened:
            return f"session registered{_by(opened.by)}: builder {opened.builder}, reviewer {opened.reviewer}", []
        case PauseEntry(by=by):
            return f"paused{_by(by)}", []
        case ResumeEntry() as resumed:
            over = taken_over(resumed)
            return f"resumed{_by(resumed.by)}", [over] if over else []
        case CloseEntry(decision=decision):
            return f"close: {decision}", []
        case KeysEntry() as keys:
            way = "revoked" if keys.revoked else "replaced"
            return f"key of {keys.role} {way}{_by(keys.by)}: {keys.reason}", []
        case ReplicationPlanEntry(by=by, seeds=seeds):
            return f"further seeds registered{_by(by)}: {', '.join(map(str, seeds))}", []
        case PruningEntry(by=by, weights=weights):
            return f"weights pruned{_by(by)}", [f"deletes {pruned.path}" for pruned in weights]
        case _:
            return None


def _by(name: str) -> str:
    return f" by {name}" if name else ""


def _cost(usd: float | None) -> str:
    return f", {usd:.10g} USD" if usd else ""


def _describe_decision(decision: DecisionEntry, history: History) -> Lines:
    stage = decision.stage or DESIGN
    verdict, lines = history.find(VerdictEntry, stage, decision.attempt), list[str]()
    if verdict is not None and verdict.fits:
        lines.append(f"reviewed by {verdict.body.reviewer} (entry {verdict.seq}{_cost(verdict.body.usd)})")
        lines += [f"no verdict: {verdict.body.error}"] if verdict.body.error else []
    lines += decision.reasons
    lines += [f"condition {condition.id} for {condition.stage}: {condition.text}" for condition in decision.conditions]
    return f"{stage}.{decision.attempt} {decision.outcome}", lines


def _describe_act(act: HumanAnswerEntry | OverrideEntry | AmendmentEntry | RetractionEntry) -> Lines:
    because = [f"because: {act.reason}"] if act.reason else []
    match act:
        case HumanAnswerEntry():
            return f"human{_by(act.by)}: {act.answer}", [f"at {act.stage or DESIGN}.{act.attempt}", *because]
        case OverrideEntry():
            lifted = f"check {act.check} of {act.stage}" if act.check else act.condition
            return f"override{_by(act.by)}: {act.reason}", [f"lifts {lifted}"]
        case AmendmentEntry():
            return f"amendment{_by(act.by)}: {act.outcome}", because
        case RetractionEntry():
            return f"retraction{_by(act.by)}: {act.reason}", [f"takes back {name}" for name in act.judgements]


def _describe_request(request: QuestionEntry | AnswerEntry, store: Store) -> Lines:
    if isinstance(request, QuestionEntry):
        policy = request.policy
        asks_nobody = [] if policy is None or policy.ask else [f"no one is asked: {policy.why} (rule {policy.rule})"]
        what = f"request {request.number}{_by(request.by)}: {request.mode} by {request.reviewer}: {request.topic}"
        return what, asks_nobody
    if request.error:
        who = f"not answered{_cost(request.usd)}: {request.error}"
    elif request.by == "recorded":
        who = f"answered like request {request.same_as}{_cost(request.usd)}"
    else:
        who = f"answered by {request.by}{_cost(request.usd)}"
    return f"request {request.number} {who}", _describe_answer(request.answer, store)


def _describe_answer(digest: str | None, store: Store) -> list[str]:
    try:
        statement = json.loads(store.get(digest)) if digest else None
    except (PeergateError, ValueError, RecursionError):
        return ["its answer is not in the content store"]
    if not isinstance(statement, dict):
        return []
    match statement.get("mode"):
        case "question":
            approval = {"True": "yes", "False": "no"}.get(str(statement.get("approval")), "not judged")
            lines = [f"approval: {approval}", f"recommends: {statement.get('recommendation')}"]
        case "review":
            lines = [
                f"issues: {_count_by(statement.get('issues'), 'severity')}",
                str(statement.get("overall_assessment")),
            ]
        case _:
            lines = [
                f"claims: {_count_by(statement.get('scorecard'), 'status')}",
                str(statement.get("overall_assessment")),
            ]
    return lines


def _count_by(result: Any, by: str) -> str:
    counts = Counter(str(value.get(by)) for value in result or () if isinstance(value, dict))
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "none"


def interruptions(history: History) -> Iterator[tuple[RecordedEntry, str]]:
    """Yield interruptions in order. A kill writes nothing: a ``resume`` without a pause or question shows it."""
    before: RecordedEntry | None = None
    for entry in history:
        match entry.body:
            case PauseEntry(by=by):
                yield entry, f"paused by {plain(by, 100)}"
            case ResumeEntry() as resumed:
                yield entry, f"resumed by {plain(resumed.by, 100)}{_after(resumed, before)}"
            case LostJobEntry() as lost:
                yield entry, lost_in_words(lost)
            case LaunchEntry(key=job, resumes=step) if step is not None:
                yield entry, f"job {job} resumes from step {step.step} of attempt {step.attempt}"
            case _:
                pass
        if not is_from_outside(entry):
            before = entry


def lost_in_words(lost: LostJobEntry) -> str:
    """Return that a job was lost, and why if the reason is known."""
    why = plain(lost.why, 300)
    return f"job {plain(lost.key, 200)} was lost" + (f": {why}" if why else "")


def taken_over(resumed: ResumeEntry) -> str:
    """Return from whom a `resume` took the session over; empty if no one held it."""
    over = resumed.lease.over
    if over is None:
        return ""
    who = f"{plain(over.by, 100)}, process {over.pid} on {plain(over.host, 100)}"
    return f"taken over from {who}, after {over.silent_s:.10g} s without a sign of life"


def _after(resumed: ResumeEntry, before: RecordedEntry | None) -> str:
    if over := taken_over(resumed):
        return f", {over}"
    if before is None or ends_a_stretch(before):
        return ""
    return f": the previous process was killed, or its machine stopped, after '{plain(before.key, 100)}'"
