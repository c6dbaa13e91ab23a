"""The measurer of packages."""

from __future__ import annotations

from reviews.evidence.evidence import Evidence
from reviews.evidence.measured_value import Measured
from reviews.evidence.measured_value import share as _share
from reviews.evidence.row_reader import read_rows
from specs.stages.packaging.rows import PackageRow


def measure_package(evidence: Evidence) -> dict[str, Measured]:
    """Return the metrics of a packaged checkpoint; errors as :func:`reviews.evidence.row_reader.read_rows`."""
    rows = read_rows(evidence.outputs.get("rows"), PackageRow, "package rows")
    n = len(rows)
    return {
        "identical_outputs": _share(sum(row.expected == row.reloaded for row in rows), n),
        "probes": Measured(n, n),
    }
