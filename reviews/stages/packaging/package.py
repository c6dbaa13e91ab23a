"""The judge of ``package`` stages."""

from __future__ import annotations

from typing import Any

from reviews.evidence.evidence import Evidence
from reviews.evidence.row_lines import Part, every, part
from reviews.evidence.row_reader import read_rows
from reviews.stages.packaging.measure import measure_package as measure
from specs.stages.packaging.rows import PackageRow

__all__ = ["measure", "shown", "trace"]


def trace(evidence: Evidence, metric: str) -> tuple[Part, ...]:
    """Return the lines of a metric; errors as :func:`read_rows`."""
    rows = read_rows(evidence.outputs.get("rows"), PackageRow, "package rows")
    if metric == "identical_outputs":
        return (part("give the same tokens from the package", rows, lambda row: row.expected == row.reloaded),)
    return (every("every probe", rows),)


def shown(evidence: Evidence) -> list[dict[str, Any]]:
    """Return whether each probe gives the same tokens; errors as :func:`read_rows`."""
    rows = read_rows(evidence.outputs.get("rows"), PackageRow, "package rows")
    return [{"item": row.item, "tokens": len(row.expected), "identical": row.expected == row.reloaded} for row in rows]
