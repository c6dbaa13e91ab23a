"""Requested reviews in a trail: ``question/N`` before the reviewer is asked, ``answer/N`` afterwards.

The trail belongs to a session, or to a folder that holds only requested reviews and is never closed. A process that
dies between the two entries leaves a request without an answer, and its reservation counts as spent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from reviews.trail.trail import Trail
from specs.system.digests import Digest, digest_value
from specs.system.errors import BlockedError, UserError
from specs.system.vendors.parties import ReviewerSpec
from specs.trail.requested_review import (
    ANSWERS,
    AdversarialRequest,
    Answer,
    AnswerEntry,
    DraftRequest,
    QuestionEntry,
    QuestionRequest,
    RequestReading,
    ReviewRequest,
    Tier,
)
from specs.trail.session_bodies import WorkspaceEntry

FOLDER = "reviews"
TRAIL = "reviews.sqlite"
"""Not the name of a session's trail, so that the folder is not taken for a session."""
STORE = "store"
_RANK: dict[Tier, int] = {"low": 0, "medium": 1, "high": 2}
MODE_FIELDS = {
    "question": {"topic", "question", "options"},
    "review": {"kind", "note"},
    "adversarial": {"mode"},
    "draft": {"goal"},
}
"""The fields that make the question, by mode."""

Request = QuestionRequest | ReviewRequest | AdversarialRequest | DraftRequest


def open_workspace(folder: Path) -> tuple[Trail, Store]:
    """Open the trail of a folder of requested reviews, and make it when it is not there.

    Raises:
        UserError: the folder cannot be made.
        AuditDamage: its trail does not hold together.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"the folder cannot be made: {error.strerror or error}", where=str(folder)) from error
    trail = Trail(folder / TRAIL, FOLDER)
    trail.append(WorkspaceEntry(what="requested reviews, of no session"))
    trail.verify_chain()
    return trail, Store(folder / STORE)


def refuse_closed(trail: Trail) -> None:
    """Refuse to add to the trail of a closed session; raises UserError if it is closed."""
    if trail.find("close") is not None:
        raise UserError(
            f"session '{trail.session}' is closed: nothing can be added to its trail",
            where=str(trail.path),
            hint="without --session the review is recorded in its own folder, and can read the session's folder",
        )


def same_digest(request: Request, reading: RequestReading, reviewer: ReviewerSpec, beside: Mapping[str, Digest]) -> str:
    """Return the digest of what makes two requests the same: the question, what could be read, and who is asked."""
    requested_dict = request.model_dump(mode="json", include={"mode", *MODE_FIELDS[request.mode]})
    who = reviewer.model_dump(mode="json", include={"vendor", "model", "base_url", "api"})
    left_out = [[left_out.name, left_out.why, left_out.digest] for left_out in reading.left_out]
    return digest_value([requested_dict, reading.content(), left_out, who, *([dict(beside)] if beside else [])])


def recorded_answer(entries: Iterable[RecordedEntry], store: Store, same: str, tier: Tier) -> tuple[int, Answer] | None:
    """Return the number and the answer of the same request, if a model has answered it with at least this effort."""
    questions: dict[int, QuestionEntry] = {}
    result: tuple[QuestionEntry, str] | None = None
    for recorded in entries:
        match recorded.body:
            case QuestionEntry() as request if request.same == same and _RANK[request.tier] >= _RANK[tier]:
                questions[request.number] = request
            case AnswerEntry(by="model", number=number, answer=str(digest)) if number in questions:
                result = questions[number], digest
            case _:
                pass
    if result is None:
        return None
    question, digest = result
    return question.number, ANSWERS[question.mode].model_validate_json(store.get(digest))


def next_number(trail: Trail) -> int:
    """Return the number of the next request; only inside ``trail.alone()`` does it stay the next one."""
    return sum(1 for _ in trail.iterate("question")) + 1


def record_question(trail: Trail, body: QuestionEntry) -> RecordedEntry:
    """Record a request; to be called inside ``trail.alone()``."""
    refuse_closed(trail)
    return trail.append(body)


def record_answer(trail: Trail, body: AnswerEntry) -> RecordedEntry:
    """Record the answer to a request, or its error; raises Blocked if the session was closed meanwhile."""
    with trail.alone():
        if trail.find("close") is not None:
            digest = body.answer or body.response or "nothing"
            raise BlockedError(
                f"session '{trail.session}' was closed while the reviewer was asked: its answer is not in the trail",
                where=str(trail.path),
                hint=f"kept in the store: {digest}; what was reserved for it counts as spent",
            )
        return trail.append(body)
