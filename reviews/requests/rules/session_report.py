"""A session's own report against its trail: every metric of the report for machines, every result of a check."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from reviews.checks.claim_lookup import look_up
from reviews.requests.rules.rule_findings import place
from reviews.requests.run_evidence import REPORT, REPORT_JSON, RunEvidence
from specs.stages.metric import MetricSet
from specs.trail.grant_and_claim import Claim
from specs.trail.requested_review import Place, ReadFile, ScoreRow

MAX_EVIDENCE = 3
_CHECK_ROW = re.compile(
    r"\| (?P<id>[a-z_]+\.[\w.-]+)(?: \(advice\))? \| (?P<status>PASS|WARN|FAIL|NOT_APPLICABLE|BLOCKED|ERROR) \| "
    r"(?P<found>.*) \|$"
)


def rows_of_metrics(file: ReadFile, evidence: list[ReadFile], runs: Sequence[RunEvidence]) -> list[ScoreRow]:
    """Compare every metric in a session's report for machines with the recorded metric set."""
    run = next((one for one in runs if file.name == f"{one.name}/{REPORT_JSON}"), None)
    if run is None:
        return []
    try:
        claims, numbers = _claims_of(json.loads(file.text)), 0
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        told = f"the report for machines does not have its form: {type(error).__name__}"
        return [
            ScoreRow(claim="report.json", stated_at=place(file, 1), status="unsupported", evidence=(), explanation=told)
        ]
    measured: dict[str, MetricSet] = {f"{stage}.{attempt}": one for (stage, attempt), one in run.measured.items()}
    rows: list[ScoreRow] = []
    for one in look_up(claims, measured):
        if one.status == "supported":
            numbers += 1
            continue
        at = _line_with(file, one.claim.value)
        held = "nothing was measured" if one.measured is None else f"measured was {one.measured!r}"
        rows.append(
            ScoreRow(
                claim=f"{one.claim.metric} of {one.claim.stage} is {one.claim.value!r}",
                stated_at=place(file, at),
                status=one.status,
                evidence=_metric_place(evidence, run, one.claim),
                explanation=held,
            )
        )
    if numbers:
        where = tuple(place(one, 4) for one in evidence if f"{run.name}/metrics/" in one.name)[:MAX_EVIDENCE]
        told = "each is the value in the metric set of its stage and attempt"
        claim = f"{numbers} metrics in the report for machines"
        rows.append(
            ScoreRow(claim=claim, stated_at=place(file, 2), status="supported", evidence=where, explanation=told)
        )
    return rows


def _claims_of(report: dict[str, Any]) -> list[Claim]:
    return [
        Claim(stage=f"{stage['stage']}.{attempt['attempt']}", metric=name, value=metric["value"])
        for stage in report["stages"]
        for attempt in stage["attempts"]
        for name, metric in attempt["metrics"].items()
    ]


def _metric_place(evidence: list[ReadFile], run: RunEvidence, claim: Claim) -> tuple[Place, ...]:
    file = next((one for one in evidence if one.name == f"{run.name}/metrics/{claim.stage}.json"), None)
    if file is None:
        return ()
    found = next((at for at, line in enumerate(file.lines, 1) if f'"{claim.metric}":' in line), None)
    return (place(file, found),) if found else ()


def _line_with(file: ReadFile, value: float) -> int:
    return next((at for at, line in enumerate(file.lines, 1) if json.dumps(value) in line), 1)


def rows_of_checks(
    file: ReadFile, evidence: list[ReadFile], runs: Sequence[RunEvidence]
) -> tuple[list[ScoreRow], set[int]]:
    """Hold the rows of checks in a session's report against the recorded checks; their numbers are of parts of rows."""
    run = next((one for one in runs if file.name == f"{one.name}/{REPORT}"), None)
    recorded = next((one for one in evidence if run is not None and one.name == f"{run.name}/checks.json"), None)
    if recorded is None:
        return [], set()
    told = {_check_key(json.loads(line.rstrip(","))): at for at, line in enumerate(recorded.lines, 1) if "{" in line}
    rows: list[ScoreRow] = []
    found: dict[int, int] = {}
    for number, line in enumerate(file.lines, 1):
        match = _CHECK_ROW.match(line)
        if match is None:
            continue
        said = {"check": match["id"], "status": match["status"], "found": match["found"].replace("\\|", "|")}
        found[number] = told.get(_check_key(said), 0)
        if not found[number]:
            claim, why = f"check {match['id']} is {match['status']}", "no recorded check says this"
            at = place(file, number)
            rows.append(ScoreRow(claim=claim, stated_at=at, status="contradicted", evidence=(), explanation=why))
    agreeing = [(number, at) for number, at in found.items() if at]
    if agreeing:
        number, at = agreeing[0]
        rows.append(
            ScoreRow(
                claim=f"{len(agreeing)} results of checks",
                stated_at=place(file, number),
                status="supported",
                evidence=(place(recorded, at),),
                explanation="each is word for word what was recorded",
            )
        )
    return rows, set(found)


def _check_key(check: dict[str, str]) -> tuple[str, str, str]:
    return check["check"], check["status"], " ".join(check["found"].split())
