"""The judge of ``evaluate`` stages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reviews.evidence.evidence import Evidence
from reviews.evidence.measured_value import Measured
from reviews.evidence.row_lines import Part, every, part
from reviews.evidence.row_reader import ROW_CHARACTERS, read_rows
from reviews.stages.evaluation.judged_answers import answered, judged_rows, measure_answers
from specs.session.evaluation_plan import Outcome
from specs.stages.evaluation.rows import EvaluationRow
from specs.text import plain


def measure(evidence: Evidence) -> dict[str, Measured]:
    """Return its metrics; errors as :func:`judged_rows`."""
    return measure_answers(judged_rows(evidence, evidence.outputs.get("rows")))


def trace(evidence: Evidence, metric: str) -> tuple[Part, ...]:
    """Return the lines of a metric; errors as :func:`judged_rows`."""
    rows = read_rows(evidence.outputs.get("rows"), EvaluationRow, "evaluation rows")
    if metric == "truncation_rate":
        return (part("hit the token limit", rows, lambda row: row.truncated),)
    if metric == "empty_rate":
        return (part("have no visible character", rows, lambda row: not row.output.strip()),)
    if metric in ("items", "mean_output_tokens"):
        return (every("every answer", rows),)
    after = {one.item.id: one.passed for one in answered(evidence, evidence.outputs.get("rows"))}
    return (part("are accepted by the verifier", rows, lambda row: after[row.item]),)


def outcomes(evidence: Evidence, path: Path | None, outcome: Outcome) -> list[float]:
    """Return 1 for each item that is passed and 0 for the others; errors as :func:`judged_rows`."""
    return [float(one.passed) for one in judged_rows(evidence, path)]


def shown(evidence: Evidence) -> list[dict[str, Any]]:
    """Return every answer with its judgement; errors as :func:`judged_rows`."""
    return [
        {
            "item": one.item.id,
            "prompt": plain(one.item.prompt, ROW_CHARACTERS),
            "output": plain(one.row.output, ROW_CHARACTERS),
            "truncated": one.row.truncated,
            "passed": one.passed,
            "reason": plain(one.reason, ROW_CHARACTERS),
        }
        for one in judged_rows(evidence, evidence.outputs.get("rows"))
    ]
