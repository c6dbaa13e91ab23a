"""The kind that has a model write programs: ``code_eval``."""

from __future__ import annotations

from specs.stages.base.kind import StageKind
from specs.stages.programs.metrics import CODE_METRICS
from specs.stages.programs.parameters import CodeEvalParameters
from specs.stages.programs.rows import CodeRow

CODE_EVAL = StageKind(
    name="code_eval",
    parameters=CodeEvalParameters,
    inputs={"model": "checkpoint", "items": "items"},
    outputs={"rows": "rows"},
    rows={"rows": CodeRow},
    metrics=CODE_METRICS,
    job="training.jobs.programs.code_eval:write_programs",
    witness_prompts="training.jobs.programs.code_eval:build_witness_prompts",
    judge="reviews.stages.programs.code_eval",
    judged_in_sandbox=True,
    reads_heldout=True,
    only_measures=True,
    review_focus=(
        "programs: do they solve the problem, or answer the tests",
        "tests: do they fail for a wrong program",
        "programs that are cut off, time out, or are refused",
    ),
)

KINDS = (CODE_EVAL,)
