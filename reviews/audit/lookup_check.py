"""The audit of what reviewers looked up: answers follow from the evidence, and verdicts cite what was answered."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from reviews.audit.metric_lines import parts_of
from reviews.evidence.gather import gather
from reviews.evidence.readable_evidence import EvidenceBrowser, Texts
from reviews.history.history import History
from reviews.requests.kept_texts import KeptTexts
from reviews.trail.chain.envelope import RecordedEntry
from reviews.trail.chain.store import Store
from specs.system.strict_json import strings_in
from specs.trail.gate_bodies import LookupEntry, VerdictEntry
from specs.trail.requested_review import LOOKS, AnswerEntry, QuestionEntry


def lookup_damage(run: Path, history: History, stage: str, attempt: int, *, is_design: bool) -> Iterator[str]:
    """Carry out again what reviewers of an attempt looked up, and compare it with what their verdicts name."""
    looks = _list_lookups(history, stage, attempt)
    if looks:
        packet = history.attempt(stage, attempt).packet
        then = history.before(packet) if packet else history
        evidence = None if is_design else gather(run, then, stage, attempt)
        shelf = EvidenceBrowser(then.resolved, history.store, evidence, parts_of)
        yield from _answered_otherwise(looks, shelf, history.store)
    for judged in history.of(VerdictEntry):
        body = judged.body
        if (body.stage, body.attempt) == (stage, attempt):
            own = [look for look in history.of(LookupEntry) if _is_of(look.body, body.packet, body.reviewer)]
            yield from _cited_damage(judged, own, history.store)


def request_damage(
    history: History, question_entry: QuestionEntry, answered: RecordedEntry[AnswerEntry] | None
) -> Iterator[str]:
    """Carry out again what the reviewer of a request looked up, and compare it with what its answer names."""
    looks = [
        look
        for look in _list_lookups(history, LOOKS, question_entry.number)
        if _is_of(look.body, question_entry.read, question_entry.reviewer)
    ]
    yield from _answered_otherwise(looks, KeptTexts(question_entry, history.store), history.store)
    if answered is not None and answered.fits:
        yield from _cited_damage(answered, looks, history.store)


def _list_lookups(history: History, stage: str, attempt: int) -> list[RecordedEntry[LookupEntry]]:
    return [look for look in history.of(LookupEntry) if (look.body.stage, look.body.attempt) == (stage, attempt)]


def _is_of(look: LookupEntry, packet: str, reviewer: str) -> bool:
    return (look.packet, look.reviewer) == (packet, reviewer)


def _answered_otherwise(looks: Sequence[RecordedEntry[LookupEntry]], texts: Texts, store: Store) -> Iterator[str]:
    for look in looks:
        body = look.body
        again = texts.answer(body.tool, store.get(body.arguments).decode(), body.most)
        if (again.text.encode(), again.is_error) != (store.get(body.answer), body.is_error):
            yield f"what a reviewer looked up in {look.key} has another answer"


def _cited_damage(
    judged: RecordedEntry[VerdictEntry | AnswerEntry], looks: Sequence[RecordedEntry[LookupEntry]], store: Store
) -> Iterator[str]:
    """Compare what a verdict or an answer names with what its reviewer had looked up before it."""
    body, answers = judged.body, {look.key: look.body.answer for look in looks if look.seq < judged.seq}
    sent = list(strings_in(json.loads(store.get(body.request)))) if body.looked and body.request else []
    for cited in body.looked:
        if cited.entry not in answers:
            yield f"{judged.key} cites {cited.entry}, which its reviewer did not look up"
        elif answers[cited.entry] != cited.answer:
            yield f"{judged.key} cites another answer than {cited.entry} holds"
        elif body.request and not any(store.get(cited.answer).decode() in text for text in sent):
            yield f"the body that {judged.key} names does not hold the answer of {cited.entry}"
