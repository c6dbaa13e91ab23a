"""The timeline of a trail for people, and what interrupted its session. Nothing is verified here."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from sessions.run.money.ledger import ends_a_stretch, is_from_outside
from specs.system.errors import PeergateError
from specs.system.text import plain

_BY_PEOPLE = {"human": "answer", "override": "reason", "amendment": "outcome", "retraction": "reason"}


class TimelineStep(NamedTuple):
    """One step: the entry, what happened in a sentence, and details."""

    entry: RecordedEntry
    what: str
    lines: tuple[str, ...]


def describe_entries(entries: Sequence[RecordedEntry], store: Store) -> Iterator[TimelineStep]:
    """Yield what happened, in the order of the trail. Texts are untrusted, as in the trail."""
    verdicts = {entry.key.partition("/")[2]: entry for entry in entries if entry.kind == "verdict"}
    for entry in entries:
        if (pair := _tell(entry, verdicts, store)) is not None:
            yield TimelineStep(entry, pair[0], tuple(pair[1]))


def _tell(value: RecordedEntry, verdicts: Mapping[str, RecordedEntry], store: Store) -> tuple[str, list[str]] | None:
    kind, body = value.kind, value.raw
    if kind in _BY_PEOPLE:
        return f"{kind}{_by(body)}: {body.get(_BY_PEOPLE[kind], '')}", _of_people(kind, body)
    match kind:
        case "open":
            builder, reviewer = body.get("builder"), body.get("reviewer")
            return f"session registered{_by(body)}: builder {builder}, reviewer {reviewer}", []
        case "decision":
            at = _at(body)
            conditions = [value for value in body.get("conditions") or () if isinstance(value, dict)]
            parts = [
                f"condition {condition.get('id')} for {condition.get('stage')}: {condition.get('text', '')}"
                for condition in conditions
            ]
            return f"{at} {body.get('outcome')}", [*_describe_review(verdicts.get(at)), *_reasons(body), *parts]
        case "budget":
            return f"{_at(body)} stopped at '{body.get('at')}': it waits for a larger budget", _reasons(body)
        case "launch":
            return f"job {body.get('key')} launched", []
        case "exit" | "lost":
            return f"job {body.get('key')} ended" if kind == "exit" else lost_in_words(body), []
        case "asked":
            reviewer = body.get("reviewer")
            what = f"request {body.get('number')}{_by(body)}: {body.get('mode')} by {reviewer}: {body.get('topic')}"
            return what, _describe_policy(body.get("policy"))
        case "answered":
            return f"request {body.get('number')} {_answered_by(body)}", _answer(body, store)
        case "keys":
            way = "revoked" if body.get("revoked") else "replaced"
            return f"key of {body.get('role')} {way}{_by(body)}: {body.get('reason', '')}", []
        case "replication" | "replicated":
            return _of_seeds(kind, body, store)
        case "pause" | "resume" | "pruned" | "close":
            return _of_session(kind, body)
        case _:
            return None


def _of_seeds(kind: str, body: Mapping[str, Any], store: Store) -> tuple[str, list[str]]:
    if kind == "replication":
        return f"further seeds registered{_by(body)}: {', '.join(map(str, body.get('seeds') or ()))}", []
    parts: list[str] = []
    if isinstance(digest := body.get("result"), str):
        with suppress(PeergateError, ValueError, OSError):
            parts = [str(store.get_value(digest)["told"])]
    return f"further seeds counted{_by(body)}", parts


def _of_session(kind: str, body: Mapping[str, Any]) -> tuple[str, list[str]]:
    if kind == "close":
        return f"close: {body.get('decision', '')}", []
    if kind == "pruned":
        gone = [value for value in body.get("weights") or () if isinstance(value, dict)]
        return f"weights pruned{_by(body)}", [f"deletes {value.get('path')}" for value in gone]
    over = taken_over(body)
    return f"{kind}d{_by(body)}", [over] if over else []


def _by(body: Mapping[str, Any]) -> str:
    return f" by {body['by']}" if body.get("by") else ""


def _at(body: Mapping[str, Any]) -> str:
    return f"{body.get('stage') or 'design'}.{body.get('attempt')}"


def _cost(body: Mapping[str, Any]) -> str:
    return f", {body['usd']} USD" if body.get("usd") else ""


def _describe_review(verdict: RecordedEntry | None) -> list[str]:
    if verdict is None:
        return []
    body = verdict.raw
    lines = [f"reviewed by {body.get('reviewer')} (entry {verdict.seq}{_cost(body)})"]
    return lines + ([f"no verdict: {body['error']}"] if body.get("error") else [])


def _reasons(body: Mapping[str, Any]) -> list[str]:
    return [str(reason) for reason in body.get("reasons") or ()]


def _of_people(kind: str, body: Mapping[str, Any]) -> list[str]:
    lines = [f"at {_at(body)}"] if kind == "human" else []
    if kind in ("human", "amendment") and body.get("reason"):
        lines.append(f"because: {body['reason']}")
    if kind == "override":
        what = f"check {body.get('check')} of {body.get('stage')}" if body.get("check") else body.get("condition")
        lines.append(f"lifts {what}")
    if kind == "retraction":
        lines += [f"takes back {value}" for value in body.get("judgements") or ()]
    return lines


def _describe_policy(policy: Any) -> list[str]:
    if not isinstance(policy, dict) or policy.get("ask"):
        return []
    return [f"no one is asked: {policy.get('why')} (rule {policy.get('rule')})"]


def _answered_by(body: Mapping[str, Any]) -> str:
    if body.get("error"):
        return f"not answered{_cost(body)}: {body['error']}"
    recorded = body.get("by") == "recorded"
    who = f"answered as request {body.get('same_as')} was" if recorded else f"answered by {body.get('by')}"
    return f"{who}{_cost(body)}"


def _answer(body: Mapping[str, Any], store: Store) -> list[str]:
    try:
        statement = json.loads(store.get(str(body["answer"]))) if body.get("answer") else None
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


def interruptions(entries: Sequence[RecordedEntry]) -> Iterator[tuple[RecordedEntry, str]]:
    """Yield interruptions in order. A kill writes nothing: a ``resume`` without a pause or question shows it."""
    before: RecordedEntry | None = None
    for entry in entries:
        kind, body = entry.kind, entry.raw
        match kind:
            case "pause":
                yield entry, f"paused by {plain(body['by'], 100)}"
            case "resume":
                yield entry, f"resumed by {plain(body['by'], 100)}{_after(body, before)}"
            case "lost":
                yield entry, lost_in_words(body)
            case "launch" if resumed := body.get("resumes"):
                what = f"job {body['key']} resumes from step {resumed['step']} of attempt {resumed['attempt']}"
                yield entry, what
            case _:
                pass
        if not is_from_outside(entry):
            before = entry


def lost_in_words(body: Mapping[str, Any]) -> str:
    """Return that a job was lost, and why if the reason is known."""
    why = plain(str(body.get("why") or ""), 300)
    return f"job {plain(str(body.get('key')), 200)} was lost" + (f": {why}" if why else "")


def taken_over(body: Mapping[str, Any]) -> str:
    """Return from whom a `resume` took the session over; empty if no one held it."""
    over = (body.get("lease") or {}).get("over")
    if not over:
        return ""
    who = f"{plain(str(over.get('by')), 100)}, process {over.get('pid')} on {plain(str(over.get('host')), 100)}"
    return f"taken over from {who}, after {over.get('silent_s')} s without a sign of life"


def _after(resume: Mapping[str, Any], before: RecordedEntry | None) -> str:
    if over := taken_over(resume):
        return f", {over}"
    if before is None or ends_a_stretch(before):
        return ""
    return f": the process before ended without a word (killed, or its machine) after '{plain(before.key, 100)}'"
