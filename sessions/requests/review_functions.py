"""Requested reviews as Python functions: :func:`ask_review`, :func:`request_review`, :func:`adversarial_review`.

Each records the request before the call, reserves the money, and records the answer: with
``Desk(session=...)`` in the session's trail, with its reviewer and budget, otherwise in a folder next to the sessions.
A reviewer's fault is recorded and returned as ``error``; a request that cannot be carried out raises UserError and
leaves nothing. docs/how-to/requested-reviews.md has an example.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from reviews.requests.ask_policy import policy_answer, tier_of
from reviews.requests.file_reading import FOR_MODEL, FOR_RULES, RequestReader
from reviews.requests.registered_values import SpecValueIndex
from reviews.requests.rules.rule_findings import RuleMaterial
from reviews.requests.run_evidence import RunEvidence, add_run, is_run, run_texts
from sessions.pages.report.consult_context import ConsultContext, RequestOutcome
from sessions.pages.report.report import rendered_again
from sessions.requests.git_claims import git_texts
from sessions.requests.request_runner import Book, RequestCase
from specs.loading.loading import load_spec
from specs.session.session_spec import ResolvedSpec
from specs.system.errors import PeergateError, UserError
from specs.system.masking import masker_of
from specs.system.yaml.yaml_positions import dump_yaml
from specs.trail.requested_review import (
    AdversarialRequest,
    PolicyAnswer,
    QuestionAnswer,
    QuestionRequest,
    ReviewRequest,
)

CLAIM_SUFFIXES = (".md", ".txt", ".rst", ".tex", ".markdown")
"""Files of a folder that make claims; its other files are evidence."""

_DESIGN = {
    *("name", "objective", "task", "model", "control", "heldout", "analysis", "criteria", "thresholds", "budget"),
    "stages",
}
"""The parts of a registered spec that a question is about, without notices, trackers and machines."""

_FREE_TEXT = ("topic", "question", "context", "note", "options")
RequestT = TypeVar("RequestT", QuestionRequest, ReviewRequest, AdversarialRequest)


def ask_review(request: QuestionRequest, desk: ConsultContext, context: Sequence[str | Path] = ()) -> RequestOutcome:
    """Ask one question, with context files to read; the policy answers what must not be asked, without a call.

    Raises:
        UserError: a context file cannot be read, the reviewer cannot be asked (no key, no price), the session is
            missing or closed.
        AuditDamage: the trail is damaged.
    """
    with Book(desk) as book:
        request, reader = _begin(request, desk, book)
        for path in context:
            reader.add(path, "context")
        if request.context.strip():
            reader.add_text("context", request.context.encode(), "context")
        reading = reader.reading
        for left_out in reading.left_out:
            message = f"context '{left_out.name}' is not read: {left_out.why}"
            raise UserError(message, hint="name text files, small enough to be read")
        registered = SpecValueIndex(book.resolved.spec) if book.resolved else None
        if book.resolved is not None:
            _add_standing(reader, book.resolved)
            reading = reader.reading
        policy = policy_answer(request, registered)
        case = RequestCase(request, reading, tier_of(request.kind, request.stakes, request.has_plan), policy)
        if not policy.ask:
            desk.say(f"the policy answers this ({policy.rule}): no one is asked")
            done = book.record_answer(case, "policy", _policy_says(policy))
        else:
            done = book.carry_out(case)
    known = registered or _spec_in(context)
    matter = "\n".join((request.topic, request.question, *request.options))
    return replace(done, facts=known.bearing_on(matter)) if known else done


def _add_standing(reader: RequestReader, resolved: ResolvedSpec) -> None:
    """Add what a session's reviewer reads before every packet: its reading list and the registered design."""
    for file in resolved.read_first():
        reader.add_text(file["path"], file["text"].encode(), "evidence")
    spec = resolved.spec
    design = spec.model_dump(mode="json", include=_DESIGN, exclude_defaults=True)
    reader.add_text("registered-design.yaml", dump_yaml(design).encode(), "evidence")


def _spec_in(context: Sequence[str | Path]) -> SpecValueIndex | None:
    """Return the values of the first file of the context that is a whole session spec; None without one."""
    for path in (Path(value) for value in context if str(value).endswith((".yaml", ".yml"))):
        with suppress(PeergateError):
            return SpecValueIndex(load_spec(path).spec)
    return None


def request_review(request: ReviewRequest, desk: ConsultContext) -> RequestOutcome:
    """Have files and folders reviewed in full.

    Raises:
        UserError: none of the named files can be read, the reviewer cannot be asked, or as in :func:`ask_review`.
        EvidenceMissing: a run folder that was named has no registration.
        AuditDamage: a trail is damaged.
    """
    with Book(desk) as book:
        request, reader = _begin(request, desk, book)
        for path in map(Path, request.paths):
            if is_run(path):
                _readable_run(desk, path)
                add_run(reader, path, claims=(path / "report").is_dir())
            else:
                reader.add(path, "file")
        _let_look(reader, request.paths, book)
        reading = reader.reading
        if not reading.files and not reader.beside and (book.asks_a_model or not reader.sources):
            why = "; ".join(f"{left_out.name}: {left_out.why}" for left_out in reading.left_out[:5]) or "no files"
            raise UserError("none of the named files can be read", hint=why)
        _say_left_out(desk, reader)
        material = RuleMaterial(reading, reader.sources, desk.readable, masker_of(desk.environ).text)
        return book.carry_out(RequestCase(request, reading, request.effort, material=material, beside=reader.beside))


def adversarial_review(request: AdversarialRequest, desk: ConsultContext) -> RequestOutcome:
    """Check the claims of a report, or of a session's report, against evidence.

    Raises:
        UserError: no claims to read, the reviewer cannot be asked, or as in :func:`ask_review`.
        EvidenceMissing: the session whose run folder was named has no report yet.
        AuditDamage: a trail is damaged.
    """
    runs: list[RunEvidence] = []
    with Book(desk) as book:
        request, reader = _begin(request, desk, book)
        _add_claims(reader, Path(request.path), desk, runs, book.asks_a_model)
        for path in map(Path, request.evidence):
            if is_run(path):
                _readable_run(desk, path)
                runs.append(add_run(reader, path, claims=False))
            else:
                reader.add(path, "evidence")
        _let_look(reader, (request.path, *request.evidence), book)
        reading = reader.reading
        if not any(file.role == "claims" for file in reading.files):
            text = "; ".join(f"{left_out.name}: {left_out.why}" for left_out in reading.left_out[:3])
            hint = text or f"claims are read from files that end with {', '.join(CLAIM_SUFFIXES)}"
            raise UserError(f"'{request.path}' holds no claims that can be read", hint=hint)
        if not any(file.role == "evidence" for file in reading.files):
            message = "no evidence was given: every claim can only be unsupported"
            desk.say(f"{message} (--evidence names files and run folders)")
        _say_left_out(desk, reader)
        return book.carry_out(RequestCase(request, reading, request.effort, runs=runs, beside=reader.beside))


def review_commits(request: AdversarialRequest, commits: str, desk: ConsultContext) -> RequestOutcome:
    """Check what the messages and changelog lines of a range of commits claim against their patches.

    ``request.path`` is the repository.

    Raises:
        UserError: the range cannot be read, the reviewer cannot be asked, or as in :func:`ask_review`.
        AuditDamage: a trail is damaged.
    """
    texts = list(git_texts(Path(request.path), commits))
    with Book(desk) as book:
        request, reader = _begin(request.model_copy(update={"path": f"{request.path} {commits}"}), desk, book)
        for text in texts:
            reader.add_text(text.name, text.text.encode(), "claims" if text.is_claim else "evidence")
        for path in request.evidence:
            reader.add(path, "evidence")
        _say_left_out(desk, reader)
        return book.carry_out(RequestCase(request, reader.reading, request.effort, beside=reader.beside))


def _let_look(reader: RequestReader, paths: Iterable[str], book: Book) -> None:
    """Let the reviewer look into what it is not shown: rows of run folders, and files that are too large."""
    if book.looks:
        for run in filter(is_run, map(Path, paths)):
            for name, text in run_texts(run):
                reader.add_beside(name, text)
        reader.add_rest_beside()


def _add_claims(
    reader: RequestReader, path: Path, desk: ConsultContext, runs: list[RunEvidence], for_model: bool
) -> None:
    if is_run(path):
        _readable_run(desk, path)
        # A model is shown the report once, as it was saved: every token is paid for.
        runs.append(add_run(reader, path, claims=True, rendered=None if for_model else rendered_again(path)))
    elif path.is_dir():
        reader.add(path, lambda name: "claims" if name.lower().endswith(CLAIM_SUFFIXES) else "evidence")
    else:
        reader.add(path, "claims")


def _readable_run(desk: ConsultContext, path: Path) -> None:
    if not desk.readable(path.resolve()):
        raise UserError(f"'{path}' may not be read here", hint="only files that the requester may see are sent")


def _begin(request: RequestT, desk: ConsultContext, book: Book) -> tuple[RequestT, RequestReader]:
    """Return the request without secrets and the reader of its files; raises UserError if it cannot be kept."""
    masker = masker_of(desk.environ)
    values = request.model_dump(mode="json")
    values |= {name: masker.value(values[name]) for name in _FREE_TEXT if name in values}
    try:
        masked = type(request).model_validate(values)
        masked.canonical()
    except ValidationError as error:
        raise UserError(f"the request cannot be kept: {error.errors()[0]['msg']}") from error
    except ValueError as error:
        raise UserError(f"the request cannot be kept: {error}", hint="write it as UTF-8") from error
    return masked, RequestReader(masker, desk.readable, FOR_MODEL if book.asks_a_model else FOR_RULES)


def _say_left_out(desk: ConsultContext, reader: RequestReader) -> None:
    reading = reader.reading
    if count := len(reading.left_out) + reading.more_left_out:
        limits = f"(text only, {reader.limits}); the answer lists them"
        desk.say(f"files read: {len(reading.files)}, left out: {count} {limits}")


def _policy_says(policy: PolicyAnswer) -> QuestionAnswer:
    """Return the policy's answer as an answer that approves nothing, because no one judged."""
    text = "; ".join(f"{spec_value.pointer} = {spec_value.value}" for spec_value in policy.values)
    why = f"{policy.why[0].upper()}{policy.why[1:]}."
    recommendation = f"The registered spec says: {text}." if policy.rule == "answer.in_spec" else why
    reasoning = f"By rule {policy.rule} of the ask-policy: {policy.why}."
    if text and policy.rule != "answer.in_spec":
        reasoning += f" Registered limits: {text}."
    return QuestionAnswer(recommendation=recommendation, reasoning=reasoning, risks=(), approval=None, words=0)
