"""`peergate audit show RUN claim [NAME]`: from a number in the report to its rows."""

from __future__ import annotations

from typing import Any

from reviews.evidence.row_lines import ranges
from reviews.evidence.weight_lineage import Made
from sessions.commands.audit.trail_place import Place, way_of
from sessions.commands.output import print_json, print_line, print_table
from sessions.report.report_check import ReportCheck, Traced
from sessions.terminal import masked_line
from specs.errors import ExitCode

LINES_SHOWN = 400
"""Characters of line numbers; `--json` has all of them."""


def show_claim(place: Place, name: str | None, as_json: bool) -> None:
    """Trace the numbers of a name, or list every number of the report; ends with 5 when something does not hold."""
    entries = place.entries()
    report = ReportCheck(place.folder, entries, place.store, apart=not place.is_export)
    if name is None:
        problems = _list(report, as_json)
    else:
        traced = [report.trace(one) for one in report.called(name)]
        problems = [*report.problems, *(each for one in traced for each in one.problems)]
        if as_json:
            found = [_as_data(one) | {"way": way_of(one.measured.entry, entries)} for one in traced]
            print_json({"report": report.entry.entry.seq, "claims": found, "problems": problems})
        else:
            for one in traced:
                _tell(one, report)
            _end(problems)
    if problems:
        raise SystemExit(int(ExitCode.DAMAGED))


def _list(report: ReportCheck, as_json: bool) -> list[str]:
    found = [(one, list(report.stated(one))) for one in report.measured]
    if as_json:
        numbers = [{"name": one.name, "value": one.metric.value, "stated": places} for one, places in found]
        print_json({"report": report.entry.entry.seq, "numbers": numbers, "problems": report.problems})
        return report.problems
    rows = [
        (one.name, f"{one.metric.value:.10g}", str(one.entry.entry.seq), f"{len(places)} times")
        for one, places in found
        if places
    ]
    print_table(("number", "measured", "entry", "stated in the report"), rows)
    _end(report.problems)
    return report.problems


def _end(problems: list[str]) -> None:
    for one in problems:
        print_line(f"DOES NOT HOLD: {masked_line(one, 2000)}")
    if not problems:
        print_line("the report says what the trail says, and every number holds")


def _tell(one: Traced, report: ReportCheck) -> None:
    metric, entry = one.measured.metric, one.measured.entry.entry
    interval = f", 95 % interval {metric.interval[0]:.4g} to {metric.interval[1]:.4g}" if metric.interval else ""
    print_line(f"{one.measured.name} = {metric.value:.10g} {metric.unit}{interval}, n {metric.n}")
    print_line(f"  {metric.definition}; over {metric.population}")
    print_line(f"stated in the report of entry {report.entry.entry.seq}")
    for where in one.stated or ("nowhere",):
        print_line(f"  {where}")
    print_line(f"measured in entry {entry.seq} {masked_line(entry.key, 200)}")
    print_line(f"  metric set {one.measured.digest}")
    print_line(f"  by the code {one.measured.set.code}, {'as at hand' if one.same_code else 'which is not at hand'}")
    print_line("from the rows")
    for rows in one.rows:
        where = f"entry {rows.entry.entry.seq} {masked_line(rows.path, 300)}" if rows.entry else "of no job"
        print_line(f"  {rows.name} {rows.digest}, {where}")
    print_line(f"  computed again: {'nothing' if one.again is None else format(one.again, '.10g')}")
    for part in one.parts:
        lines = masked_line(ranges(part.lines), LINES_SHOWN)
        print_line(f"  {part.file}: {len(part.lines)} of {part.of} {part.what}{': lines ' + lines if lines else ''}")
    for role, way in one.lineages.items():
        print_line(f"of the weights given as {masked_line(role, 40)}")
        for made in way:
            print_line(f"  {masked_line(_made(made), 400)}")
    print_line("claimed by the builder")
    for each in one.claims:
        claim, at = each.recorded.claim, each.packet.entry
        said = f"{claim.value:.10g} +- {claim.tolerance:g}"
        print_line(f"  entry {at.seq} {masked_line(at.key, 200)}: {said}: {each.now.status}")
    if not one.claims:
        print_line("  nothing")


def _made(made: Made) -> str:
    """Return a checkpoint and its maker in words."""
    where = "" if made.entry is None else f", entry {made.entry}"
    if made.attempt is None:
        return f"{made.reference} {made.digest}, declared {made.by}{where}"
    by = "" if made.script is None else f" with the builder's script {made.script}"
    return f"{made.reference} {made.digest}, made by {made.by}{by}, attempt {made.attempt}{where}, from"


def _as_data(one: Traced) -> dict[str, Any]:
    measured = one.measured
    return {
        "name": measured.name,
        "metric": measured.metric.model_dump(mode="json"),
        "entry": measured.entry.entry.seq,
        "metric_set": measured.digest,
        "code": measured.set.code,
        "code_is_at_hand": one.same_code,
        "stated": list(one.stated),
        "rows": [
            {"name": rows.name, "digest": rows.digest, "path": rows.path, "holds": not rows.problem}
            | {"entry": rows.entry.entry.seq if rows.entry else None}
            for rows in one.rows
        ],
        "computed_again": one.again,
        "parts": [
            {"what": part.what, "rows": part.file, "lines": list(part.lines), "of": part.of} for part in one.parts
        ],
        "lineages": {role: [made._asdict() for made in way] for role, way in one.lineages.items()},
        "builder_claims": [
            each.recorded.model_dump(mode="json") | {"entry": each.packet.entry.seq, "status_now": each.now.status}
            for each in one.claims
        ],
        "problems": list(one.problems),
    }
