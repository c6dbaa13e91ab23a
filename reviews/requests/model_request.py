"""From a request and what was read to the exact text a model is sent, and the function that reads its answer.

Instructions are the same bytes every time. Everything else, the request included, is enclosed between markers. Every
line of a file carries its number, so none can pass for one of ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from reviews.gate.reviewer import ModelOutcome
from reviews.requests.answer_forms import form_of, read_adversarial, read_draft, read_question, read_review
from reviews.requests.request_record import MODE_FIELDS, Request
from specs.system.digests import canonical_bytes
from specs.system.text import enclose
from specs.system.vendors.parties import ReviewLimits
from specs.trail.requested_review import (
    Answer,
    DraftRequest,
    Mode,
    QuestionRequest,
    ReadFile,
    RequestReading,
    ReviewRequest,
)

if TYPE_CHECKING:  # Imports an HTTP client.
    from reviews.reviewers.vendors.looking import Lookups
    from reviews.reviewers.vendors.review_model import ReviewModel, Waits

CLOSING = "Answer the request by your instructions, with the JSON object only."
_SHOWN_LEFT_OUT = 100
DRAFTS = 4
"""Drafts of one spec that a model may hand in."""


def instructions(mode: Mode) -> str:
    """Return the prompt for a kind of request. What several say of tools is written once."""
    prompt, looking = (Path(__file__).with_name(f"{name}.md").read_text(encoding="utf-8") for name in (mode, "looking"))
    return prompt.replace("{looking}\n", looking)


def question_text(request: Request, reading: RequestReading, tools: str = "") -> str:
    """Write the message: the request between markers, the files between others, and what its tools read."""
    data = canonical_bytes(_dump_request(request)).decode("utf-8")
    files = enclose("files", _format_files(reading)) if reading.files or reading.left_out else ""
    return f"{enclose('request', data)}\n{files}\n{tools}{CLOSING}"


def ask_model(
    model: ReviewModel,
    request: Request,
    reading: RequestReading,
    effort: ReviewLimits,
    waits: Waits,
    problems: Callable[[str], str] = lambda _: "",
    lookups: Lookups | None = None,
    answers: Sequence[ReadFile] = (),
) -> ModelOutcome[Answer]:
    """Ask, and return answer or error together with what it took; ``problems`` says what is wrong with a drafted spec.

    A draft with problems is asked for again, up to ``DRAFTS`` times in all, within the cap. ``answers`` grows with
    what the model looks up: it may point there too.
    """
    text, form = question_text(request, reading, lookups.describe() if lookups else ""), form_of(request.mode)

    def read(text: str) -> Answer:
        seen_reading = reading.model_copy(update={"files": (*reading.files, *answers)})
        return _reader(request, seen_reading, problems, model.name)(text)

    repeats = DRAFTS - 1 if isinstance(request, DraftRequest) else 1
    return model.ask(instructions(request.mode), text, form, effort, read, waits, lookups, repeats=repeats)


def _reader(
    request: Request, reading: RequestReading, problems: Callable[[str], str], who: str
) -> Callable[[str], Answer]:
    if isinstance(request, DraftRequest):
        return lambda text: read_draft(text, problems, who)
    if isinstance(request, QuestionRequest):
        return lambda text: read_question(text, request.options, who)
    if isinstance(request, ReviewRequest):
        return lambda text: read_review(text, reading, who)
    return lambda text: read_adversarial(text, reading, who)


def _dump_request(request: Request) -> dict[str, object]:
    """Return the part of a request that the reviewer sees: neither stakes nor the asker's confidence."""
    return request.model_dump(mode="json", include=MODE_FIELDS[request.mode])


def _format_files(reading: RequestReading) -> str:
    parts: list[str] = []
    for number, file in enumerate(reading.files, 1):
        lines = file.lines
        width = len(str(len(lines)))
        head = f"FILE {number}: {json.dumps(file.name)}, role: {file.role}, {len(lines)} lines"
        parts.append("\n".join([head, *(f"{count:>{width}}| {line}" for count, line in enumerate(lines, 1))]))
    left_out = [
        f"{json.dumps(left_out.name)}: {json.dumps(left_out.why)}" for left_out in reading.left_out[:_SHOWN_LEFT_OUT]
    ]
    more = len(reading.left_out) - len(left_out) + reading.more_left_out
    if left_out:
        sentences = [f"LEFT OUT, not shown: {len(left_out) + more} files", *left_out]
        parts.append("\n".join([*sentences, *([f"and {more} more"] if more else [])]))
    return "\n\n".join(parts)
