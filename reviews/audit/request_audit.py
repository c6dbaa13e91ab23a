"""The audit of requested reviews: every request and answer is there, whole, in order, and what it says it is.

Not covered: whether a vendor really sent the response.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from reviews.audit.lookup_check import request_damage
from reviews.history.history import History
from reviews.requests.answer_forms import places_in
from reviews.requests.ask_policy import policy_answer, policy_digest
from reviews.requests.citations import CitationResolver
from reviews.requests.kept_texts import as_file
from reviews.requests.registered_values import SpecValueIndex
from reviews.trail.chain.envelope import RecordedEntry, as_entry_of
from specs.system.errors import EvidenceMissing, PeergateError
from specs.system.strict_json import strings_in
from specs.trail.gate_bodies import LookupEntry
from specs.trail.requested_review import (
    ANSWERS,
    LOOKS,
    REQUESTS,
    AnswerEntry,
    QuestionEntry,
    QuestionRequest,
    RequestReading,
)
from specs.trail.session_bodies import OpenEntry, SpendEntry, WorkspaceEntry


def requests_damage(history: History, notes: list[str]) -> Iterator[str]:
    """Yield one sentence for everything about requested reviews that does not hold."""
    if history[0].kind == WorkspaceEntry.KIND:
        others = {entry.kind for entry in history[1:]} - {"question", "answer", "look", "spend", "keys"}
        if others:
            yield f"trail: holds requested reviews without a session, but entries of kind {', '.join(sorted(others))}"
    for recorded in history.of(QuestionEntry, AnswerEntry, LookupEntry):
        where, texts = f"entry {recorded.seq} ({recorded.key})", iter(())
        try:
            # The body of an entry that is newer than this Peergate is of none of these; the audit notes it.
            match recorded.body:
                case QuestionEntry():
                    texts = _audit_request(history, as_entry_of(recorded, QuestionEntry), notes)
                case AnswerEntry() as body:
                    texts = _audit_answer(history, history.before(recorded), body)
                case LookupEntry(stage=stage) as body if stage == LOOKS:
                    texts = _audit_lookup(history.before(recorded), body)
                case _:
                    pass
            for problem in texts:
                yield f"{where}: {problem}"
        except EvidenceMissing as error:
            yield f"{where}: {error.message}"
        except (PeergateError, ValueError, KeyError, TypeError) as error:
            yield f"{where}: does not have its form: {type(error).__name__}: {str(error).splitlines()[0]}"


def _audit_request(history: History, recorded: RecordedEntry[QuestionEntry], notes: list[str]) -> Iterator[str]:
    body, before, store = recorded.body, history.before(recorded), history.store
    number = len(before.of(QuestionEntry)) + 1
    if (recorded.key, body.number) != (QuestionEntry.key_of(number), number):
        yield f"is request {number} of this trail, and says {body.number}"
    request = REQUESTS[body.mode].model_validate_json(store.get(body.request))
    RequestReading.model_validate_json(store.get(body.read))
    answered = history.find(AnswerEntry, body.number)
    yield from request_damage(history, body, answered)
    if answered is None:
        why = "the reviewer is being asked, or the process died"
        notes.append(f"request {body.number} ({body.topic}) has no answer: {why}")
    if isinstance(request, QuestionRequest) != (body.policy is not None):
        yield "the policy answers questions, and nothing else"
    elif isinstance(request, QuestionRequest) and body.policy_code == policy_digest():
        registered = SpecValueIndex(before.resolved.spec) if before.find(OpenEntry) else None
        again = policy_answer(request, registered)
        if again != body.policy:
            message = body.policy.rule if body.policy else "nothing"
            yield f"the policy says '{again.rule}', but '{message}' is recorded"


def _audit_lookup(before: History, body: LookupEntry) -> Iterator[str]:
    """Check that it belongs to a request before it, whose audit carries it out again."""
    request = before.find(QuestionEntry, body.attempt)
    if request is None or (request.body.read, request.body.reviewer) != (body.packet, body.reviewer):
        yield f"was looked up for request {body.attempt}, which is not before it"


def _audit_answer(history: History, before: History, body: AnswerEntry) -> Iterator[str]:
    question, store = before.find(QuestionEntry, body.number), history.store
    if question is None or question.digest != body.question:
        yield f"answers request {body.number}, which is not before it"
        return
    question_entry = question.body
    reading = RequestReading.model_validate_json(store.get(question_entry.read))
    if (body.answer is None) != bool(body.error):
        yield "has an answer and an error, or neither"
    looked = [
        as_file(number, cited_lookup.answer, store.get(cited_lookup.answer).decode())
        for number, cited_lookup in enumerate(body.looked, 1)
    ]
    answered_by_policy = question_entry.policy is not None and not question_entry.policy.ask
    if answered_by_policy != (body.by == "policy"):
        yield f"is answered by {body.by}, but the policy {'answers it' if answered_by_policy else 'has it asked'}"
    if body.answer is not None:
        answer = ANSWERS[question_entry.mode].model_validate_json(store.get(body.answer))
        seen_verdict_reading = reading.model_copy(update={"files": (*reading.files, *looked)})
        texts = {file.name for file in seen_verdict_reading.files}
        places = CitationResolver(seen_verdict_reading)
        lost = [
            str(citation) for citation in places_in(answer) if citation.file in texts and not places.holds(citation)
        ]
        if lost:
            yield f"points at {lost[0]}, which is not in what was read"
    if body.by == "model":
        yield from _audit_exchange(before, question_entry, body, reading)
    elif body.by == "recorded":
        yield from _audit_repeat(before, question_entry, body)
    elif body.usd:
        yield f"cost {body.usd:g} USD, but no model was asked"
    settled = history.find_key(SpendEntry.settlement_key(body.reservation)) if body.reservation else None
    if settled is not None and (usd := as_entry_of(settled, SpendEntry).body.usd) != body.usd:
        yield f"cost {body.usd:g} USD, settled is {usd:g}"


def _audit_exchange(
    before: History, question_entry: QuestionEntry, body: AnswerEntry, reading: RequestReading
) -> Iterator[str]:
    """Check that what was sent is kept, holds the prompt and all that was shown, and was reserved for."""
    if body.reservation is None or before.find_key(SpendEntry.reservation_key(body.reservation)) is None:
        yield "a model was asked without a reservation"
    if body.answer is not None and (body.request is None or body.response is None):
        yield "has an answer without its request and response"
    if body.request is None:
        return
    store = before.store
    sent = list(strings_in(json.loads(store.get(body.request))))
    prompt = store.get(question_entry.instructions).decode() if question_entry.instructions else ""
    # An API without a place for the schema carries it behind the prompt.
    if not any(prompt in text for text in sent):
        yield "the body that was sent does not hold the recorded instructions"
    for file in reading.files:
        if not any(all(line in text for line in file.lines) for text in sent):
            yield f"the body that was sent does not hold '{file.name}' as it was read"


def _audit_repeat(before: History, question_entry: QuestionEntry, body: AnswerEntry) -> Iterator[str]:
    """Check that an answer that is given again was given before, to the same request."""
    first, question = before.find(AnswerEntry, body.same_as), before.find(QuestionEntry, body.same_as)
    if first is None or question is None:
        yield f"repeats request {body.same_as}, which is not before it"
    elif (question.body.same, first.body.answer, first.body.by) != (question_entry.same, body.answer, "model"):
        yield f"repeats request {body.same_as}, which was another one or has another answer"
