"""`peergate review ask | request | adversarial`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar

import typer
from pydantic import ValidationError

from sessions.commands.options import DEFAULT_RUNS, RUNS_VARIABLE, Json, chosen, complete_run, spread
from sessions.commands.output import print_json, print_line
from sessions.pages.report.consult_context import ConsultContext, RequestOutcome
from sessions.pages.report.requested_page import page, refuse_to_overwrite, registered_facts, write_page
from sessions.requests.review_functions import adversarial_review, ask_review, request_review, review_commits
from sessions.run.private_files import as_the_user_wants
from sessions.run.terminal import masked_line
from specs.loading.reviewer_file import load_reviewer, reviewer_of
from specs.stages.explain import explain
from specs.system.errors import ExitCode, UserError
from specs.trail.requested_review import AdversarialRequest, DraftRequest, QuestionRequest, ReviewRequest

app = typer.Typer()

Effort = Annotated[
    Literal["low", "medium", "high"], typer.Option("--effort", help="How hard to look: bounds time and money.")
]
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
RequestT = TypeVar("RequestT", QuestionRequest, ReviewRequest, AdversarialRequest, DraftRequest)


@dataclass(frozen=True)
class ConsultOptions:
    """Who is asked, and where the answer is written."""

    session: Annotated[
        str | None,
        typer.Option(
            "--session",
            help="Ask in this session, a name or run folder: its reviewer, its budget, its trail.",
            autocompletion=complete_run,
        ),
    ] = None
    runs: Annotated[
        Path,
        typer.Option(
            "--runs",
            envvar=RUNS_VARIABLE,
            help="Folder of the run folders; outside a session the trail is RUNS/reviews.",
        ),
    ] = DEFAULT_RUNS
    reviewer: Annotated[
        Path | None, typer.Option("--reviewer", help="YAML file with what a spec has under 'reviewer:'.")
    ] = None
    vendor: Annotated[
        str | None, typer.Option("--vendor", help="openai or anthropic; without it, rules answer what they can.")
    ] = None
    model: Annotated[str | None, typer.Option("--model", help="The model to ask.")] = None
    base_url: Annotated[str | None, typer.Option("--base-url", help="Your own endpoint, with vendor openai.")] = None
    api: Annotated[str | None, typer.Option("--api", help="Its API: responses, chat or chat_json_object.")] = None
    price_in: Annotated[float | None, typer.Option("--price-in", help="USD per million input tokens.")] = None
    price_out: Annotated[float | None, typer.Option("--price-out", help="USD per million output tokens.")] = None
    max_cost: Annotated[
        float | None,
        typer.Option("--max-cost", help="The most this may cost, in USD; the effort's own cap by default."),
    ] = None
    out: Annotated[Path | None, typer.Option("--out", help="Write Markdown to this file instead of stdout.")] = None
    force: Annotated[bool, typer.Option("--force", help="Replace the file of --out.")] = False
    as_json: Json = False


@app.command("ask", epilog=_CODES)
@spread
def ask(
    topic: Annotated[str, typer.Option("--topic", help="What it is about, in a few words.")],
    question: Annotated[str, typer.Option("--question", help="What is to be decided.")],
    context: Annotated[list[Path] | None, typer.Option("--context", help="A file to read first; repeatable.")] = None,
    option: Annotated[list[str] | None, typer.Option("--option", help="A possible answer; repeatable.")] = None,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            help="methodology, priority, experimental_design, statistics, spec_deviation, gpu_spend (always asked); "
            "technical; trivial, already_in_spec, execution (answered by the policy). Omit it when in doubt.",
        ),
    ] = None,
    stakes: Annotated[str | None, typer.Option("--stakes", help="low, medium, high or critical.")] = None,
    confidence: Annotated[float | None, typer.Option("--confidence", help="How sure you are, 0 to 1.")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="This is a sanity check of an existing plan.")] = False,
    *,
    requested_value: ConsultOptions,
) -> None:
    """Ask one question: recommendation, reasoning, risks and an approval.

    The answer has at most 500 words. A policy answers trivia and what the registered spec says, without a call.
    Everything is recorded.
    """
    sure = {"stakes": stakes, "confidence": confidence, "has_plan": plan}
    request = valid(QuestionRequest, topic=topic, question=question, options=tuple(option or ()), kind=kind, **sure)
    _finish(lambda desk: ask_review(request, desk, list(context or ())), requested_value)


@app.command("request", epilog=_CODES)
@spread
def request(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Files, folders and run folders to read.")],
    kind: Annotated[Literal["methodology", "code", "design"], typer.Option("--kind", help="What to judge.")],
    note: Annotated[str, typer.Option("--note", help="What the reviewer should know or look at.")] = "",
    effort: Effort = "medium",
    *,
    requested_value: ConsultOptions,
) -> None:
    """Have files reviewed in full: issues with their lines, and recommendations.

    Issues have a severity; statistical concerns are listed apart. Without a vendor, rules look at session specs,
    Python, settings and JSONL data, and say what they did not judge.
    """
    wanted = valid(ReviewRequest, paths=tuple(paths), kind=kind, note=note, effort=effort)
    _finish(lambda desk: request_review(wanted, desk), requested_value)


@app.command("adversarial", epilog=_CODES)
@spread
def adversarial(
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="REPORT|DIR",
            help="A report, a folder, or a session's run folder; with --git the repository, by default this folder.",
            show_default=False,
        ),
    ] = None,
    git: Annotated[
        str | None, typer.Option("--git", metavar="RANGE", help="The claims of these commits, such as v1.0..HEAD.")
    ] = None,
    evidence: Annotated[
        list[str] | None, typer.Option("--evidence", help="File, folder or run folder with evidence; repeatable.")
    ] = None,
    effort: Effort = "high",
    *,
    request: ConsultOptions,
) -> None:
    """Check the claims of finished work against its evidence.

    Prints a scorecard, overclaims, and fixes in order. Without a vendor, numbers next to known names are looked up in
    the evidence, and nothing else is judged. With --git, the claims of commit messages and the changelog are checked
    against the patches: every closure, and every file and test that they name.
    """
    if git is not None:
        commits = valid(AdversarialRequest, path=path or ".", evidence=tuple(evidence or ()), effort=effort)
        _finish(lambda desk: review_commits(commits, git, desk), request)
    if path is None:
        raise UserError("nothing to check specified", hint="a report, a folder or a run folder; or --git RANGE")
    wanted = valid(AdversarialRequest, path=path, evidence=tuple(evidence or ()), effort=effort)
    _finish(lambda desk: adversarial_review(wanted, desk), request)


def _finish(carry_out: Callable[[ConsultContext], RequestOutcome], request: ConsultOptions) -> NoReturn:
    if request.force and request.out is None:
        raise UserError("--force requires --out", hint="add --out FILE, or omit --force")
    if request.out is not None:
        refuse_to_overwrite(request.out, request.force)
    try:
        done = carry_out(desk_of(request))
    except KeyboardInterrupt:
        say("interrupted; the money reserved for the call counts as spent")
        raise SystemExit(int(ExitCode.INTERRUPTED)) from None
    if request.out is not None and done.answer is not None:
        with as_the_user_wants():
            write_page(request.out, page(done, escaped=True), request.force)
        say(f"written to {request.out}")
    if done.facts and done.answer is None and not request.as_json:
        # No one answered: what is registered may settle it all the same.
        for line in registered_facts(done, escaped=False).splitlines():
            print_line(line)
    if request.as_json:
        print_json(done.as_json())
    elif request.out is None and done.answer is not None:
        sys.stdout.write(page(done, escaped=False))
    say(f"recorded as {done.key} in {done.folder}; `peergate audit show {done.folder} {done.key}` shows everything")
    if done.error is not None:
        say(f"peergate: {done.error}")
        raise SystemExit(int(done.error.exit_code))
    raise SystemExit(int(ExitCode.DONE))


def desk_of(request: ConsultOptions) -> ConsultContext:
    """Return where the request is carried out; raises UserError for options that contradict each other."""
    prices = {"input": request.price_in, "output": request.price_out}
    arguments = {
        "vendor": request.vendor,
        "model": request.model,
        "base_url": request.base_url,
        "api": request.api,
        "usd_per_million_tokens": {name: price for name, price in prices.items() if price is not None} or None,
    }
    values = {name: value for name, value in arguments.items() if value is not None}
    if request.session is not None and (values or request.reviewer is not None):
        message = f"the reviewer of session '{request.session}' is registered: it cannot be chosen here"
        raise UserError(message, hint="omit --session to ask someone else")
    if request.reviewer is not None and values:
        raise UserError("--reviewer cannot be combined with other settings", hint="omit the other options")
    if values and "vendor" not in values:
        raise UserError("--vendor is missing: openai or anthropic", hint=f"{_OPTIONS[(next(iter(values)),)]} needs one")
    reviewer = load_reviewer(request.reviewer) if request.reviewer is not None else reviewer_of(values, _OPTIONS)
    if request.session is not None:
        run = chosen(Path(request.session), request.runs).resolve()
        return ConsultContext(run.parent, run.name, reviewer, request.max_cost, say=say)
    return ConsultContext(request.runs, None, reviewer, request.max_cost, say=say)


def valid(form: type[RequestT], /, **values: Any) -> RequestT:
    """Return a valid request; raises UserError that names the wrong option."""
    try:
        return form.model_validate({name: value for name, value in values.items() if value is not None})
    except ValidationError as error:
        problems = [explain(entry, form) for entry in error.errors(include_url=False)]
        parts = [
            f"--{str(problem.loc[0]).replace('_', '-')}: {problem.message}"
            + (f" ({problem.hint})" if problem.hint else "")
            for problem in problems
        ]
        raise UserError("\n".join(dict.fromkeys(parts))) from error


def say(text: str) -> None:
    """Print a line to standard error, without secrets."""
    print_line(masked_line(text, 4000), err=True)
