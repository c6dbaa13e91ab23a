"""Rules on a session's run folder: what its own checks have found. They were run at its gates, not here."""

from __future__ import annotations

import json
from typing import Any

from reviews.requests.rules.rule_findings import Found, Material, place
from specs.trail.requested_review import IssueSeverity

_SEVERITY: dict[tuple[str, bool], IssueSeverity] = {
    ("FAIL", True): "CRITICAL",
    ("FAIL", False): "HIGH",
    ("BLOCKED", True): "HIGH",
    ("ERROR", True): "HIGH",
    ("WARN", True): "SUGGESTION",
    ("WARN", False): "SUGGESTION",
}


def check_recorded(material: Material) -> Found:
    """Tell every recorded check that did not pass, of all attempts."""
    found = Found()
    for file in material.reading.files:
        # Only what was made from a trail has this role in a full review.
        if file.role != "evidence" or not file.name.endswith("/checks.json"):
            continue
        found.looked_at.append(file.name)
        for number, line in enumerate(file.lines, 1):
            if not line.startswith("{"):
                continue
            check: dict[str, Any] = json.loads(line.rstrip(","))
            severity = _SEVERITY.get((check["status"], check["blocking"]))
            if severity is not None:
                where = f"{check['stage']}.{check['attempt']}"
                told = f"recorded at {where}: check {check['check']} is {check['status']}: {check['found']}"
                found.issue(severity, told, [place(file, number)])
    return found
