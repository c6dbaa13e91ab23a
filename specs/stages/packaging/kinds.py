"""The kinds that make a checkpoint ready for use, and time it: ``package``, ``export``, ``bench``."""

from __future__ import annotations

from specs.stages.base.kind import StageKind
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
    witness_prompts="training.jobs.packaging.package:build_witness_prompts",
    judge="reviews.stages.packaging.checks",
    reads_heldout=True,
    # Its probes are the prompts alone, before and after reloading.
    reads_turns=True,
    review_focus=(
        "probes: does the package answer as the accepted checkpoint does",
        "weights, tokenizer and template: those of the accepted stage",
    ),
)

EXPORT = StageKind(
    name="export",
    parameters=ExportParameters,
    inputs={"model": "checkpoint", "items": "items"},
    outputs={"rows": "rows", "texts": "rows", "export": "files"},
    rows={"rows": ExportRow, "texts": ExportTextRow},
    metrics=EXPORT_METRICS,
    job="training.jobs.packaging.export:export",
    witness_prompts="training.jobs.packaging.export:build_witness_prompts",
    witness_prompts_if="is_read",
    judge="reviews.stages.packaging.export_checks",
    reads_heldout=True,
    review_focus=(
        "probes: does the export answer as the checkpoint it was made of",
        "precision: as granted, and what it costs in answers",
    ),
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
    review_focus=(
        "timings: after a warm-up, repeated, on the machine that is stated",
        "the same work in what is compared",
    ),
)

KINDS = (PACKAGE, EXPORT, BENCH)
