"""A full review by rule: what was found, and a list of everything that was not judged."""

from __future__ import annotations

import json
from typing import Any

from reviews.requests.rules.data_files import DATA, check_data
from reviews.requests.rules.python_code import check_python
from reviews.requests.rules.rule_findings import RuleFindings, RuleMaterial, best_case, place
from reviews.requests.rules.setting_files import check_settings
from specs.system.text import plural
from specs.trail.requested_review import BestCase, IssueSeverity, RequestReading, ReviewAnswer, ReviewKind

SEVERITIES: tuple[IssueSeverity, ...] = ("CRITICAL", "HIGH", "SUGGESTION")
PROSE = (".md", ".txt", ".rst", ".markdown", ".tex")
NOT_JUDGED: dict[ReviewKind, tuple[str, ...]] = {
    "methodology": (
        "whether the procedure measures what is claimed, and whether the conclusions follow",
        "whether baselines and controls are the right ones, and whether every attempt is reported",
    ),
    "code": (
        "whether the code does what its names and comments say",
        "masking, padding, truncation, stop tokens and silent fallbacks",
    ),
    "design": (
        "whether the objective is worth the money, and whether a smaller design would settle it",
        "multiple comparisons and stopping rules beyond the registered ones",
    ),
}

_SEVERITY: dict[tuple[str, bool], IssueSeverity] = {
    ("FAIL", True): "CRITICAL",
    ("FAIL", False): "HIGH",
    ("BLOCKED", True): "HIGH",
    ("ERROR", True): "HIGH",
    ("WARN", True): "SUGGESTION",
    ("WARN", False): "SUGGESTION",
}


def review_by_rule(material: RuleMaterial, kind: ReviewKind) -> ReviewAnswer:
    """Run every rule over what was read. It approves nothing: rules find faults and do not vouch."""
    result = RuleFindings()
    for rule in (check_settings, check_python, check_data, _check_recorded):
        result.add(rule(material))
    looked = set(result.looked_at)
    prose = [file.name for file in material.ending(*PROSE) if file.name not in looked and file.role == "file"]
    others = [file.name for file in material.reading.files if file.name not in looked and file.name not in prose]
    not_judged = [*NOT_JUDGED[kind], *result.not_judged]
    if prose:
        not_judged.append(f"prose, which only a model reads (`--vendor`): {', '.join(prose)}")
    if others:
        not_judged.append(f"{plural(len(others), 'file')} of other kinds: no rule looks at them")
    counts = [(severity, sum(issue.severity == severity for issue in result.issues)) for severity in SEVERITIES]
    message = ", ".join(f"{count} {severity}" for severity, count in counts)
    fault = any(count for severity, count in counts if severity != "SUGGESTION")
    return ReviewAnswer(
        summary=f"Rules looked at {len(looked)} of {len(material.reading.files)} files: {message}.",
        best_case=_best_case(result, material.reading),
        issues=tuple(sorted(result.issues, key=lambda issue: SEVERITIES.index(issue.severity))),
        recommendations=tuple(result.recommendations),
        statistical_concerns=tuple(result.concerns),
        overall_assessment=(
            "Not usable as it is: fix the CRITICAL and HIGH issues first. "
            if fault
            else "No rule found a fault, which is not an assessment. "
        )
        + "Rules find what is certainly there in code, data, settings and records; a model or a person must decide "
        "whether the work is usable.",
        not_judged=tuple(dict.fromkeys(not_judged)),
    )


def _check_recorded(material: RuleMaterial) -> RuleFindings:
    """Report every check that did not pass at a gate of the session, of all attempts."""
    result = RuleFindings()
    for file in material.reading.files:
        # Only what was made from a trail has this role in a full review.
        if file.role != "evidence" or not file.name.endswith("/checks.json"):
            continue
        result.looked_at.append(file.name)
        for number, line in enumerate(file.lines, 1):
            if not line.startswith("{"):
                continue
            check: dict[str, Any] = json.loads(line.rstrip(","))
            severity = _SEVERITY.get((check["status"], check["blocking"]))
            recorded = f"recorded at {check['stage']}.{check['attempt']}: check {check['check']} is {check['status']}"
            if severity is not None:
                result.issue(severity, f"{recorded}: {check['detail']}", [place(file, number)])
            elif check["status"] == "PASS":
                result.passed.append((recorded, place(file, number)))
    return result


def _best_case(result: RuleFindings, reading: RequestReading) -> BestCase:
    """Return what rules found to hold, and the files that they looked at and have nothing to say about."""
    findings = (*result.issues, *result.concerns)
    others = {place.file for finding in findings for place in finding.evidence} | {at.file for _, at in result.passed}
    others |= {text.partition(": ")[0] for text in result.not_judged}
    # Data are judged together, and files of another role were made from a trail, whose checks speak for them.
    fine = [
        (f"no rule found a fault in {read_file.name}", place(read_file, 1))
        for read_file in reading.files
        if read_file.role == "file"
        and read_file.name in result.looked_at
        and read_file.name not in others
        and read_file.text.strip()
        if not read_file.name.lower().endswith(DATA)
    ]
    return best_case([*result.passed, *fine])
