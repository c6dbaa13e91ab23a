"""What became of a call during which the process died: nothing is done twice, and no paid answer is lost."""

from __future__ import annotations

from reviews.trail.envelope import Recorded
from sessions.builder.redaction import Wall
from sessions.builder.tools.review_tools import tell
from sessions.builder.tools.stage_tools import kept_as, note_key
from sessions.session import Session
from specs.trail.requested_review import ANSWERS, AnsweredEntry, AskedEntry, Mode

INTERRUPTED = "the session was stopped while this was carried out; call it again if it still matters"
ENDING = ("launch_stage", "submit_stage", "ask_person", "hand_in")
"""Tools that end a phase; repeating one leaves what it left."""
_NOTES = ("propose_plan", "propose_amendment", "write_note")
_REVIEWS: dict[str, Mode] = {"ask_review": "question", "request_review": "review", "adversarial_review": "adversarial"}


def what_came_of(session: Session, wall: Wall, call: Recorded) -> str | None:
    """Return the result of a call as far as its effects tell it; None where it had none."""
    tool = call.body["tool"]
    if tool in _NOTES and session.trail.find(note_key(call.entry.key)) is not None:
        return kept_as(session, note_key(call.entry.key))
    if tool in _REVIEWS:
        return _review(session, wall, call, _REVIEWS[tool])
    return None


def _review(session: Session, wall: Wall, call: Recorded, mode: Mode) -> str | None:
    """Tell the answer to the request that a call sent, if it is on record."""
    sent = [AskedEntry.model_validate(one.body) for one in session.trail.iterate("asked") if _is_of(one, call)]
    asked = next((one for one in sent if one.mode == mode and one.by == session.builder.name), None)
    found = session.trail.find(f"answered/{asked.number}") if asked else None
    if found is None:
        return None
    answered = AnsweredEntry.model_validate(found.body)
    answer = ANSWERS[mode].model_validate_json(session.store.get(answered.answer)) if answered.answer else None
    return tell(wall, answered, answer) if answer else None


def _is_of(asked: Recorded, call: Recorded) -> bool:
    """Say whether a request was sent after a call began; one call is carried out at a time."""
    return asked.entry.seq > call.entry.seq
