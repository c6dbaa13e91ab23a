"""What a reviewer looks up while it judges a packet: carried out on the evidence, each call and its answer recorded."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from reviews.audit.metric_lines import parts_of
from reviews.evidence.readable_evidence import MOST_ANSWER, Shelf
from reviews.gate.reviewer import Reviewer
from reviews.reviewers.process import messages
from reviews.reviewers.process.reviewer_proxy import ModelApart
from reviews.reviewers.vendors.looking import MOST_CALLS
from sessions.session import Session


@contextmanager
def may_look(session: Session, stage: str, attempt: int, packet: str, reviewer: Reviewer) -> Generator[None]:
    """Let a reviewer look into the evidence of a packet, by its digest, if its spec has it look anywhere."""
    if not isinstance(reviewer, ModelApart) or not reviewer.looks:
        yield
        return
    is_stage = any(one.name == stage for one in session.resolved.spec.stages)
    evidence = session.evidence(stage, attempt) if is_stage else None
    shelf = Shelf(session.resolved, session.store, evidence, parts_of)

    left = reviewer.looks * MOST_CALLS

    def look(asked: messages.Look) -> messages.Looked:
        nonlocal left
        if not left:
            raise ValueError(f"it looks up more than {reviewer.looks} answers with {MOST_CALLS} calls each")
        left -= 1
        answer = shelf.answer(asked.tool, asked.arguments, min(asked.most, MOST_ANSWER))
        at = f"look/{stage}.{attempt}/"
        number = sum(one.entry.key.startswith(at) for one in session.trail.iterate("look")) + 1
        answered = session.store.put_text(answer.text)
        body = {
            "stage": stage,
            "attempt": attempt,
            "packet": packet,
            "reviewer": reviewer.name,
            "number": number,
            "tool": asked.tool,
            "arguments": session.store.put_text(asked.arguments),
            "most": min(asked.most, MOST_ANSWER),
            "answer": answered,
            "is_error": answer.is_error,
        }
        recorded = session.trail.append("look", f"{at}{number}", body)
        session.display.say(f"  {reviewer.name} looks something up: {asked.tool}")
        return messages.Looked(
            text=session.store.get(answered).decode(), is_error=answer.is_error, entry=recorded.entry.key
        )

    process = session.reviewing
    process.readable, process.look, before = tuple(shelf.names()), look, process.look
    try:
        yield
    finally:
        process.readable, process.look = (), before
