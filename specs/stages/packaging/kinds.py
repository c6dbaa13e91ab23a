"""The kinds that make a checkpoint ready for use, and time it: ``package``, ``export``, ``bench``."""

from __future__ import annotations

from specs.stages.kind import StageKind
from specs.stages.packaging.metrics import BENCH_METRICS, EXPORT_METRICS, PACKAGING_METRICS
from specs.stages.packaging.parameters import BenchParameters, ExportParameters, PackageParameters
from specs.stages.packaging.rows import BenchRow, ExportRow, ExportTextRow, PackageRow

PACKAGE = StageKind(
    name="package",
    parameters=PackageParameters,
    inputs={"model": "checkpoint", "items": "items"},
    outputs={"rows": "rows", "package": "checkpoint"},
    rows={"rows": PackageRow},
    metrics=PACKAGING_METRICS,
    job="training.jobs.packaging.package:package",
    asked="training.jobs.packaging.package:asked",
    judge="reviews.stages.packaging.checks",
    reads_heldout=True,
    # Its probes are the prompts alone, before and after reloading.
    reads_turns=True,
    instruct_unsaid=True,
)

EXPORT = StageKind(
    name="export",
    parameters=ExportParameters,
    inputs={"model": "checkpoint", "items": "items"},
    outputs={"rows": "rows", "texts": "rows", "export": "files"},
    rows={"rows": ExportRow, "texts": ExportTextRow},
    metrics=EXPORT_METRICS,
    job="training.jobs.packaging.export:export",
    asked="training.jobs.packaging.export:asked",
    asked_if="is_read",
    judge="reviews.stages.packaging.export_checks",
    reads_heldout=True,
    instruct_unsaid=True,
)

BENCH = StageKind(
    name="bench",
    parameters=BenchParameters,
    inputs={"model": "checkpoint", "items": "items"},
    outputs={"rows": "rows"},
    rows={"rows": BenchRow},
    metrics=BENCH_METRICS,
    job="training.jobs.packaging.bench:bench",
    judge="reviews.stages.packaging.bench_checks",
    reads_heldout=True,
    instruct_unsaid=True,
)

KINDS = (PACKAGE, EXPORT, BENCH)
