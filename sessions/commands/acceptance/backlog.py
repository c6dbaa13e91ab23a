"""`peergate backlog | retrospective`: the open acceptance criteria, and what was done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from reviews.acceptance.criterion_state import Acceptance
from sessions.commands.options import DEFAULT_RUNS, Json, Run, Runs, chosen
from sessions.commands.output import print_indented, print_json
from sessions.pages.acceptance.backlog import Backlog, backlog_of
from sessions.pages.acceptance.retrospective import Retrospective, retrospective_of
from sessions.pages.acceptance.siblings import Sibling
from sessions.run.run_history import read_history
from sessions.run.run_layout import require_run
from specs.trail.audit_file import read_audit

app = typer.Typer()
_LONGEST = 500


@app.command()
def backlog(run: Run = None, runs: Runs = DEFAULT_RUNS, as_json: Json = False) -> None:
    """Rank the open acceptance criteria by what they add to ship-% an hour.

    Lists for each what is missing, what would refute it, and its maximum cost. The ceiling is the ship-% that this
    session can still reach. If a check found a defect, the checks of its family at other stages are listed.
    """
    run = require_run(chosen(run, runs))
    matching_backlog = backlog_of(read_history(run))
    if as_json:
        print_json(matching_backlog.as_json())
        return
    print_indented(_backlog_lines(matching_backlog), _LONGEST)


def _backlog_lines(backlog: Backlog) -> Iterator[str]:
    if backlog.now is None or backlog.ceiling is None:
        yield "the spec registers no acceptance criterion that applies (criteria:)"
    else:
        yield f"ship {backlog.now:.1f} %, at most {backlog.ceiling:.1f} % in this session"
    for number, item in enumerate(backlog.items, 1):
        yield ""
        yield f"{number}. {item.priority} {item.id} ({item.state}): {item.text}"
        hours = {"stated": "stated", "measured": "as measured before", "limit": "at most"}[item.basis]
        gpus = f", {item.gpu_hours:.2f} GPU hours" if item.gpu_hours else ""
        cost = f"{item.hours:.2f} h ({hours}){gpus}, at most {item.usd:.2f} USD"
        yield f"   +{item.gain:.1f} points for {cost}: {item.worth:.3g} an hour"
        yield f"   missing: {item.missing}"
        if item.issue:
            yield f"   issue: {item.issue}"
        yield f"   shown if {item.needs}; refuted by {item.refuted_by}"
        if item.out_of_reach:
            yield f"   out of reach: {item.out_of_reach}"
        else:
            yield f"   to run: {', '.join(item.stages)}"
    yield from _sibling_lines(backlog.siblings)


def _sibling_lines(siblings: tuple[Sibling, ...]) -> Iterator[str]:
    if siblings:
        yield ""
        yield "defects come in waves; look at these too"
    for sibling in siblings:
        pending = ", has to pass" if sibling.must_pass else ""
        yield f"   {sibling.check} at {sibling.stage} ({sibling.state}{pending}), because of {sibling.cause}"


@app.command()
def retrospective(
    run: Run = None,
    audit: Annotated[
        Path | None, typer.Option("--audit", help="YAML: the recommendations of an audit (docs/how-to/ship.md).")
    ] = None,
    runs: Runs = DEFAULT_RUNS,
    as_json: Json = False,
) -> None:
    """Print how ship-% moved, what proved each criterion, and what became of an audit's recommendations.

    Each is adopted, with its evidence in the trail, rejected, with the file's reason, or open. Exit codes: 0 all are
    answered, 2 the file is wrong or names a criterion that was not registered.
    """
    run = require_run(chosen(run, runs))
    audit_file = read_audit(audit) if audit is not None else None
    matching_retrospective = retrospective_of(read_history(run), audit_file)
    if as_json:
        print_json(matching_retrospective.as_json())
        return
    print_indented(_lines(matching_retrospective), _LONGEST)


def _lines(result: Retrospective) -> Iterator[str]:
    yield from acceptance_lines(result.acceptance)
    for criterion in result.acceptance.criteria:
        for step in criterion.history:
            percent = f"{step.percent:.1f} %" if step.percent is not None else "-"
            yield f"  entry {step.entry}: {criterion.criterion.id} {step.state}, ship {percent}: {step.why}"
    yield from _sibling_lines(result.siblings)
    if result.recommendations:
        yield ""
        yield f"audit: {result.audit}"
    for recommendation in result.recommendations:
        yield f"  {recommendation.id} {recommendation.answer}: {recommendation.text}"
        evidence = f" ({'; '.join(recommendation.evidence)})" if recommendation.evidence else ""
        yield f"    {recommendation.why}{evidence}"


def acceptance_lines(acceptance: Acceptance) -> Iterator[str]:
    """Yield ship-% and a line for each criterion; nothing where there is none."""
    if acceptance.criteria:
        yield acceptance.line()
    for criterion in acceptance.criteria:
        proof = f" (entry {criterion.proof.entry})" if criterion.proof else ""
        yield f"  {criterion.criterion.id} {criterion.state}: {criterion.why}{proof}"
        if criterion.criterion.issue:
            yield f"    {criterion.criterion.issue}"
