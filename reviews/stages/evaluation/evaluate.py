"""The judge of ``evaluate`` stages."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

from reviews.evidence.evidence import Evidence
from reviews.evidence.items import answers_per_item
from reviews.evidence.measured_value import MeasuredValue
from reviews.evidence.row_lines import Subjects, by_item
from reviews.evidence.row_reader import ROW_CHARACTERS, read_rows
from reviews.stages.evaluation.judged_answers import judged_rows, share_right, solve_at_k
from reviews.statistics.mcnemar import wilson
from specs.session.evaluation_plan import Outcome
from specs.stages.evaluation.rows import EvaluationRow
from specs.system.text import plain


def read(evidence: Evidence, output: str) -> Subjects:
    """Return the judged answers for its metrics; errors as :func:`judged_rows`."""
    path = evidence.outputs.get(output)
    subjects = by_item(judged_rows(evidence, path), read_rows(path, EvaluationRow, "evaluation rows"))
    return subjects._replace(of_item=answers_per_item(evidence))


def measure(evidence: Evidence) -> dict[str, MeasuredValue]:
    """Return pass@k, where a k is registered; errors as :func:`judged_rows`."""
    if (k := evidence.parameters.get("k")) is None:
        return {}
    solved = solve_at_k(judged_rows(evidence, evidence.outputs.get("rows")), k)
    right = sum(solved, Fraction(0))
    return {"accuracy_at_k": MeasuredValue(right / len(solved), len(solved), wilson(float(right), len(solved)))}


def outcomes(evidence: Evidence, path: Path | None, outcome: Outcome) -> list[float]:
    """Return the share of each item's answers that are passed: 1 or 0 of one. Errors as :func:`judged_rows`."""
    return [float(share) for share in share_right(judged_rows(evidence, path))]


def summarise_rows(evidence: Evidence) -> list[dict[str, Any]]:
    """Return every answer with its judgement; errors as :func:`judged_rows`."""
    return [
        {
            "item": judged_row.item.id,
            **({"sample": judged_row.row.sample} if answers_per_item(evidence) > 1 else {}),
            "prompt": plain(judged_row.item.prompt, ROW_CHARACTERS),
            "output": plain(judged_row.row.output, ROW_CHARACTERS),
            "truncated": judged_row.row.truncated,
            "passed": judged_row.passed,
            "reason": plain(judged_row.reason, ROW_CHARACTERS),
        }
        for judged_row in judged_rows(evidence, evidence.outputs.get("rows"))
    ]
