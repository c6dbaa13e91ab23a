"""The judge of ``evaluate`` stages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reviews.evidence.evidence import Evidence
from reviews.evidence.row_lines import Subjects, by_item
from reviews.evidence.row_reader import ROW_CHARACTERS, read_rows
from reviews.stages.evaluation.judged_answers import judged_rows
from specs.session.evaluation_plan import Outcome
from specs.stages.evaluation.rows import EvaluationRow
from specs.system.text import plain


def read(evidence: Evidence, output: str) -> Subjects:
    """Return the judged answers for its metrics; errors as :func:`judged_rows`."""
    path = evidence.outputs.get(output)
    return by_item(judged_rows(evidence, path), read_rows(path, EvaluationRow, "evaluation rows"))


def outcomes(evidence: Evidence, path: Path | None, outcome: Outcome) -> list[float]:
    """Return 1 for each item that is passed and 0 for the others; errors as :func:`judged_rows`."""
    return [float(judged_row.passed) for judged_row in judged_rows(evidence, path)]


def summarise_rows(evidence: Evidence) -> list[dict[str, Any]]:
    """Return every answer with its judgement; errors as :func:`judged_rows`."""
    return [
        {
            "item": judged_row.item.id,
            "prompt": plain(judged_row.item.prompt, ROW_CHARACTERS),
            "output": plain(judged_row.row.output, ROW_CHARACTERS),
            "truncated": judged_row.row.truncated,
            "passed": judged_row.passed,
            "reason": plain(judged_row.reason, ROW_CHARACTERS),
        }
        for judged_row in judged_rows(evidence, evidence.outputs.get("rows"))
    ]
