"""Pairs that a rule leaves out: written down with their reason, counted, derived again and followed to lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reviews.audit.metric_lines import parts_of
from reviews.evidence.evidence import Evidence
from reviews.evidence.row_reader import read_rows
from reviews.gate.check_list import run_checks
from reviews.gate.measurer import measure
from specs.stages.critique.rows import DroppedPair
from specs.stages.registry import Stage
from specs.trail.verdict import CheckResult
from testing.factories.critic_evidence import STAGES, candidates, chains, critic_evidence, edited
from testing.factories.evidence_on_disk import write_rows


def ruled(kind: str, **rules: float) -> Stage:
    """Return the stage with rules of length."""
    stage = STAGES[kind]
    return stage.model_copy(update={"parameters": stage.parameters.model_copy(update=rules)})


def long_revisions(folder: Path, **rules: float) -> Evidence:
    """Return chains of which two end in a text that is much longer than the one they began with."""

    def write_answer(n: int, place: int) -> str:
        words = f"{n} sides it has, and all of it is found {'here' if place else 'there'}"
        return f"{words} {words} {words} {words} {words}" if n in (1, 4) else words

    return critic_evidence(folder, "revise", stage=ruled("revise", **rules), rows=chains(change=write_answer))


def long_first(folder: Path, **rules: float) -> Evidence:
    """Return responses of which the best is twice as long as the others."""

    def write_answer(n: int, place: int) -> str:
        return f"Answer {n} is this." if place else f"Answer {n} is this, {'so it was, ' * (n % 3)}so."

    stage = ruled("best_of_n", hard_negatives=(), **rules)  # pyright: ignore[reportArgumentType]
    return critic_evidence(folder, "best_of_n", stage=stage, rows=candidates(write_answer), signed=lambda _: (2.0, 2.0))


def check(evidence: Evidence) -> CheckResult:
    return next(result for result in run_checks(evidence, measure(evidence)) if result.id == "pairs.derived")


def reasons(evidence: Evidence) -> list[tuple[str | None, str]]:
    rows = read_rows(evidence.outputs["dropped"], DroppedPair, "dropped", may_be_empty=True)
    return [(pair.pair.item, pair.reason) for pair in rows]


def test_a_revision_that_is_much_longer_than_its_original_is_left_out_and_counted(tmp_path: Path) -> None:
    evidence = long_revisions(tmp_path, max_length_ratio=3.0)
    assert reasons(evidence) == [("i1", "length_ratio"), ("i4", "length_ratio")]
    values = {id: metric.value for id, metric in measure(evidence).metrics.items()}
    assert (values["revision_pairs"], values["revision_pairs_dropped_ratio"]) == (4, 2)
    assert measure(evidence).metrics["revision_pairs_dropped_ratio"].n == 6
    result = check(evidence)
    assert (result.status, result.detail) == ("PASS", "all 4 pairs follow from the raw rows; left out: length_ratio 2")
    (part,) = parts_of(evidence, "revision_pairs_dropped_ratio")
    assert (part.file, part.lines, part.of) == ("dropped", (1, 2), 2)


def test_balanced_pairs_pass_the_gate_that_those_of_before_do_not(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    (tmp_path / "after").mkdir()
    before, after = long_revisions(tmp_path / "before"), long_revisions(tmp_path / "after", length_balance=0.1)
    assert "dropped" not in before.outputs
    biased, level = (
        {result.id: result for result in run_checks(evidence, measure(evidence))} for evidence in (before, after)
    )
    assert biased["pairs.length"].status == "FAIL" and level["pairs.length"].status == "PASS"
    values = {id: metric.value for id, metric in measure(after).metrics.items()}
    assert values["revision_pairs_dropped_balance"] == len(reasons(after)) == 2
    assert abs(values["revision_pairs_log_length_ratio"]) <= 0.1


def test_the_judges_pairs_are_balanced_by_the_same_rule(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    (tmp_path / "after").mkdir()
    before, after = long_first(tmp_path / "before"), long_first(tmp_path / "after", length_balance=0.2)
    ratio = "pairs_log_length_ratio"
    assert measure(before).metrics[ratio].value > 0.2 >= measure(after).metrics[ratio].value
    assert {reason for _, reason in reasons(after)} == {"length_balance"} and check(after).status == "PASS"


def to_another_reason(row: dict[str, Any]) -> None:
    row["reason"] = "fault"


def of_another_text(row: dict[str, Any]) -> None:
    row["pair"]["chosen"] = "Mine is as long as that."


@pytest.mark.parametrize("change", [to_another_reason, of_another_text])
def test_what_is_written_down_of_a_pair_that_went_is_derived_again(
    tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    evidence = edited(long_revisions(tmp_path, length_balance=0.1), "dropped", 0, change)
    assert check(evidence).status == "FAIL" and "2 pairs are written down as left out" in check(evidence).detail


def test_a_pair_that_is_kept_against_the_rule_is_found(tmp_path: Path) -> None:
    evidence = long_revisions(tmp_path, max_length_ratio=3.0)
    path = evidence.outputs["preferences"]
    rule = ruled("revise", max_length_ratio=100.0)
    (tmp_path / "other").mkdir()
    other = critic_evidence(tmp_path / "other", "revise", stage=rule, rows=None)
    path.write_bytes(other.outputs["preferences"].read_bytes())
    assert check(evidence).status == "FAIL"


def test_without_the_pairs_that_went_the_gate_is_blocked(tmp_path: Path) -> None:
    evidence = long_revisions(tmp_path, length_balance=0.1)
    outputs = {name: path for name, path in evidence.outputs.items() if name != "dropped"}
    assert check(replace(evidence, outputs=outputs)).status == "BLOCKED"
    write_rows(evidence.outputs["dropped"], [])
    assert check(evidence).status == "FAIL"
