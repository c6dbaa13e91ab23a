"""A session's own report against the same report rendered again from its trail, line by line."""

from __future__ import annotations

from difflib import SequenceMatcher

from reviews.requests.rules.rule_findings import place
from specs.text import one_line
from specs.trail.requested_review import ReadFile, ScoreRow

CHARACTERS = 200
"""Of the lines that differ, in a row of the scorecard."""


def rows_of_report(file: ReadFile, rendered: ReadFile) -> list[ScoreRow]:
    """Return one row for all lines that agree, and one for each run of lines that differs."""
    rows: list[ScoreRow] = []
    agreeing = 0
    for kind, start, end, first, last in SequenceMatcher(None, file.lines, rendered.lines).get_opcodes():
        if kind == "equal":
            agreeing += end - start
            continue
        says, gives = (
            f"'{one_line(' '.join(lines), CHARACTERS)}'" if lines else "nothing"
            for lines in (file.lines[start:end], rendered.lines[first:last])
        )
        rows.append(
            ScoreRow(
                claim=f"the report says {says}",
                stated_at=place(file, start + 1),
                status="contradicted",
                evidence=(place(rendered, first + 1),) if last > first else (),
                explanation=f"rendered again from the trail it says {gives}",
            )
        )
    if agreeing:
        rows.append(
            ScoreRow(
                claim=f"{agreeing} lines of {file.name}",
                stated_at=place(file, 1),
                status="supported",
                evidence=(place(rendered, 1),),
                explanation="rendered again from the trail they are the same",
            )
        )
    return rows
