"""The command line: `peergate`. Commands import what they need when they run, so that `--help` stays quick."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from sessions.cli_audit import audit_app
from sessions.cli_pod import pod_app
from sessions.cli_review import add_commands
from specs.errors import ExitCode, PeergateError

app = typer.Typer(
    name="peergate",
    help="Autonomous post-training sessions whose stages open only on an independent, evidence-bound verdict.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    epilog="Exit codes: 0 done, 1 fault, 2 usage or spec, 3 rejected by a gate, 4 blocked, 5 damage found, 6 budget, "
    "130 paused. `audit verify` has its own: 0 verified and closed, 1 tampered, 2 valid but open "
    "or newer than the anchors given, 3 unreadable.",
)
spec_app = typer.Typer(help="Check and show specs.", no_args_is_help=True)
check_app = typer.Typer(help="See what is asked of every stage, and ask again.", no_args_is_help=True)
review_app = typer.Typer(help="Ask for a review, give one, or read older ones.", no_args_is_help=True)
add_commands(review_app)
app.add_typer(spec_app, name="spec")
app.add_typer(audit_app, name="audit")
app.add_typer(check_app, name="check")
app.add_typer(review_app, name="review")
app.add_typer(pod_app, name="pod")

Runs = Annotated[Path, typer.Option("--runs", help="Folder that holds the run folders.", show_default=True)]
Name = Annotated[str, typer.Argument(help="Name of the session.")]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output on stdout.")]
RunPath = Annotated[Path, typer.Argument(help="Run folder of a session, or its name under ./runs.")]
Profile = Annotated[str | None, typer.Option("--profile", help="Which of the spec's profiles; its own by default.")]
DEFAULT_RUNS = Path("runs")


@app.command(rich_help_panel="Sessions")
def start(
    spec: Annotated[
        str, typer.Argument(help="Spec file, or the name of a shipped one: demo, cai_stage1, cai_preferences.")
    ],
    name: Annotated[str | None, typer.Option("--name", help="Name of the session; the spec's name by default.")] = None,
    runs: Runs = DEFAULT_RUNS,
    profile: Profile = None,
    launcher: Annotated[
        str | None,
        typer.Option(
            "--launcher", help="Where its jobs run, instead of what the spec says (docs/how-to/launchers.md)."
        ),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(
            "--database", metavar="URL", help="Record this and later sessions there (docs/explanation/scale.md)."
        ),
    ] = None,
) -> None:
    """Register a spec and run the session, gate by gate."""
    from sessions.commands import run

    if database is not None:
        from sessions.commands.database import use_database

        use_database(runs, database)

    run.start(spec, name, runs, profile, launcher)


@app.command(rich_help_panel="Sessions")
def resume(
    name: Name,
    runs: Runs = DEFAULT_RUNS,
    answer: Annotated[
        Literal["retry", "approve", "stop"] | None,
        typer.Option("--answer", help="Settle what a waiting session asks: try again, override the gate, or stop."),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Why; recorded in the trail. Needed with --answer.")] = "",
) -> None:
    """Go on with a paused, killed or waiting session."""
    from sessions.commands import run

    run.resume(name, runs, answer, reason)


@app.command(rich_help_panel="Sessions")
def mcp(
    target: Annotated[str, typer.Argument(metavar="RUN|SPEC", help="A session, or the spec to open one with.")],
    name: Annotated[str | None, typer.Option("--name", help="Name of the session; the spec's name by default.")] = None,
    runs: Runs = DEFAULT_RUNS,
    http: Annotated[
        str | None, typer.Option("--http", metavar="HOST:PORT", help="Serve over HTTP there, not over stdio.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="The bearer token for HTTP, mode 0600; made if not there.")
    ] = None,
    profile: Profile = None,
) -> None:
    """Serve a session's tools to an MCP client: Claude Code, Codex or another is its builder (docs/how-to/mcp.md)."""
    from sessions.commands import mcp as command

    command.serve(target, runs, name, http, token_file, profile)


By = Annotated[str | None, typer.Option("--by", help="Who decides this; your user name by default.")]
Why = Annotated[str, typer.Option("--reason", help="Why; recorded in the trail and in every report.")]


@app.command(rich_help_panel="People")
def override(
    name: Name,
    reason: Why,
    gate: Annotated[bool, typer.Option("--gate", help="Approve the gate that waits, and go on.")] = False,
    check: Annotated[str | None, typer.Option("--check", help="Lift this check from now on; needs --stage.")] = None,
    stage: Annotated[str | None, typer.Option("--stage", help="The stage a check is lifted for.")] = None,
    condition: Annotated[str | None, typer.Option("--condition", help="Waive this condition of an approval.")] = None,
    by: By = None,
    expires: Annotated[str | None, typer.Option("--expires", help="When it ends: 90m, 12h, 2d.")] = None,
    runs: Runs = DEFAULT_RUNS,
) -> None:
    """Lift a gate, a check or a condition, in your name. Only people can; every report counts it."""
    from sessions.commands import human as people

    people.override(name, runs, gate, check, stage, condition, by, reason, expires)


@app.command(rich_help_panel="People")
def retract(
    name: Name,
    entry: Annotated[str, typer.Argument(help="The judgement: its entry number or key, for example decision/sft.1.")],
    reason: Why,
    by: By = None,
    runs: Runs = DEFAULT_RUNS,
) -> None:
    """Take a decision back, with everything that was granted after it."""
    from sessions.commands import human as people

    people.retract(name, runs, entry, by, reason)


@app.command(rich_help_panel="People")
def amend(
    name: Name,
    spec: Annotated[str, typer.Argument(help="The changed spec, where its data files are found as before.")],
    reason: Why,
    by: By = None,
    override: Annotated[bool, typer.Option("--override", help="Put it in force whatever its review says.")] = False,
    runs: Runs = DEFAULT_RUNS,
) -> None:
    """Change the registered spec of a session that is under way. The change is reviewed like a design.

    Exit codes: 0 in force, 2 it cannot be amended, 3 or 4 the review did not approve.
    """
    from sessions.commands import human as people

    people.amend(name, runs, spec, by, reason, override)


@app.command(rich_help_panel="Sessions")
def pause(name: Name, runs: Runs = DEFAULT_RUNS) -> None:
    """Ask a running session to pause at the next safe place, as Ctrl-C does, and wait until it has.

    Its job goes on. Exit code 0 when nothing runs any more, or nothing did.
    """
    from sessions.commands import pause as command

    command.pause(name, runs)


@app.command(rich_help_panel="Sessions")
def cancel(name: Name, runs: Runs = DEFAULT_RUNS) -> None:
    """End a session for good, its running job included; waits until it has ended."""
    from sessions.commands import run

    run.cancel(name, runs)


@app.command(rich_help_panel="Sessions")
def status(name: Name, runs: Runs = DEFAULT_RUNS, json: Json = False) -> None:
    """Say how a session stands: stage, decisions, money and time."""
    from sessions.commands import status as show

    show.status(name, runs, json)


@app.command(name="list", rich_help_panel="Sessions")
def list_sessions(
    runs: Runs = DEFAULT_RUNS,
    everywhere: Annotated[
        bool, typer.Option("--everywhere", help="All sessions of the workspace's database, whoever's workspace.")
    ] = False,
    json: Json = False,
) -> None:
    """List the sessions of a folder."""
    from sessions.commands import status as show

    show.list_sessions(runs, json, everywhere)


@app.command(rich_help_panel="Sessions")
def report(name: Name, runs: Runs = DEFAULT_RUNS, json: Json = False) -> None:
    """Print the report of a session."""
    from sessions.commands import status as show

    show.report(name, runs, json)


@app.command(rich_help_panel="Sessions")
def cost(run: RunPath, json: Json = False) -> None:
    """Say what is spent, reserved and left, by party and stage, and what the next stage may take."""
    from sessions.commands import cost as command

    command.cost(run, json)


@app.command(rich_help_panel="Look inside")
def seeds(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN...", help="Sessions of one design, a seed each.")],
    json: Json = False,
) -> None:
    """Say what one design found over several seeds: the gain with seeds and items both taken as samples."""
    from sessions.commands import seeds as command

    command.seeds(runs, json)


@app.command(rich_help_panel="Look inside")
def transcript(
    run: RunPath,
    attempt: Annotated[
        str | None, typer.Argument(metavar="[STAGE[.ATTEMPT]]", help="Only this stage, or this attempt of it.")
    ] = None,
    json: Json = False,
) -> None:
    """Tell what the builder said and did: turns, calls, results, costs, and what the gate said after."""
    from sessions.commands import builder_transcript as command

    command.transcript(run, attempt, json)


@app.command(rich_help_panel="Look inside")
def graph() -> None:
    """Print the session graph as Mermaid."""
    from sessions.commands import status as show

    show.graph()


@spec_app.command("check")
def spec_check(
    spec: Annotated[str, typer.Argument(help="Spec file, or the name of a shipped spec.")],
    json: Json = False,
    profile: Annotated[str | None, typer.Option("--profile", help="Only this profile; every one by default.")] = None,
) -> None:
    """Check a spec and everything it names; all problems at once."""
    from sessions.commands import spec as command

    command.check(spec, json, profile)


@spec_app.command("kinds")
def spec_kinds(json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List every stage kind: what it reads, what it leaves, its metrics and who brings it."""
    from sessions.commands import spec as commands

    commands.kinds(json)


@spec_app.command("show")
def spec_show(
    spec: Annotated[str, typer.Argument(help="Spec file, or the name of a shipped spec.")],
    json: Json = False,
    profile: Profile = None,
) -> None:
    """Show a spec with everything resolved, and its registration digest."""
    from sessions.commands import spec as command

    command.show(spec, json, profile)


@check_app.command("list")
def check_list(json: Json = False) -> None:
    """List every check: id, stage kinds, blocking or advice, threshold, question."""
    from sessions.commands import check

    check.list_checks(json)


@check_app.command("explain")
def check_explain(
    id: Annotated[str, typer.Argument(help="Id of a check, for example leakage.overlap.")], json: Json = False
) -> None:
    """Explain one check: where it comes from, what it needs, and its code."""
    from sessions.commands import check

    check.explain_check(id, json)


@check_app.command("run")
def check_run(
    run: RunPath,
    stage: Annotated[str | None, typer.Option("--stage", help="Only this stage; 'design' for the design.")] = None,
    attempt: Annotated[int | None, typer.Option("--attempt", help="This attempt, not the newest.", min=1)] = None,
    json: Json = False,
) -> None:
    """Measure and check recorded attempts again from their saved evidence: the newest of each stage.

    Read-only; it decides nothing. Exit codes: 0 nothing closes a gate, 3 a blocking check fails, 4 one has no answer.
    """
    from sessions.commands import check

    check.run_again(run, stage, attempt, json)


@review_app.command("show")
def review_show(run: RunPath, json: Json = False) -> None:
    """Show the packet that waits for a person's verdict, and the form of one."""
    from sessions.commands import human as people

    people.show_packet(run, json)


@review_app.command("give")
def review_give(
    run: RunPath,
    file: Annotated[Path, typer.Option("--file", help="The verdict: a JSON file in the form `review show` prints.")],
) -> None:
    """Hand in a person's verdict on the gate that waits."""
    from sessions.commands import human as people

    people.give_verdict(run, file)


@review_app.command("import")
def review_import(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder with reviews: .md .txt .json .jsonl .log")],
    json: Json = False,
) -> None:
    """Read a folder of free-text reviews of older trails as records: what each of them decided, if it did.

    Read-only: nothing is written, least of all into the trail of a session, so a record can never open a gate. What
    is not clear is 'undetermined', for a person to read.
    """
    from sessions.commands import review

    review.import_folder(folder, json)


def main() -> None:
    """Run the command line; every error Peergate raises on purpose is one message and its exit code."""
    try:
        from sessions.import_guard import require_own_packages
        from sessions.run.private_files import keep_private
        from sessions.terminal import mask_output

        keep_private()
        require_own_packages()
        mask_output()
        app()
    except PeergateError as error:
        from sessions.commands.output import print_error

        print_error(error)
        raise SystemExit(int(error.exit_code)) from None
    except KeyboardInterrupt:
        print("peergate: interrupted; `peergate resume` goes on", file=sys.stderr)
        raise SystemExit(int(ExitCode.INTERRUPTED)) from None
    except BrokenPipeError:
        raise SystemExit(int(ExitCode.FAULT)) from None
    except Exception as error:
        from sessions.disk_errors import no_access, no_room

        told = no_room(error) or no_access(error)
        if told is None:
            raise
        from sessions.commands.output import print_error

        print_error(told)
        raise SystemExit(int(told.exit_code)) from None


if __name__ == "__main__":
    main()
