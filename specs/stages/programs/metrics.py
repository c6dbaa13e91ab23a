"""Metrics of written programs. Each program was run by Peergate, not by the job."""

from __future__ import annotations

from specs.stages.base.metric import Population, count, judged_value, metric, rate, where

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
