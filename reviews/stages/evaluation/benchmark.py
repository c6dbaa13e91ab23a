"""The judge of ``inspect`` and ``lm_eval`` stages: tasks of other libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reviews.evidence.evidence import Evidence
from reviews.evidence.row_lines import Subjects, by_item
from reviews.evidence.row_reader import ROW_CHARACTERS, read_rows
from reviews.stages.evaluation.benchmark_rows import read_benchmark_samples
from specs.session.evaluation_plan import Outcome
from specs.stages.evaluation.rows import BenchmarkRow
from specs.system.text import plain


def read(evidence: Evidence, output: str) -> Subjects:
    """Return the samples for its metrics; errors as :func:`read_benchmark_samples`."""
    path = evidence.outputs.get(output)
    return by_item(read_benchmark_samples(evidence, path), read_rows(path, BenchmarkRow, "inspect rows"))


def outcomes(evidence: Evidence, path: Path | None, outcome: Outcome) -> list[float]:
    """Return 1 for each item that the registered scorer accepts and 0 for the others.

    Errors are those of :func:`read_benchmark_samples`.
    """
    return [float(value.passed) for value in read_benchmark_samples(evidence, path)]


def summarise_rows(evidence: Evidence) -> list[dict[str, Any]]:
    """Return every sample with its scores; errors as :func:`read_benchmark_samples`."""
    return [
        {
            "item": value.item.id,
            "prompt": plain(value.item.prompt, ROW_CHARACTERS),
            "output": plain(value.text, ROW_CHARACTERS),
            "target": plain(", ".join(value.row.target), ROW_CHARACTERS),
            "calls": len(value.row.calls),
            "truncated": value.truncated,
            "passed": value.passed,
            "reason": plain(value.reason, ROW_CHARACTERS),
        }
        for value in read_benchmark_samples(evidence, evidence.outputs.get("rows"))
    ]
