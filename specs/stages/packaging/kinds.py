"""The kind that packages a checkpoint."""

from __future__ import annotations

from specs.stages.kind import StageKind
from specs.stages.packaging.metrics import PACKAGING_METRICS
from specs.stages.packaging.parameters import PackageParameters
from specs.stages.packaging.rows import PackageRow

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

KINDS = (PACKAGE,)
