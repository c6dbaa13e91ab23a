"""Where requested reviews are carried out, and their results."""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specs.system.errors import PeergateError
from specs.system.vendors.parties import ReviewerSpec
from specs.trail.requested_review import (
    AdversarialRequest,
    Answer,
    AnswerEntry,
    DraftRequest,
    QuestionEntry,
    QuestionRequest,
    RequestReading,
    ReviewRequest,
    SpecValue,
)

AnyRequest = QuestionRequest | ReviewRequest | AdversarialRequest | DraftRequest


@dataclass(frozen=True)
class ConsultContext:
    """Who is asked, where the request is recorded, and what may be read."""

    runs: Path = Path("runs")
    """The folder of run folders; its ``reviews`` holds the requests outside of sessions."""
    session: str | None = None
    """Ask in this session: its reviewer, its budget, its trail."""
    reviewer: ReviewerSpec = ReviewerSpec()
    """Who is asked outside of a session; ``checklist`` asks no model."""
    max_cost_usd: float | None = None
    """The most one request may cost outside of a session, instead of what its effort allows."""
    readable: Callable[[Path], bool] = lambda _: True
    """Says which real paths may be read; a builder's tool allows what the builder may see."""
    by: str = field(default_factory=getpass.getuser)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    """Where keys are found; everything sent or kept has the values of its secrets masked."""
    say: Callable[[str], None] = lambda _: None
    """Takes one line about what happens now."""
    sleep: Callable[[float], None] = time.sleep
    """Waits before a call is repeated."""


@dataclass(frozen=True)
class RequestOutcome:
    """The answer to a request, or the error that is recorded in its place."""

    request: AnyRequest
    reading: RequestReading
    request_entry: QuestionEntry
    answer_entry: AnswerEntry
    answer: Answer | None
    error: PeergateError | None
    """ReviewerUnavailable: no one gave a whole answer. BudgetExceeded: too little money."""
    folder: Path
    """The run folder, or the folder of requested reviews, whose trail holds the request."""
    facts: tuple[SpecValue, ...] = ()
    """What is registered about the matter of a question; read from the spec, judged by no one."""
    looked: tuple[str, ...] = ()
    """What the reviewer looked up, in the order of its answers: a tool and its arguments."""

    @property
    def key(self) -> str:
        """The key of the trail entry with the result."""
        return f"answer/{self.answer_entry.number}"

    def as_json(self) -> dict[str, Any]:
        """Return the form of `review ask | request | adversarial --json`."""
        question_entry, answered = self.request_entry, self.answer_entry
        return {
            "mode": question_entry.mode,
            "topic": question_entry.topic,
            "recorded": {"folder": str(self.folder), "key": self.key},
            "answered_by": answered.by,
            "same_as": f"answer/{answered.same_as}" if answered.same_as else None,
            "policy": question_entry.policy.model_dump(mode="json") if question_entry.policy else None,
            "reviewer": question_entry.reviewer,
            "model": answered.model,
            "effort": question_entry.tier,
            "reasoning": answered.reasoning,
            "usage": answered.usage,
            "usd": answered.usd,
            "usd_is_measured": answered.usd_is_measured,
            "seconds": answered.seconds,
            "looked": list(self.looked),
            "registered": [spec_value.model_dump(mode="json") for spec_value in self.facts],
            "answer": self.answer.model_dump(mode="json") if self.answer else None,
            "error": {"kind": type(self.error).__name__, "message": self.error.message} if self.error else None,
            "read": [file.model_dump(mode="json", exclude={"text"}) for file in self.reading.files],
            "left_out": [left_out.model_dump(mode="json") for left_out in self.reading.left_out],
            "more_left_out": self.reading.more_left_out,
        }
