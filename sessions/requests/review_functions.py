"""Requested reviews as Python functions: :func:`ask_review`, :func:`request_review`, :func:`adversarial_review`.

    from sessions.requests.review_functions import Desk, request_review
    from specs.trail.requested_review import ReviewRequest
    from specs.session.session_spec import Reviewer

    desk = Desk(reviewer=Reviewer(vendor="openai", model="gpt-5-mini"))
    done = request_review(ReviewRequest(paths=("src",), kind="code"), desk)
    print(done.error or done.answer.overall_assessment)

Each writes the request into a trail before anybody is asked, reserves the money, and records what came of it. With
``Desk(session=...)`` that is the session's trail, its registered reviewer and its budget; otherwise a folder beside the
sessions. What goes wrong with a reviewer is returned as ``error`` and recorded; a request that cannot be carried out
raises UserError and leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from reviews.requests.ask_policy import policy_answer, tier_of
from reviews.requests.file_reading import FOR_MODEL, FOR_RULES, Reader
from reviews.requests.registered_values import Registered
from reviews.requests.rules.rule_findings import Material
from reviews.requests.run_evidence import RunEvidence, add_run, is_run
from sessions.report.report import rendered_again
from sessions.requests.consult_context import Desk, Requested
from sessions.requests.request_runner import Book
from specs.errors import UserError
from specs.masking import masker_of
from specs.trail.requested_review import (
    AdversarialRequest,
    PolicyAnswer,
    QuestionAnswer,
    QuestionRequest,
    ReviewRequest,
)

__all__ = ["Desk", "Requested", "adversarial_review", "ask_review", "request_review"]

CLAIM_SUFFIXES = (".md", ".txt", ".rst", ".tex", ".markdown")
"""What states in a folder; the other files of it are evidence."""

RequestT = TypeVar("RequestT", QuestionRequest, ReviewRequest, AdversarialRequest)


def ask_review(request: QuestionRequest, desk: Desk, context: Sequence[str | Path] = ()) -> Requested:
    """Ask one question; the policy answers what must not be asked, without a call.

    Args:
        request: the question.
        desk: who is asked, and where that is recorded.
        context: files with what one has to know to answer.

    Raises:
        UserError: a context file cannot be read, the reviewer cannot be asked (no key, no price), the session is not
            there or closed.
        AuditDamage: the trail does not hold together.
    """
    with Book(desk) as book:
        request, reader = _begin(request, desk, book)
        for path in context:
            reader.add(path, "context")
        if request.context.strip():
            reader.add_text("context", request.context.encode(), "context")
        reading = reader.reading
        for one in reading.left_out:
            told = f"context '{one.name}' is not read: {one.why}"
            raise UserError(told, hint="name text files, small enough to be read")
        registered = Registered(book.resolved.spec) if book.resolved else None
        policy = policy_answer(request, registered)
        if not policy.ask:
            desk.say(f"the policy answers this ({policy.rule}): nobody is asked")
            return book.answered_by_policy(request, reading, policy, _policy_says(policy))
        tier = tier_of(request.kind, request.stakes, request.has_plan)
        return book.carry_out(request, reading, tier, policy)


def request_review(request: ReviewRequest, desk: Desk) -> Requested:
    """Have files and folders reviewed in full.

    Raises:
        UserError: nothing that was named can be read, the reviewer cannot be asked, or as in :func:`ask_review`.
        EvidenceMissing: a run folder that was named has no registration.
        AuditDamage: a trail does not hold together.
    """
    with Book(desk) as book:
        request, reader = _begin(request, desk, book)
        for path in request.paths:
            if is_run(Path(path)):
                _readable_run(desk, path)
                add_run(reader, Path(path), claims=(Path(path) / "report").is_dir())
            else:
                reader.add(path, "file")
        reading = reader.reading
        book.require_files(reading, bool(reader.sources))
        _say_left_out(desk, reader)
        material = Material(reading, reader.sources, desk.readable, masker_of(desk.environ).text)
        return book.carry_out(request, reading, request.effort, material=material)


def adversarial_review(request: AdversarialRequest, desk: Desk) -> Requested:
    """Hold the claims of a report, or of a session's report, against evidence.

    Raises:
        UserError: there are no claims to read, the reviewer cannot be asked, or as in :func:`ask_review`.
        EvidenceMissing: the session whose run folder was named has no report yet.
        AuditDamage: a trail does not hold together.
    """
    runs: list[RunEvidence] = []
    with Book(desk) as book:
        request, reader = _begin(request, desk, book)
        _add_claims(reader, Path(request.path), desk, runs, book.asks_a_model)
        for path in request.evidence:
            _add_evidence(reader, Path(path), desk, runs)
        reading = reader.reading
        if not any(file.role == "claims" for file in reading.files):
            found = "; ".join(f"{one.name}: {one.why}" for one in reading.left_out[:3])
            hint = found or f"claims are read from files that end with {', '.join(CLAIM_SUFFIXES)}"
            raise UserError(f"'{request.path}' holds no claims that can be read", hint=hint)
        if not any(file.role == "evidence" for file in reading.files):
            desk.say(
                "no evidence was given: every claim can only be unsupported (--evidence names files and run folders)"
            )
        _say_left_out(desk, reader)
        return book.carry_out(request, reading, request.effort, runs=runs)


def _add_claims(reader: Reader, path: Path, desk: Desk, runs: list[RunEvidence], for_model: bool) -> None:
    if is_run(path):
        _readable_run(desk, path)
        # What a model is shown is paid for: the report once, as it was saved.
        runs.append(add_run(reader, path, claims=True, rendered=None if for_model else rendered_again(path)))
    elif path.is_dir():
        reader.add(path, lambda name: "claims" if name.lower().endswith(CLAIM_SUFFIXES) else "evidence")
    else:
        reader.add(path, "claims")


def _add_evidence(reader: Reader, path: Path, desk: Desk, runs: list[RunEvidence]) -> None:
    if is_run(path):
        _readable_run(desk, path)
        runs.append(add_run(reader, path, claims=False))
    else:
        reader.add(path, "evidence")


def _readable_run(desk: Desk, path: str | Path) -> None:
    if not desk.readable(Path(path).resolve()):
        raise UserError(f"'{path}' may not be read here", hint="only files that its asker may see are sent")


def _begin(request: RequestT, desk: Desk, book: Book) -> tuple[RequestT, Reader]:
    """Return the request without secrets, and the reader of its files.

    Raises:
        UserError: the request cannot be kept: it holds half of a character pair, or is too long once masked.
    """
    masker = masker_of(desk.environ)
    values = request.model_dump(mode="json")
    for name in ("topic", "question", "context", "note"):
        if name in values:
            values[name] = masker.text(values[name])
    if "options" in values:
        values["options"] = [masker.text(one) for one in values["options"]]
    try:
        masked = type(request).model_validate(values)
        masked.canonical()
    except ValidationError as error:
        raise UserError(f"the request cannot be kept: {error.errors()[0]['msg']}") from error
    except ValueError as error:
        raise UserError(f"the request cannot be kept: {error}", hint="write it as UTF-8") from error
    return masked, Reader(masker, desk.readable, FOR_MODEL if book.asks_a_model else FOR_RULES)


def _say_left_out(desk: Desk, reader: Reader) -> None:
    reading = reader.reading
    count = len(reading.left_out) + reading.more_left_out
    if count:
        desk.say(
            f"files read: {len(reading.files)}, left out: {count} (text only, {reader.limits}); the answer lists them"
        )


def _policy_says(policy: PolicyAnswer) -> QuestionAnswer:
    """Write the policy's answer in the form of an answer; nobody judged anything, so nothing is approved."""
    found = "; ".join(f"{one.pointer} = {one.value}" for one in policy.found)
    why = f"{policy.why[0].upper()}{policy.why[1:]}."
    recommendation = f"The registered spec says: {found}." if policy.rule == "answer.in_spec" else why
    reasoning = f"By rule {policy.rule} of the ask-policy: {policy.why}."
    if found and policy.rule != "answer.in_spec":
        reasoning += f" Registered limits: {found}."
    return QuestionAnswer(recommendation=recommendation, reasoning=reasoning, risks=(), approval=None, words=0)
