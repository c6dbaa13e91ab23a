"""The audit of requested reviews: every request and answer is there, whole, in order, and what it says it is.

Not covered: whether a vendor really sent the response.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from reviews.audit.lookup_check import request_damage
from reviews.evidence.registered_evidence import find, registered_spec
from reviews.history.history import History
from reviews.requests.answer_forms import places_in
from reviews.requests.ask_policy import policy_answer, policy_digest
from reviews.requests.citations import CitationResolver
from reviews.requests.kept_texts import as_file
from reviews.requests.registered_values import SpecValueIndex
from reviews.trail.chain.envelope import RecordedEntry, as_entry_of
from reviews.trail.chain.store import Store
from specs.system.errors import EvidenceMissing, PeergateError
from specs.system.strict_json import strings_in
from specs.trail.bodies import VERSION
from specs.trail.gate_bodies import LookupEntry
from specs.trail.requested_review import (
    ANSWERS,
    LOOKS,
    REQUESTS,
    AnsweredEntry,
    AskedEntry,
    QuestionRequest,
    RequestReading,
)
from specs.trail.session_bodies import SpendEntry


def requests_damage(entries: Sequence[RecordedEntry], store: Store, notes: list[str]) -> Iterator[str]:
    """Yield one sentence for everything about requested reviews that does not hold."""
    if entries[0].kind == "workspace":
        others = {entry.kind for entry in entries[1:]} - {"asked", "answered", "look", "spend", "keys"}
        if others:
            yield f"trail: holds requested reviews and no session, and yet entries of kind {', '.join(sorted(others))}"
    for recorded in entries:
        kind, where = recorded.kind, f"entry {recorded.seq} ({recorded.key})"
        if kind not in ("asked", "answered") and (kind != "look" or recorded.raw["stage"] != LOOKS):
            continue
        if recorded.entry.version > VERSION:
            # The audit notes that it is newer than this Peergate, whose forms it need not have.
            continue
        try:
            match kind:
                case "asked":
                    texts = _audit_request(entries, store, recorded, notes)
                case "answered":
                    texts = _audit_answer(entries, store, recorded)
                case _:
                    texts = _audit_lookup(entries, recorded)
            for problem in texts:
                yield f"{where}: {problem}"
        except EvidenceMissing as error:
            yield f"{where}: {error.message}"
        except (PeergateError, ValueError, KeyError, TypeError) as error:
            yield f"{where}: does not have its form: {type(error).__name__}: {str(error).splitlines()[0]}"


def _audit_request(
    entries: Sequence[RecordedEntry], store: Store, recorded: RecordedEntry, notes: list[str]
) -> Iterator[str]:
    body = as_entry_of(recorded, AskedEntry).body
    before = entries[: recorded.seq]
    number = sum(recorded_entry.kind == "asked" for recorded_entry in before) + 1
    if (recorded.key, body.number) != (AskedEntry.key_of(number), number):
        yield f"is request {number} of this trail, and says {body.number}"
    request = REQUESTS[body.mode].model_validate_json(store.get(body.request))
    RequestReading.model_validate_json(store.get(body.read))
    answered = find(entries, AnsweredEntry.key_of(body.number))
    yield from request_damage(entries, store, body, answered)
    if answered is None:
        why = "the reviewer is being asked, or the process died"
        notes.append(f"request {body.number} ({body.topic}) has no answer: {why}")
    if isinstance(request, QuestionRequest) != (body.policy is not None):
        yield "the policy answers questions, and nothing else"
    elif isinstance(request, QuestionRequest) and body.policy_code == policy_digest():
        registered = SpecValueIndex(registered_spec(before, store)[0].spec) if find(before, "open") else None
        again = policy_answer(request, registered)
        if again != body.policy:
            message = body.policy.rule if body.policy else "nothing"
            yield f"the policy says '{again.rule}', recorded is '{message}'"


def _audit_lookup(entries: Sequence[RecordedEntry], recorded: RecordedEntry) -> Iterator[str]:
    """Check that it belongs to a request before it, whose audit carries it out again."""
    body = as_entry_of(recorded, LookupEntry).body
    request = History(entries[: recorded.seq]).find(AskedEntry, body.attempt)
    if request is None or (request.body.read, request.body.reviewer) != (body.packet, body.reviewer):
        yield f"was looked up for request {body.attempt}, which is not before it"


def _audit_answer(entries: Sequence[RecordedEntry], store: Store, recorded: RecordedEntry) -> Iterator[str]:
    body = as_entry_of(recorded, AnsweredEntry).body
    question = History(entries[: recorded.seq]).find(AskedEntry, body.number)
    if question is None or question.digest != body.asked:
        yield f"answers request {body.number}, which is not before it"
        return
    asked_entry = question.body
    reading = RequestReading.model_validate_json(store.get(asked_entry.read))
    if (body.answer is None) != bool(body.error):
        yield "has an answer and an error, or neither"
    looked = [
        as_file(number, cited_lookup.answer, store.get(cited_lookup.answer).decode())
        for number, cited_lookup in enumerate(body.looked, 1)
    ]
    answered_by_policy = asked_entry.policy is not None and not asked_entry.policy.ask
    if answered_by_policy != (body.by == "policy"):
        yield f"is answered by {body.by}, and the policy {'answers it' if answered_by_policy else 'has it asked'}"
    if body.answer is not None:
        answer = ANSWERS[asked_entry.mode].model_validate_json(store.get(body.answer))
        seen_verdict_reading = reading.model_copy(update={"files": (*reading.files, *looked)})
        texts = {file.name for file in seen_verdict_reading.files}
        places = CitationResolver(seen_verdict_reading)
        lost = [
            str(citation) for citation in places_in(answer) if citation.file in texts and not places.holds(citation)
        ]
        if lost:
            yield f"points at {lost[0]}, which is not in what was read"
    if body.by == "model":
        yield from _audit_exchange(entries[: recorded.seq], store, asked_entry, body, reading)
    elif body.by == "recorded":
        yield from _audit_repeat(entries[: recorded.seq], asked_entry, body)
    elif body.usd:
        yield f"cost {body.usd:g} USD, and no model was asked"
    settled = find(entries, SpendEntry.settlement_key(body.reservation)) if body.reservation else None
    if settled is not None and (usd := as_entry_of(settled, SpendEntry).body.usd) != body.usd:
        yield f"cost {body.usd:g} USD, settled is {usd:g}"


def _audit_exchange(
    before: Sequence[RecordedEntry], store: Store, asked_entry: AskedEntry, body: AnsweredEntry, reading: RequestReading
) -> Iterator[str]:
    """Check that what was sent is kept, holds the prompt and all that was shown, and was reserved for."""
    if body.reservation is None or find(before, SpendEntry.reservation_key(body.reservation)) is None:
        yield "a model was asked without a reservation"
    if body.answer is not None and (body.request is None or body.response is None):
        yield "there is an answer, and not the request and the response it came from"
    if body.request is None:
        return
    sent = list(strings_in(json.loads(store.get(body.request))))
    prompt = store.get(asked_entry.instructions).decode() if asked_entry.instructions else ""
    # An API without a place for the schema carries it behind the prompt.
    if not any(prompt in text for text in sent):
        yield "the body that was sent does not hold the recorded instructions"
    for file in reading.files:
        if not any(all(line in text for line in file.lines) for text in sent):
            yield f"the body that was sent does not hold '{file.name}' as it was read"


def _audit_repeat(before: Sequence[RecordedEntry], asked_entry: AskedEntry, body: AnsweredEntry) -> Iterator[str]:
    """Check that an answer that is given again was given before, to the same request."""
    history = History(before)
    first, question = history.find(AnsweredEntry, body.same_as), history.find(AskedEntry, body.same_as)
    if first is None or question is None:
        yield f"repeats request {body.same_as}, which is not before it"
    elif (question.body.same, first.body.answer, first.body.by) != (asked_entry.same, body.answer, "model"):
        yield f"repeats request {body.same_as}, which was another one or has another answer"
