"""The commands `peergate review ask | request | adversarial`, with the options they share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

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
Out = Annotated[Path | None, typer.Option("--out", help="Write Markdown to this file instead of stdout.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the file of --out.")]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output on stdout.")]
Effort = Literal["low", "medium", "high"]
DEFAULT_RUNS = Path("runs")
_CODES = "Exit codes: 0 answered, 2 cannot be carried out, 4 no whole answer, 6 the money does not reach."


def add_commands(app: typer.Typer) -> None:
    """Add the three commands to the group `review`."""
    app.command("ask", epilog=_CODES)(ask)
    app.command("request", epilog=_CODES)(request)
    app.command("adversarial", epilog=_CODES)(adversarial)


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
    out: Out = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Ask one question: recommendation, reasoning, risks and an approval, in at most 500 words.

    A policy answers trivia and what the registered spec says, without a call. Everything is recorded.
    """
    from sessions.commands import review_requests as command

    values = {"topic": topic, "question": question, "options": tuple(option or ()), "has_plan": plan}
    values |= {"kind": kind, "stakes": stakes, "confidence": confidence}
    who = command.Who(session, runs, reviewer, vendor, model, base_url, api, price_in, price_out, max_cost)
    command.ask(values, list(context or ()), who, command.Output(out, force, json))


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
    out: Out = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Have files reviewed in full: issues by severity with their lines, recommendations, statistical concerns.

    Without a vendor, rules look at session specs, Python, settings and JSONL data, and say what they did not judge.
    """
    from sessions.commands import review_requests as command

    values = {"paths": tuple(paths), "kind": kind, "note": note, "effort": effort}
    who = command.Who(session, runs, reviewer, vendor, model, base_url, api, price_in, price_out, max_cost)
    command.request(values, who, command.Output(out, force, json))


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
    out: Out = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Hold the claims of a finished piece of work against its evidence: a scorecard, overclaims, fixes in order.

    Without a vendor, numbers beside known names are looked up in the evidence, and nothing else is judged.
    """
    from sessions.commands import review_requests as command

    values = {"path": path, "evidence": tuple(evidence or ()), "effort": effort}
    who = command.Who(session, runs, reviewer, vendor, model, base_url, api, price_in, price_out, max_cost)
    command.adversarial(values, who, command.Output(out, force, json))
