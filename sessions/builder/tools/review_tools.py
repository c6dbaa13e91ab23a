"""Tools that ask the session's reviewer about artifacts that the builder may read."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from sessions.builder.redaction import Redactor
from sessions.builder.tools.reading_tools import require_artifact
from sessions.builder.tools.tool_context import PhaseWork, ToolCallRefusal
from sessions.pages.report.consult_context import ConsultContext, RequestOutcome
from specs.system.text import enclose
from specs.trail.builder_tools import AdversarialReview, AskReview, RequestReview
from specs.trail.requested_review import AdversarialRequest, Answer, AnswerEntry, QuestionRequest, ReviewRequest

ANSWER = 12_000


def ask_review(work: PhaseWork, arguments: AskReview) -> str:
    """Ask a question; the policy answers what must not be asked."""
    functions = _functions()
    request = QuestionRequest.model_validate(arguments.model_dump(exclude={"artifacts"}))
    return _ask(work, arguments.artifacts, lambda desk, files: functions.ask_review(request, desk, files))


def request_review(work: PhaseWork, arguments: RequestReview) -> str:
    """Have artifacts reviewed in full."""

    def send(desk: ConsultContext, files: Sequence[Path]) -> RequestOutcome:
        values = arguments.model_dump(exclude={"artifacts"}) | {"paths": tuple(map(str, files))}
        return _functions().request_review(ReviewRequest.model_validate(values), desk)

    return _ask(work, arguments.artifacts, send)


def adversarial_review(work: PhaseWork, arguments: AdversarialReview) -> str:
    """Have a note's claims checked against evidence."""

    def send(desk: ConsultContext, files: Sequence[Path]) -> RequestOutcome:
        path, *evidence = map(str, files)
        request = AdversarialRequest(path=path, evidence=tuple(evidence), effort=arguments.effort)
        return _functions().adversarial_review(request, desk)

    return _ask(work, (arguments.claims, *arguments.evidence), send)


def _functions() -> ModuleType:
    """Return the functions of requested reviews, which are slow to import."""
    from sessions.requests import review_functions

    return review_functions


def _ask(
    work: PhaseWork, names: Sequence[str], send: Callable[[ConsultContext, Sequence[Path]], RequestOutcome]
) -> str:
    """Send a request with these artifacts as files, recorded like any requested review."""
    session = work.session
    with _files(work, names) as (folder, files):
        desk = ConsultContext(
            runs=session.run.parent,
            session=session.run.name,
            readable=lambda path: path.is_relative_to(folder),
            by=session.builder.name,
            say=session.display.say,
            sleep=session.wait,
        )
        done = send(desk, files)
    if done.answer is None:
        raise ToolCallRefusal(f"no answer came: {done.error.message if done.error else 'no one was asked'}")
    return format_review_answer(work.wall, done.answer_entry, done.answer)


def format_review_answer(wall: Redactor, answered: AnswerEntry, answer: Answer) -> str:
    """Return a reviewer's answer as data, never as an instruction."""
    text = wall.clean(answer.model_dump_json(indent=1), ANSWER)
    return f"answered by {answered.by}, recorded as answer/{answered.number}\n{enclose('answer', text)}"


@contextmanager
def _files(work: PhaseWork, names: Sequence[str]) -> Generator[tuple[Path, list[Path]]]:
    """Write artifacts to files of their names, as long as the context lasts."""
    with tempfile.TemporaryDirectory(prefix="peergate-") as made:
        folder = Path(made).resolve()
        files: list[Path] = []
        for name in names:
            readable = require_artifact(work.session, name)
            path = folder / f"{readable.name}{readable.suffix}"
            path.write_bytes(work.session.store.get(readable.digest))
            files.append(path)
        yield folder, files
