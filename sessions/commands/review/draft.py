"""`peergate review draft-spec`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from sessions.commands.options import spread
from sessions.commands.output import print_json
from sessions.commands.review.consult import ConsultOptions, Effort, desk_of, say, valid
from sessions.pages.report.requested_page import refuse_to_overwrite, write_page
from sessions.run.private_files import as_the_user_wants
from sessions.runtime.spec_draft import Drafting, draft_spec
from specs.system.errors import ExitCode, UserError
from specs.trail.requested_review import DraftAnswer, DraftRequest

app = typer.Typer()


@app.command(
    "draft-spec",
    epilog="Exit codes: 0 drafted, 2 cannot be carried out, 4 no draft without problems, 6 the money does not reach.",
)
@spread
def draft(
    goal: Annotated[str, typer.Argument(metavar="GOAL", help="What the experiment is for, in words.")],
    heldout: Annotated[
        Path | None, typer.Option("--heldout", help="The held-out items; only their columns and number are sent.")
    ] = None,
    data: Annotated[
        list[Path] | None, typer.Option("--data", help="A file of rows to learn from; two rows are sent. Repeatable.")
    ] = None,
    files: Annotated[
        list[Path] | None,
        typer.Option("--file", help="Another file it may name, sent unchanged: a constitution, a script. Repeatable."),
    ] = None,
    effort: Effort = "medium",
    *,
    request: ConsultOptions,
) -> None:
    """Have a session spec drafted from a goal, and checked.

    Each draft is checked as by `spec check`, and its problems go back to the model, within the price that is printed
    first. A draft may name only files that you passed. Nothing is started: read the draft, then `peergate start` it.
    """
    if request.session is not None:
        raise UserError("a spec cannot be drafted within a session", hint="omit --session")
    if request.force and request.out is None:
        raise UserError("--force requires --out", hint="add --out FILE, or omit --force")
    if request.out is not None:
        refuse_to_overwrite(request.out, request.force)
    wanted = valid(DraftRequest, goal=goal, effort=effort)
    folder = request.out.parent if request.out is not None else Path()
    done, drafting = draft_spec(wanted, desk_of(request), folder, heldout, data or [], files or [])
    answer = done.answer if isinstance(done.answer, DraftAnswer) else None
    # A recorded answer to the same goal is checked again: the files may have changed since.
    if answer is not None and drafting.resolved is None and (wrong := drafting.problems(answer.spec)):
        say(f"the recorded draft has problems by now: {wrong}")
    if answer is not None and request.out is not None:
        with as_the_user_wants():
            write_page(request.out, answer.spec, request.force)
        say(f"written to {request.out}")
    if request.as_json:
        print_json(done.as_json())
    elif answer is not None and request.out is None:
        # As it is, for a file it may be sent to; :class:`Drafting` refuses what a terminal would not show.
        text = answer.spec if answer.spec.endswith("\n") else f"{answer.spec}\n"
        sys.stdout.write(text)
    if answer is not None:
        _print_draft(answer, drafting)
    say(f"recorded as {done.key} in {done.folder}; `peergate audit show {done.folder} {done.key}` shows everything")
    if done.error is not None:
        say(f"peergate: {done.error}")
        raise SystemExit(int(done.error.exit_code))
    raise SystemExit(int(ExitCode.DONE))


def _print_draft(answer: DraftAnswer, drafting: Drafting) -> None:
    say(answer.reasoning)
    for title, lines in (("assumed", answer.assumptions), ("open", answer.open_questions)):
        for line in lines:
            say(f"{title}: {line}")
    for line in drafting.forecast.lines() if drafting.forecast else ():
        say(line)
