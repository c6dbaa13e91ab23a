"""`peergate review ask | request | adversarial`: carried out, printed, and ended with an exit code.

0: answered, whatever the answer is. 2: the request cannot be carried out, and nothing is recorded. 4: nobody gave a
whole answer. 6: the money does not reach.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar

import typer
from pydantic import ValidationError

from sessions.commands.options import DEFAULT_RUNS, Json
from sessions.commands.output import print_json, print_line
from sessions.report.requested_page import page, refuse_to_overwrite, write_page
from sessions.requests.consult_context import Desk, Requested
from sessions.requests.review_functions import adversarial_review, ask_review, request_review
from sessions.run.private_files import as_the_user_wants
from sessions.terminal import masked_line
from specs.errors import ExitCode, UserError
from specs.session.explain import explain
from specs.session.reviewer_file import load_reviewer, reviewer_of
from specs.session.session_spec import Reviewer
from specs.trail.requested_review import AdversarialRequest, QuestionRequest, ReviewRequest

app = typer.Typer()

Session = Annotated[
    str | None, typer.Option("--session", help="Ask in this session: its reviewer, its budget, its trail.")
]
Runs = Annotated[
    Path, typer.Option("--runs", help="Folder of the run folders; outside a session the trail is RUNS/reviews.")
]
ReviewerFile = Annotated[
    Path | None, typer.Option("--reviewer", help="YAML file with what a spec has under 'reviewer:'.")
]
VendorName = Annotated[
    str | None, typer.Option("--vendor", help="openai or anthropic; without one rules answer what they can.")
]
ModelName = Annotated[str | None, typer.Option("--model", help="The model to ask.")]
BaseUrl = Annotated[str | None, typer.Option("--base-url", help="An endpoint of your own, with vendor openai.")]
ApiName = Annotated[str | None, typer.Option("--api", help="Its API: responses, chat or chat_json_object.")]
PriceIn = Annotated[float | None, typer.Option("--price-in", help="USD per million input tokens.")]
PriceOut = Annotated[float | None, typer.Option("--price-out", help="USD per million output tokens.")]
MaxCost = Annotated[
    float | None, typer.Option("--max-cost", help="The most this may cost, in USD; the effort's own cap by default.")
]
OutFile = Annotated[Path | None, typer.Option("--out", help="Write Markdown to this file instead of stdout.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the file of --out.")]
Effort = Literal["low", "medium", "high"]
_CODES = "Exit codes: 0 answered, 2 cannot be carried out, 4 no whole answer, 6 the money does not reach."
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


@app.command("ask", epilog=_CODES)
def ask(
    topic: Annotated[str, typer.Option("--topic", help="What it is about, in a few words.")],
    question: Annotated[str, typer.Option("--question", help="What is to be decided.")],
    context: Annotated[list[Path] | None, typer.Option("--context", help="A file to read first; repeatable.")] = None,
    option: Annotated[list[str] | None, typer.Option("--option", help="One of the answers; repeatable.")] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            help="methodology, priority, experimental_design, statistics, spec_deviation, gpu_spend (always asked); "
            "technical; trivial, already_in_spec, execution (answered by the policy). In doubt leave it out.",
        ),
    ] = None,
    stakes: Annotated[str | None, typer.Option("--stakes", help="low, medium, high or critical.")] = None,
    confidence: Annotated[float | None, typer.Option("--confidence", help="How sure you are, 0 to 1.")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="There is a plan; this is a sanity check of it.")] = False,
    session: Session = None,
    runs: Runs = DEFAULT_RUNS,
    reviewer: ReviewerFile = None,
    vendor: VendorName = None,
    model: ModelName = None,
    base_url: BaseUrl = None,
    api: ApiName = None,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    max_cost: MaxCost = None,
    out: OutFile = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Ask one question: recommendation, reasoning, risks and an approval.

    The answer has at most 500 words. A policy answers trivia and what the registered spec says, without a call.
    Everything is recorded.
    """
    values = {"topic": topic, "question": question, "options": tuple(option or ()), "has_plan": plan}
    values |= {"kind": kind, "stakes": stakes, "confidence": confidence}
    who = Who(session, runs, reviewer, vendor, model, base_url, api, price_in, price_out, max_cost)
    request = _request(QuestionRequest, values)
    _finish(lambda desk: ask_review(request, desk, list(context or ())), who, Output(out, force, as_json))


@app.command("request", epilog=_CODES)
def request(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Files, folders and run folders to read.")],
    kind: Annotated[Literal["methodology", "code", "design"], typer.Option("--kind", help="What to judge.")],
    note: Annotated[str, typer.Option("--note", help="What the reviewer should know or look at.")] = "",
    effort: Annotated[Effort, typer.Option("--effort", help="How hard to look: bounds time and money.")] = "medium",
    session: Session = None,
    runs: Runs = DEFAULT_RUNS,
    reviewer: ReviewerFile = None,
    vendor: VendorName = None,
    model: ModelName = None,
    base_url: BaseUrl = None,
    api: ApiName = None,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    max_cost: MaxCost = None,
    out: OutFile = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Have files reviewed in full: issues with their lines, and recommendations.

    Issues have a severity; statistical concerns are listed apart. Without a vendor, rules look at session specs,
    Python, settings and JSONL data, and say what they did not judge.
    """
    values = {"paths": tuple(paths), "kind": kind, "note": note, "effort": effort}
    who = Who(session, runs, reviewer, vendor, model, base_url, api, price_in, price_out, max_cost)
    wanted = _request(ReviewRequest, values)
    _finish(lambda desk: request_review(wanted, desk), who, Output(out, force, as_json))


@app.command("adversarial", epilog=_CODES)
def adversarial(
    path: Annotated[str, typer.Argument(metavar="REPORT|DIR", help="A report, a folder, or a session's run folder.")],
    evidence: Annotated[
        list[str] | None, typer.Option("--evidence", help="File, folder or run folder with evidence; repeatable.")
    ] = None,
    effort: Annotated[Effort, typer.Option("--effort", help="How hard to look: bounds time and money.")] = "high",
    session: Session = None,
    runs: Runs = DEFAULT_RUNS,
    reviewer: ReviewerFile = None,
    vendor: VendorName = None,
    model: ModelName = None,
    base_url: BaseUrl = None,
    api: ApiName = None,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    max_cost: MaxCost = None,
    out: OutFile = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Check the claims of finished work against its evidence.

    Prints a scorecard, overclaims, and fixes in order. Without a vendor, numbers beside known names are looked up in
    the evidence, and nothing else is judged.
    """
    values = {"path": path, "evidence": tuple(evidence or ()), "effort": effort}
    who = Who(session, runs, reviewer, vendor, model, base_url, api, price_in, price_out, max_cost)
    wanted = _request(AdversarialRequest, values)
    _finish(lambda desk: adversarial_review(wanted, desk), who, Output(out, force, as_json))


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
        UserError: a value is wrong; names the option.
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
