"""What a reviewer looks up while it judges a packet: carried out on the evidence, each call and its answer recorded."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from reviews.audit.metric_lines import parts_of
from reviews.evidence.readable_evidence import MOST_ANSWER, EvidenceBrowser, Texts
from reviews.gate.reviewer import LookupAnswer, PacketReviewer
from reviews.reviewers.process import messages
from reviews.reviewers.process.reviewer_proxy import ModelApart
from reviews.reviewers.vendors.looking import MOST_CALLS
from reviews.trail.chain.store import Store
from reviews.trail.trail import Trail
from sessions.session import Session
from specs.trail.gate_bodies import LookupEntry


@contextmanager
def may_look(session: Session, stage: str, attempt: int, packet: str, reviewer: PacketReviewer) -> Generator[None]:
    """Let a reviewer look into the evidence of a packet, by its digest, if its spec has it look anywhere."""
    if not isinstance(reviewer, ModelApart) or not reviewer.looks:
        yield
        return
    is_stage = any(current_stage.name == stage for current_stage in session.resolved.spec.stages)
    evidence = session.evidence(stage, attempt) if is_stage else None
    shelf = EvidenceBrowser(session.resolved, session.store, evidence, parts_of)

    remaining = reviewer.looks * MOST_CALLS
    facts = {"stage": stage, "attempt": attempt, "packet": packet, "reviewer": reviewer.name}

    def look(requested_look: messages.Look) -> messages.LookupAnswerMessage:
        nonlocal remaining
        if not remaining:
            raise ValueError(f"it looks up more than {reviewer.looks} answers with {MOST_CALLS} calls each")
        remaining -= 1
        session.display.say(f"  {reviewer.name} looks something up: {requested_look.tool}")
        at, call = (
            LookupEntry.key_of(stage, f"{attempt}/"),
            (requested_look.tool, requested_look.arguments, requested_look.most),
        )
        return messages.LookupAnswerMessage(
            **carry_out(shelf, session.trail, session.store, at, facts, *call)._asdict()
        )

    process = session.reviewing
    process.readable, process.look, before = tuple(shelf.names()), look, process.look
    try:
        yield
    finally:
        process.readable, process.look = (), before


def carry_out(
    texts: Texts,
    trail: Trail,
    store: Store,
    at: str,
    facts: Mapping[str, Any],
    tool: str,
    arguments: str,
    most: int,
) -> LookupAnswer:
    """Answer a reviewer's call, and record both in an entry with a key that begins with ``at``."""
    most = min(most, MOST_ANSWER)
    answer = texts.answer(tool, arguments, most)
    number = sum(entry.key.startswith(at) for entry in trail.iterate(LookupEntry)) + 1
    text = store.put_text(answer.text)
    body = LookupEntry(
        **facts,
        number=number,
        tool=tool,
        arguments=store.put_text(arguments),
        most=most,
        answer=text,
        is_error=answer.is_error,
    )
    recorded = trail.append(body, f"{at}{number}")
    return LookupAnswer(store.get(text).decode(), answer.is_error, recorded.key)
