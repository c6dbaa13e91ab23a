"""`peergate audit show RUN claim [NAME]`: from a number in the report to its rows."""

from __future__ import annotations

from typing import Any

from reviews.evidence.row_lines import ranges
from reviews.evidence.weight_lineage import LineageCheckpoint
from sessions.commands.output import print_json, print_line, print_table
from sessions.pages.report.report_check import NumberTrace, ReportCheck
from sessions.pages.trail_place import TrailPlace, way_of
from sessions.run.terminal import masked_line
from specs.system.errors import ExitCode

MOST_LINES = 400
"""Characters of line numbers; `--json` has all of them."""


def show_claim(place: TrailPlace, name: str | None, as_json: bool) -> None:
    """Trace the numbers of a name, or list every number of the report; ends with 5 when something does not hold."""
    history = place.history()
    report = ReportCheck(place.folder, history, apart=not place.is_export)
    if name is None:
        problems = _list(report, as_json)
    else:
        traced = [report.trace(value) for value in report.find_metrics(name)]
        problems = [*report.problems, *(problem for value in traced for problem in value.problems)]
        if as_json:
            results = [_as_data(value) | {"way": way_of(value.measured.entry, history)} for value in traced]
            print_json({"report": report.entry.seq, "claims": results, "problems": problems, "note": report.note})
        else:
            for value in traced:
                _print_trace(value, report)
            _end(problems, report.note)
    if problems:
        raise SystemExit(int(ExitCode.DAMAGED))


def _list(report: ReportCheck, as_json: bool) -> list[str]:
    pairs = [(value, list(report.find_statements(value))) for value in report.measured]
    if as_json:
        numbers = [{"name": value.name, "value": value.metric.value, "stated": places} for value, places in pairs]
        print_json({"report": report.entry.seq, "numbers": numbers, "problems": report.problems, "note": report.note})
        return report.problems
    rows = [
        (value.name, f"{value.metric.value:.10g}", str(value.entry.seq), f"{len(places)} times")
        for value, places in pairs
        if places
    ]
    print_table(("number", "measured", "entry", "stated in the report"), rows)
    _end(report.problems, report.note)
    return report.problems


def _end(problems: list[str], note: str) -> None:
    if note:
        print_line(f"note: {masked_line(note, 2000)}")
    for problem in problems:
        print_line(f"DOES NOT HOLD: {masked_line(problem, 2000)}")
    if not problems:
        print_line("the report says what the trail says, and every number holds")


def _print_trace(value: NumberTrace, report: ReportCheck) -> None:
    metric, entry = value.measured.metric, value.measured.entry.entry
    interval = f", 95 % interval {metric.interval[0]:.4g} to {metric.interval[1]:.4g}" if metric.interval else ""
    print_line(f"{value.measured.name} = {metric.value:.10g} {metric.unit}{interval}, n {metric.n}")
    print_line(f"  {metric.definition}; over {metric.population}")
    print_line(f"stated in the report of entry {report.entry.seq}")
    for where in value.stated or ("nowhere",):
        print_line(f"  {where}")
    print_line(f"measured in entry {entry.seq} {masked_line(entry.key, 200)}")
    print_line(f"  metric set {value.measured.digest}")
    print_line(
        f"  by the code {value.measured.set.code}, {'as at hand' if value.same_code else 'which is not at hand'}"
    )
    print_line("from the rows")
    for rows in value.rows:
        where = f"entry {rows.entry.seq} {masked_line(rows.path, 300)}" if rows.entry else "of no job"
        print_line(f"  {rows.name} {rows.digest}, {where}")
    print_line(f"  computed again: {'nothing' if value.again is None else format(value.again, '.10g')}")
    for part in value.parts:
        lines = masked_line(ranges(part.lines), MOST_LINES)
        print_line(f"  {part.file}: {len(part.lines)} of {part.of} {part.what}{': lines ' + lines if lines else ''}")
    for role, way in value.lineages.items():
        print_line(f"of the weights given as {masked_line(role, 40)}")
        for made in way:
            print_line(f"  {masked_line(_describe_checkpoint(made), 400)}")
    print_line("claimed by the builder")
    for claim_check in value.claims:
        claim, at = claim_check.recorded.claim, claim_check.packet.entry
        text = f"{claim.value:.10g} +- {claim.tolerance:g}"
        print_line(f"  entry {at.seq} {masked_line(at.key, 200)}: {text}: {claim_check.now.status}")
    if not value.claims:
        print_line("  nothing")


def _describe_checkpoint(made: LineageCheckpoint) -> str:
    """Return a checkpoint and its maker in words."""
    where = "" if made.entry is None else f", entry {made.entry}"
    if made.attempt is None:
        return f"{made.reference} {made.digest}, declared {made.by}{where}"
    by = "" if made.script is None else f" with the builder's script {made.script}"
    return f"{made.reference} {made.digest}, made by {made.by}{by}, attempt {made.attempt}{where}, from"


def _as_data(value: NumberTrace) -> dict[str, Any]:
    measured = value.measured
    return {
        "name": measured.name,
        "metric": measured.metric.model_dump(mode="json"),
        "entry": measured.entry.seq,
        "metric_set": measured.digest,
        "code": measured.set.code,
        "code_is_at_hand": value.same_code,
        "stated": list(value.stated),
        "rows": [
            {"name": rows.name, "digest": rows.digest, "path": rows.path, "holds": not rows.problem}
            | {"entry": rows.entry.seq if rows.entry else None}
            for rows in value.rows
        ],
        "computed_again": value.again,
        "parts": [
            {"what": part.what, "rows": part.file, "lines": list(part.lines), "of": part.of} for part in value.parts
        ],
        "lineages": {role: [made._asdict() for made in way] for role, way in value.lineages.items()},
        "builder_claims": [
            claim_check.recorded.model_dump(mode="json")
            | {"entry": claim_check.packet.seq, "status_now": claim_check.now.status}
            for claim_check in value.claims
        ],
        "problems": list(value.problems),
    }
