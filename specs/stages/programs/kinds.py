"""The kind that has a model write programs: ``code_eval``, and its metrics."""

from __future__ import annotations

from specs.stages.base.kind import StageKind
from specs.stages.base.metric import Population, count, judged_value, metric, rate, where
from specs.stages.programs.parameters import CodeEvalParameters
from specs.stages.programs.rows import CodeRow

_ANSWERS = Population("all answers")
_PASSED = where("answers whose program passes its tests", lambda value: value.passed)

CODE_METRICS = (
    metric("code_answers", "completions", count, over=_ANSWERS),
    rate(
        "python_validity",
        "answers that are a Python program with the function asked for, its body not empty",
        lambda value: value.valid,
        "higher",
        over=_ANSWERS,
        of="answers",
    ),
    metric(
        "pass_at_1",
        "fraction",
        judged_value("problems that one answer solves, expected over the answers of each / problems", _PASSED),
        "higher",
        over=_ANSWERS,
    ),
    metric(
        "pass_at_k",
        "fraction",
        judged_value(
            "problems that one of k answers solves, expected over all choices of k of the answers of each "
            "(Chen et al. 2021, arXiv:2107.03374) / problems",
            _PASSED,
        ),
        "higher",
        over=_ANSWERS,
    ),
    rate(
        "code_overtime",
        "answers whose program took longer than allowed",
        lambda value: value.overtime,
        "lower",
        over=_ANSWERS,
        of="answers",
    ),
    rate(
        "code_truncation_rate",
        "answers that hit the token limit",
        lambda value: value.row.truncated,
        "lower",
        over=_ANSWERS,
        of="answers",
    ),
)

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
