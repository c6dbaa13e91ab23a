"""The judge of ``package`` stages."""

from __future__ import annotations

from typing import Any

from reviews.evidence.evidence import Evidence
from reviews.evidence.row_reader import read_rows
from specs.stages.packaging.rows import PackageRow


def shown(evidence: Evidence) -> list[dict[str, Any]]:
    """Return whether each probe gives the same tokens; errors as :func:`read_rows`."""
    rows = read_rows(evidence.outputs.get("rows"), PackageRow, "package rows")
    return [{"item": row.item, "tokens": len(row.expected), "identical": row.expected == row.reloaded} for row in rows]
