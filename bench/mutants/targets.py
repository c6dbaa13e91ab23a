"""Which modules are changed, and which tests are their own."""

from __future__ import annotations

from typing import NamedTuple


class Target(NamedTuple):
    """Modules, the test files that are their own, and the share of the mutants that these must kill."""

    files: tuple[str, ...]
    tests: tuple[str, ...]
    limit: float


TARGETS = {
    "decide": Target(
        ("reviews/gate/decide.py", "reviews/gate/panel.py"),
        ("tests/reviews/gate/test_decide.py", "tests/reviews/gate/test_panel.py"),
        0.9,
    ),
    "measure": Target(
        ("reviews/stages/row_metrics.py", "reviews/stages/evaluation/pairwise_judge.py"),
        (
            "tests/reviews/gate/test_measure.py",
            "tests/stages/evaluation/test_measure_evaluation.py",
            "tests/reviews/audit/test_trace_parts.py",
        ),
        0.9,
    ),
    "grants": Target(
        ("reviews/gate/grants.py",),
        ("tests/reviews/gate/test_grants.py", "tests/reviews/gate/test_conditions.py"),
        0.9,
    ),
    "trail": Target(
        ("reviews/trail/trail.py", "reviews/trail/integrity.py", "reviews/trail/tree.py"),
        (
            "tests/reviews/trail/test_trail.py",
            "tests/reviews/trail/test_append.py",
            "tests/reviews/trail/test_integrity.py",
            "tests/reviews/trail/test_policy_changes.py",
            "tests/reviews/trail/test_signed_head.py",
            "tests/reviews/trail/test_merkle.py",
        ),
        0.9,
    ),
    "statistics": Target(
        (
            "reviews/statistics/mcnemar.py",
            "reviews/statistics/paired_binary.py",
            "reviews/statistics/paired_continuous.py",
        ),
        (
            "tests/reviews/statistics/test_statistics.py",
            "tests/reviews/statistics/test_parts.py",
            "tests/reviews/statistics/test_paired_binary.py",
            "tests/reviews/statistics/test_paired_continuous.py",
        ),
        0.85,
    ),
    "losses": Target(("training/rules/finetuning/losses.py",), ("tests/stages/finetuning/test_losses.py",), 0.9),
    "channels": Target(
        ("training/jobs/finetuning/online/losses.py", "training/jobs/finetuning/online/pieces.py"),
        ("tests/stages/finetuning/online/test_losses.py", "tests/stages/finetuning/online/test_pieces.py"),
        0.9,
    ),
}
