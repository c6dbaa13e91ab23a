"""How often answers keep to each principle: before, after and in every arm, against counts by hand and statsmodels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

from reviews.evidence.evidence import DesignEvidence, Evidence
from reviews.gate.design_checks import DESIGN_CHECKS
from specs.trail.verdict import CheckResult
from testing.factories.evidence_on_disk import N, answers, evidence_of, write_rows
from testing.factories.flaws import two_instructions
from testing.factories.judged_evidence import results_of
from testing.factories.more_arms import with_arm

LOWER, COMMAS = "tea, is a drink", "Tea is A drink"
"""Each keeps to one of the two principles; ``BOTH`` keeps to both and ``NEITHER`` to none."""
BOTH, NEITHER = "tea is a drink", "Tea, is A drink"


def constitution(*instructions: str) -> str:
    principles = "".join(
        f"  - {{id: rule{number}, category: form, text: Write every answer so, instructions: ['{type_}']}}\n"
        for number, type_ in enumerate(instructions)
    )
    totals = f"totals: {{principles: {len(instructions)}, by_category: {{form: {len(instructions)}}}}}"
    return f"schema_version: 1\ntitle: Form\n{totals}\nprinciples:\n{principles}"


TWO = constitution("change_case:english_lowercase", "punctuation:no_comma")


def compared(folder: Path, before: list[str], after: list[str], text: str = TWO) -> Evidence:
    evidence = two_instructions(evidence_of(folder, "tuned"), BOTH, BOTH)
    assert evidence.baseline_rows is not None
    for path, texts in ((evidence.baseline_rows, before), (evidence.outputs["rows"], after)):
        write_rows(path, rows_of(texts))
    return replace(evidence, constitution=text)


def rows_of(texts: list[str]) -> list[dict[str, Any]]:
    return [row | {"output": text} for row, text in zip(answers([True] * N), texts, strict=True)]


def judged(evidence: Evidence) -> CheckResult:
    return results_of(evidence)["strata.principles"]


def test_each_principle_is_counted_in_every_arm(tmp_path: Path) -> None:
    before = [NEITHER] * 9 + [LOWER] * 2 + [COMMAS]
    after = [BOTH] * 8 + [COMMAS] * 4
    evidence = with_arm(compared(tmp_path, before, after), [True] * N, "no sentence", rows=rows_of([COMMAS] * N))
    check = judged(evidence)
    answer_counts = {"rule0": N, "rule1": N}
    assert check.rows == (
        {"arm": "baseline", "kept": {"rule0": 2, "rule1": 1}, "answers": answer_counts},
        {"arm": "treatment", "kept": {"rule0": 8, "rule1": 12}, "answers": answer_counts},
        {"arm": "no sentence", "kept": {"rule0": 0, "rule1": N}, "answers": answer_counts},
    )
    # Lower case: 8 gained (one of them had only no comma before), 2 lost; no comma: 11 gained, none lost.
    tables = [np.array([[2, 8], [2, 0]]), np.array([[0, 11], [0, 1]])]
    p_values: list[Any] = [mcnemar(table, exact=True) for table in tables]
    adjusted: Any = multipletests([result.pvalue for result in p_values], method="fdr_bh")[1]
    assert adjusted[0] > 0.05 > adjusted[1]
    assert (check.status, check.detail) == ("WARN", "rule0 +0.500, rule1 +0.917; not kept more often: rule0")


@pytest.mark.parametrize(("after", "status"), [(BOTH, "PASS"), (LOWER, "WARN"), (COMMAS, "WARN"), (NEITHER, "WARN")])
def test_a_gain_that_one_principle_carries_is_named(tmp_path: Path, after: str, status: str) -> None:
    check = judged(compared(tmp_path, [NEITHER] * N, [after] * N))
    assert check.status == status and not check.closes
    weak = {BOTH: [], LOWER: ["rule1"], COMMAS: ["rule0"], NEITHER: ["rule0", "rule1"]}[after]
    assert check.figure == len(weak)
    assert check.detail.endswith(", ".join(weak))


def test_items_without_its_instructions_are_not_counted(tmp_path: Path) -> None:
    evidence = compared(
        tmp_path, [NEITHER] * N, [BOTH] * N, constitution("change_case:english_lowercase", "other:type")
    )
    assert [row["answers"] for row in judged(evidence).rows] == [{"rule0": N, "rule1": 0}] * 2


def test_nothing_is_counted_without_principles_that_name_instructions(tmp_path: Path) -> None:
    assert judged(compared(tmp_path, [NEITHER] * N, [BOTH] * N, "")).status == "NOT_APPLICABLE"


def test_a_constitution_that_cannot_be_read_leaves_the_check_blocked(tmp_path: Path) -> None:
    assert judged(compared(tmp_path, [NEITHER] * N, [BOTH] * N, "principles: [")).status == "BLOCKED"


@pytest.mark.parametrize(
    ("text", "task", "status"),
    [
        (TWO, "instruction_following", "PASS"),
        (constitution("change_case:english_lowercase", "other:type"), "instruction_following", "FAIL"),
        (TWO, "wordplay", "FAIL"),
        ("", "instruction_following", "NOT_APPLICABLE"),
    ],
)
def test_the_design_names_instructions_that_items_hold(tmp_path: Path, text: str, task: str, status: str) -> None:
    evidence = compared(tmp_path, [BOTH] * N, [BOTH] * N)
    spec = evidence.resolved.spec.model_copy(update={"task": task})
    resolved = evidence.resolved.model_copy(update={"spec": spec})
    check = next(check for check in DESIGN_CHECKS if check.id == "design.principles")
    assert check.run(DesignEvidence(resolved, evidence.heldout, {}, {}, constitution=text)).status == status
