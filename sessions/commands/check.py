"""`peergate check list | explain | run`: the checks of every stage, and running them again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import Annotated, Any, NamedTuple

import typer

from reviews.checks.remedies import remedy_of
from reviews.evidence.gather import gather
from reviews.gate.check_catalog import find_check, listing
from reviews.gate.check_list import run_checks
from reviews.gate.measurer import measure
from reviews.gate.packet_derivation import check_design
from reviews.history.history import History
from sessions.commands.lazy_group import CommandGroup
from sessions.commands.options import DEFAULT_RUNS, Json, Run, Runs, chosen
from sessions.commands.output import print_block, print_json, print_line
from sessions.run.run_history import read_history
from sessions.run.terminal import masked_line
from specs.stages.base.metric import MetricSet
from specs.stages.registry import known_names
from specs.system.errors import EvidenceMissing, ExitCode, UserError
from specs.trail.entry import DESIGN
from specs.trail.gate_bodies import ChecksEntry
from specs.trail.session_bodies import ExitEntry, LostJobEntry
from specs.trail.verdict import CheckResult

COLUMNS = 100
"""The width of a page of `check list`."""


class Rerun(NamedTuple):
    """One attempt, measured and checked again."""

    stage: str
    attempt: int
    metrics: MetricSet | None
    why_not_measured: str
    checks: tuple[CheckResult, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the form of `check run --json`."""
        metrics = self.metrics.model_dump(mode="json")["metrics"] if self.metrics else None
        return self._asdict() | {"metrics": metrics, "checks": [check.model_dump(mode="json") for check in self.checks]}


app = typer.Typer(
    cls=CommandGroup, help="List and explain the checks of every stage, and run them again.", no_args_is_help=True
)


@app.command("list")
def list_checks(as_json: Json = False) -> None:
    """List every check: id, stage kinds, blocking or advice, threshold, question."""
    results = listing()
    if as_json:
        print_json({"checks": [value.as_json() for value in results]})
        return
    every = set(known_names())
    for value in results:
        by = "" if value.distribution == "peergate" else f", from {value.distribution}"
        threshold = f", {value.threshold}" if value.threshold else ""
        kinds = "every stage" if every <= set(value.stage_kinds) else ", ".join(value.stage_kinds)
        _print_wrapped("", f"{value.id}: {value.weight}{threshold}{by}")
        _print_wrapped("    ", value.title)
        _print_wrapped("    ", f"stages: {kinds}")
    print_line()
    print_line("`peergate check explain CHECK` shows what a check does and where it comes from")


@app.command("explain")
def explain_check(
    id: Annotated[str, typer.Argument(help="Id of a check, for example leakage.overlap.")], as_json: Json = False
) -> None:
    """Explain one check: where it comes from, what it needs, and its code."""
    check = find_check(id)
    if as_json:
        print_json(check.as_json() | {"remedy": remedy_of(check.id), "what": check.what(), "code": check.code()})
        return
    print_line(f"{_line(check.id)}: {_line(check.title)}")
    print_line(f"  {masked_line(check.what(), 4000)}")
    print_line(f"  stage kinds: {', '.join(check.stage_kinds)}{' (treatment only)' if check.only_treatment else ''}")
    print_line(f"  weight: {check.weight}")
    print_line(f"  threshold: {_line(check.threshold or 'none')}")
    for limit in check.limits:
        default = "no default" if limit.default() is None else f"default {limit.default():g}"
        print_line(f"    {limit.key} in the spec, {default}{f': {limit.meaning()}' if limit.meaning() else ''}")
    if remedy := remedy_of(check.id):
        print_line(f"  against it: {remedy}")
    print_line(f"  source: {_line(check.source)}")
    print_line(f"  from: {_line(check.distribution)}")
    print_line()
    print_block(check.code(), 20_000)


@app.command("run")
def run_again(
    run: Run = None,
    stage: Annotated[str | None, typer.Option("--stage", help="Only this stage; 'design' for the design.")] = None,
    attempt: Annotated[int | None, typer.Option("--attempt", help="This attempt instead of the newest.", min=1)] = None,
    runs: Runs = DEFAULT_RUNS,
    as_json: Json = False,
) -> None:
    """Measure and check recorded attempts again from their saved evidence: the newest of each stage.

    Read-only; it decides nothing. Exit codes: 0 nothing closes a gate, 3 a blocking check fails, 4 one has no result.
    """
    run = chosen(run, runs)
    history = read_history(run)
    done = [_again(run, history, *pair) for pair in select_ended_attempts(history, stage, attempt)]
    code = exit_code([check for rerun in done for check in rerun.checks])
    if as_json:
        print_json({"run": str(run), "exit_code": int(code), "attempts": [rerun.as_json() for rerun in done]})
    else:
        for rerun in done:
            _print(rerun)
        facts = {ExitCode.REJECTED: "a blocking check fails", ExitCode.BLOCKED: "a blocking check has no answer"}
        print_line(f"{run}: {facts.get(code, 'no check closes a gate')}; nothing was written", err=True)
    raise SystemExit(int(code))


def select_ended_attempts(history: History, stage: str | None, attempt: int | None) -> list[tuple[str, int]]:
    """Return the ended attempts that were asked for, or the newest of each stage, in order; UserError without any."""
    if attempt is not None and stage is None:
        raise UserError("--attempt needs --stage", hint="numbers of attempts are counted within a stage")
    counts: dict[str, list[int]] = {}
    if any(entry.body.stage == DESIGN for entry in history.of(ChecksEntry)):
        counts[DESIGN] = [1]
    for ended in (entry.body for entry in history.of(ExitEntry, LostJobEntry)):
        counts.setdefault(ended.stage, []).append(ended.attempt)
    if stage is not None and stage not in counts:
        raise UserError(f"no attempt of stage '{stage}' has ended", hint=f"stages with one: {', '.join(counts) or '-'}")
    if stage is not None and attempt is not None and attempt not in counts[stage]:
        known = ", ".join(map(str, counts[stage]))
        raise UserError(f"attempt {attempt} of stage '{stage}' has not ended", hint=f"attempts that have: {known}")
    return [(name, attempt or max(numbers)) for name, numbers in counts.items() if stage in (None, name)]


def exit_code(checks: Sequence[CheckResult]) -> ExitCode:
    """Return what blocking checks say about the gate: a FAIL counts before a missing answer."""
    closing = {check.status for check in checks if check.blocking}
    if "FAIL" in closing:
        return ExitCode.REJECTED
    return ExitCode.BLOCKED if closing & {"BLOCKED", "ERROR"} else ExitCode.DONE


def _again(run: Path, history: History, stage: str, attempt: int) -> Rerun:
    if stage == DESIGN:
        checks = check_design(history.resolved, history.store, history.resolved.attempt_costs())
        return Rerun(stage, attempt, None, "a design has no metrics", checks)
    evidence = gather(run, history, stage, attempt)
    try:
        metrics, why = measure(evidence), ""
    except EvidenceMissing as error:
        metrics, why = None, masked_line(str(error), 1000)
    return Rerun(stage, attempt, metrics, why, run_checks(evidence, metrics))


def _print(rerun: Rerun) -> None:
    print_line(f"{_line(rerun.stage)}.{rerun.attempt}")
    if rerun.metrics is None:
        print_line(f"  not measured: {_line(rerun.why_not_measured)}")
    for metric in rerun.metrics.metrics.values() if rerun.metrics else ():
        interval = f" [{metric.interval[0]:.4g}, {metric.interval[1]:.4g}]" if metric.interval else ""
        print_line(f"  {metric.id} = {metric.value:.6g}{interval} (n = {metric.n})")
    for check in rerun.checks:
        advice = "" if check.blocking else " (advice)"
        print_line(f"  {check.status:<14} {check.id}{advice}: {_line(check.detail)}")
        for row in check.rows:
            print_line("      " + _line(", ".join(f"{name}: {value}" for name, value in row.items())))
    print_line()


def _print_wrapped(indent: str, text: str) -> None:
    """Print a text in lines that fit the page, each with an indent, and further ones with more."""
    for line in wrap(_line(text), COLUMNS, initial_indent=indent, subsequent_indent=f"{indent}    "):
        print_line(line)


def _line(text: str) -> str:
    return masked_line(text, 2000)
