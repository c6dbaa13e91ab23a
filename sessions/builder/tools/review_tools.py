"""Tools that ask the session's reviewer. What may be read is what the builder itself may read, by name."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from sessions.builder.redaction import Wall
from sessions.builder.tools.reading_tools import require_artifact
from sessions.builder.tools.tool_context import Refused, Work
from sessions.requests.consult_context import Desk, Requested
from specs.trail.builder_tools import AdversarialReview, AskReview, RequestReview
from specs.trail.requested_review import AdversarialRequest, Answer, AnsweredEntry, QuestionRequest, ReviewRequest
from specs.vendors.untrusted_text import enclose

ANSWER = 12_000


def ask_one_question(work: Work, arguments: AskReview) -> str:
    """Ask a question; the policy answers what must not be asked."""
    from sessions.requests.review_functions import ask_review

    request = QuestionRequest(
        topic=arguments.topic,
        question=arguments.question,
        options=arguments.options,
        kind=arguments.kind,
        stakes=arguments.stakes,
        confidence=arguments.confidence,
    )
    return _ask(work, arguments.artifacts, lambda desk, files: ask_review(request, desk, files))


def request_full_review(work: Work, arguments: RequestReview) -> str:
    """Have artifacts reviewed in full."""
    from sessions.requests.review_functions import request_review

    def send(desk: Desk, files: Sequence[Path]) -> Requested:
        paths = tuple(str(one) for one in files)
        note, effort = arguments.note, arguments.effort
        return request_review(ReviewRequest(paths=paths, kind=arguments.kind, note=note, effort=effort), desk)

    return _ask(work, arguments.artifacts, send)


def review_claims(work: Work, arguments: AdversarialReview) -> str:
    """Have a note's claims held against evidence."""
    from sessions.requests.review_functions import adversarial_review

    def send(desk: Desk, files: Sequence[Path]) -> Requested:
        path, *evidence = (str(one) for one in files)
        return adversarial_review(
            AdversarialRequest(path=path, evidence=tuple(evidence), effort=arguments.effort), desk
        )

    return _ask(work, (arguments.claims, *arguments.evidence), send)


def _ask(work: Work, names: Sequence[str], send: Callable[[Desk, Sequence[Path]], Requested]) -> str:
    """Send a request with these artifacts as files; its trail entries are those of any requested review."""
    session = work.session
    with _files(work, names) as (folder, files):
        desk = Desk(
            runs=session.run.parent,
            session=session.run.name,
            readable=lambda path: path.is_relative_to(folder),
            by=session.builder.name,
            say=session.display.say,
        )
        done = send(desk, files)
    if done.answer is None:
        raise Refused(f"no answer came: {done.error.message if done.error else 'nobody was asked'}")
    return tell(work.wall, done.answered, done.answer)


def tell(wall: Wall, answered: AnsweredEntry, answer: Answer) -> str:
    """Show an answer, which is what a reviewer wrote and no instruction."""
    said = wall.clean(answer.model_dump_json(indent=1), ANSWER)
    return f"answered by {answered.by}, recorded as answered/{answered.number}\n{enclose('answer', said)}"


@contextmanager
def _files(work: Work, names: Sequence[str]) -> Generator[tuple[Path, list[Path]]]:
    """Lay artifacts out as files under their names, for as long as they are read."""
    with tempfile.TemporaryDirectory(prefix="peergate-") as made:
        folder = Path(made).resolve()
        files: list[Path] = []
        for name in names:
            found = require_artifact(work.session, name)
            path = folder / f"{found.name}{found.suffix}"
            path.write_bytes(work.session.store.get(found.digest))
            files.append(path)
        yield folder, files
