"""`peergate review ask | request | adversarial`: carried out, printed, and ended with an exit code.

0: answered, whatever the answer is. 2: the request cannot be carried out, and nothing is recorded. 4: nobody gave a
whole answer. 6: the money does not reach.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import ValidationError

from sessions.commands.output import print_json, print_line
from sessions.report.requested_page import page, refuse_to_overwrite, write_page
from sessions.requests.consult_context import Desk, Requested
from sessions.run.private_files import as_the_user_wants
from sessions.terminal import masked_line
from specs.errors import ExitCode, UserError
from specs.session.explain import explain
from specs.session.reviewer_file import load_reviewer, reviewer_of
from specs.session.session_spec import Reviewer
from specs.trail.requested_review import AdversarialRequest, QuestionRequest, ReviewRequest

_OPTIONS: dict[tuple[str | int, ...], str] = {
    ("vendor",): "--vendor",
    ("model",): "--model",
    ("base_url",): "--base-url",
    ("api",): "--api",
    ("usd_per_million_tokens", "input"): "--price-in",
    ("usd_per_million_tokens", "output"): "--price-out",
    ("usd_per_million_tokens",): "--price-in",
}
RequestT = TypeVar("RequestT", QuestionRequest, ReviewRequest, AdversarialRequest)


@dataclass(frozen=True)
class Who:
    """Who is asked, as it was given on the command line."""

    session: str | None
    runs: Path
    reviewer: Path | None
    vendor: str | None
    model: str | None
    base_url: str | None
    api: str | None
    price_in: float | None
    price_out: float | None
    max_cost: float | None


@dataclass(frozen=True)
class Output:
    """Where the answer goes."""

    out: Path | None
    force: bool
    as_json: bool


def ask(values: dict[str, Any], context: list[Path], who: Who, output: Output) -> NoReturn:
    """Ask one question."""
    from sessions.requests.review_functions import ask_review

    request = _request(QuestionRequest, values)
    _finish(lambda desk: ask_review(request, desk, context), who, output)


def request(values: dict[str, Any], who: Who, output: Output) -> NoReturn:
    """Have files reviewed in full."""
    from sessions.requests.review_functions import request_review

    wanted = _request(ReviewRequest, values)
    _finish(lambda desk: request_review(wanted, desk), who, output)


def adversarial(values: dict[str, Any], who: Who, output: Output) -> NoReturn:
    """Hold claims against evidence."""
    from sessions.requests.review_functions import adversarial_review

    wanted = _request(AdversarialRequest, values)
    _finish(lambda desk: adversarial_review(wanted, desk), who, output)


def _finish(carry_out: Callable[[Desk], Requested], who: Who, output: Output) -> NoReturn:
    if output.force and output.out is None:
        raise UserError("--force replaces the file of --out", hint="name one, or leave --force out")
    if output.out is not None:
        refuse_to_overwrite(output.out, output.force)
    try:
        done = carry_out(_desk(who))
    except KeyboardInterrupt:
        _say("broken off; what was reserved for the call counts as spent")
        raise SystemExit(int(ExitCode.INTERRUPTED)) from None
    if output.out is not None and done.answer is not None:
        with as_the_user_wants():
            write_page(output.out, page(done, escaped=True), output.force)
        _say(f"written to {output.out}")
    if output.as_json:
        print_json(done.as_json())
    elif output.out is None and done.answer is not None:
        sys.stdout.write(page(done, escaped=False))
    _say(f"recorded as {done.key} in {done.folder}; `peergate audit show {done.folder} {done.key}` shows everything")
    if done.error is not None:
        _say(f"peergate: {done.error}")
        raise SystemExit(int(done.error.exit_code))
    raise SystemExit(int(ExitCode.DONE))


def _desk(who: Who) -> Desk:
    """Return where the request is carried out.

    Raises:
        UserError: options contradict each other, or name no reviewer.
    """
    prices = {"input": who.price_in, "output": who.price_out}
    given = {
        "vendor": who.vendor,
        "model": who.model,
        "base_url": who.base_url,
        "api": who.api,
        "usd_per_million_tokens": {name: price for name, price in prices.items() if price is not None} or None,
    }
    values = {name: value for name, value in given.items() if value is not None}
    if who.session is not None and (values or who.reviewer is not None):
        raise UserError(
            f"the reviewer of session '{who.session}' is registered: it cannot be chosen here",
            hint="leave --session out to ask somebody else",
        )
    if who.reviewer is not None and values:
        raise UserError("--reviewer names a file that says everything", hint="leave the other options out")
    reviewer = load_reviewer(who.reviewer) if who.reviewer is not None else _reviewer(values)
    return Desk(
        runs=who.runs,
        session=who.session,
        reviewer=reviewer,
        max_cost_usd=who.max_cost,
        say=_say,
    )


def _reviewer(values: dict[str, Any]) -> Reviewer:
    if values and "vendor" not in values:
        raise UserError("--vendor is missing: openai or anthropic", hint=f"{_OPTIONS[(next(iter(values)),)]} needs one")
    return reviewer_of(values, _OPTIONS)


def _request(kind: type[RequestT], values: dict[str, Any]) -> RequestT:
    """Validate a request.

    Raises:
        UserError: it is none; names the option.
    """
    try:
        return kind.model_validate({name: value for name, value in values.items() if value is not None})
    except ValidationError as error:
        told: list[str] = []
        for entry in error.errors(include_url=False):
            said = explain(entry, kind)
            told.append(
                f"--{str(said.loc[0]).replace('_', '-')}: {said.message}{f' ({said.hint})' if said.hint else ''}"
            )
        raise UserError("\n".join(dict.fromkeys(told))) from error


def _say(text: str) -> None:
    print_line(masked_line(text, 4000), err=True)
