"""What interrupted a session, by its trail: pauses, kills, take-overs, lost jobs, trainings that went on.

An orchestrator that is killed writes nothing. That it was is seen by the `resume` that follows neither a pause nor a
question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from reviews.trail.envelope import Recorded
from sessions.money.ledger import ends_a_stretch, is_from_outside
from specs.text import plain


class Interruption(NamedTuple):
    """One interruption and the entry that records it."""

    entry: Recorded
    what: str


def interruptions(entries: Sequence[Recorded]) -> list[Interruption]:
    """Return what interrupted a session, in order."""
    found: list[Interruption] = []
    before: Recorded | None = None
    for one in entries:
        kind, body = one.entry.kind, one.body
        match kind:
            case "pause":
                found.append(Interruption(one, f"paused by {plain(body['by'], 100)}"))
            case "resume":
                found.append(Interruption(one, f"resumed by {plain(body['by'], 100)}{_after(body, before)}"))
            case "lost":
                found.append(Interruption(one, lost_in_words(body)))
            case "launch" if body.get("resumes"):
                resumed = body["resumes"]
                what = f"job {body['key']} resumes from step {resumed['step']} of attempt {resumed['attempt']}"
                found.append(Interruption(one, what))
            case _:
                pass
        if not is_from_outside(one):
            before = one
    return found


def lost_in_words(body: Mapping[str, Any]) -> str:
    """Say that a job was lost, and why if the reason is known."""
    why = plain(str(body.get("why") or ""), 300)
    return f"job {plain(str(body.get('key')), 200)} was lost" + (f": {why}" if why else "")


def taken_over(body: Mapping[str, Any]) -> str:
    """Return from whom a `resume` took the session over; empty if nobody held it."""
    over = (body.get("lease") or {}).get("over")
    if not over:
        return ""
    who = f"{plain(str(over.get('by')), 100)}, process {over.get('pid')} on {plain(str(over.get('host')), 100)}"
    return f"taken over from {who}, after {over.get('silent_s')} s without a sign of life"


def _after(resume: Mapping[str, Any], before: Recorded | None) -> str:
    over = taken_over(resume)
    if over:
        return f", {over}"
    if before is None or ends_a_stretch(before):
        return ""
    return f": the process before ended without a word (killed, or its machine) after '{plain(before.entry.key, 100)}'"
