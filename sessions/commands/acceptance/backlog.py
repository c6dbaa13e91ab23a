"""`peergate backlog | retrospective`: what is left of the acceptance criteria, and what was done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from reviews.acceptance.criterion_state import Acceptance
from reviews.trail.store import Store
from reviews.trail.tables.open_table import read_entries
from sessions.acceptance.backlog import Backlog, backlog_of
from sessions.acceptance.retrospective import Retrospective, retrospective_of
from sessions.acceptance.siblings import Sibling
from sessions.commands.options import DEFAULT_RUNS, Json, Run, Runs, chosen
from sessions.commands.output import print_indented, print_json
from sessions.run.run_layout import STORE, TRAIL, require_run
from specs.trail.audit_file import read_audit

app = typer.Typer()
_LONGEST = 500


@app.command()
def backlog(run: Run = None, runs: Runs = DEFAULT_RUNS, as_json: Json = False) -> None:
    """Rank what is left of the acceptance criteria by what it adds to ship-% an hour.

    With each: what is missing, what would refute it, and the most it may cost. The ceiling is the ship-% that this
    session can still reach. Where a check found a defect, its family's checks at other stages are named.
    """
    run = require_run(chosen(run, runs))
    found = backlog_of(read_entries(run / TRAIL), Store(run / STORE))
    if as_json:
        print_json(found.as_json())
        return
    print_indented(_backlog_lines(found), _LONGEST)


def _backlog_lines(found: Backlog) -> Iterator[str]:
    if found.now is None or found.ceiling is None:
        yield "the spec registers no acceptance criterion that applies (criteria:)"
    else:
        yield f"ship {found.now:.1f} %, at most {found.ceiling:.1f} % in this session"
    for number, one in enumerate(found.items, 1):
        yield ""
        yield f"{number}. {one.priority} {one.id} ({one.state}): {one.text}"
        hours = {"stated": "stated", "measured": "as measured before", "limit": "at most"}[one.basis]
        gpus = f", {one.gpu_hours:.2f} GPU hours" if one.gpu_hours else ""
        cost = f"{one.hours:.2f} h ({hours}){gpus}, at most {one.usd:.2f} USD"
        yield f"   +{one.gain:.1f} points for {cost}: {one.worth:.3g} an hour"
        yield f"   missing: {one.missing}"
        if one.issue:
            yield f"   issue: {one.issue}"
        yield f"   shown if {one.needs}; refuted by {one.refuted_by}"
        if one.out_of_reach:
            yield f"   out of reach: {one.out_of_reach}"
        else:
            yield f"   to run: {', '.join(one.stages)}"
    yield from _sibling_lines(found.siblings)


def _sibling_lines(siblings: tuple[Sibling, ...]) -> Iterator[str]:
    if siblings:
        yield ""
        yield "defects come in waves; look at these too"
    for one in siblings:
        due = ", has to pass" if one.due else ""
        yield f"   {one.check} at {one.stage} ({one.state}{due}), because of {one.found_by}"


@app.command()
def retrospective(
    run: Run = None,
    audit: Annotated[
        Path | None, typer.Option("--audit", help="YAML: the recommendations of an audit (docs/how-to/ship.md).")
    ] = None,
    runs: Runs = DEFAULT_RUNS,
    as_json: Json = False,
) -> None:
    """Say how ship-% moved, what showed each criterion, and what became of an audit's recommendations.

    Each is adopted, with its evidence in the trail, rejected, with the file's reason, or open. Exit codes: 0 all are
    answered, 2 the file is wrong or names a criterion that was not registered.
    """
    run = require_run(chosen(run, runs))
    asked = read_audit(audit) if audit is not None else None
    found = retrospective_of(read_entries(run / TRAIL), Store(run / STORE), asked)
    if as_json:
        print_json(found.as_json())
        return
    print_indented(_lines(found), _LONGEST)


def _lines(found: Retrospective) -> Iterator[str]:
    yield from acceptance_lines(found.acceptance)
    for one in found.acceptance.criteria:
        for step in one.history:
            percent = f"{step.percent:.1f} %" if step.percent is not None else "-"
            yield f"  entry {step.entry}: {one.criterion.id} {step.state}, ship {percent}: {step.why}"
    yield from _sibling_lines(found.siblings)
    if found.recommendations:
        yield ""
        yield f"audit: {found.audit}"
    for one in found.recommendations:
        yield f"  {one.id} {one.answer}: {one.text}"
        yield f"    {one.why}{' (' + '; '.join(one.evidence) + ')' if one.evidence else ''}"


def acceptance_lines(found: Acceptance) -> Iterator[str]:
    """Yield ship-% and a line for each criterion; nothing where there is none."""
    if found.criteria:
        yield found.line()
    for one in found.criteria:
        proof = f" (entry {one.proof.entry})" if one.proof else ""
        yield f"  {one.criterion.id} {one.state}: {one.why}{proof}"
        if one.criterion.issue:
            yield f"    {one.criterion.issue}"
