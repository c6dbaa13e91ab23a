"""Held-out items with their answers, each judged again by the registered verifier."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from reviews.evidence.evidence import Evidence
from reviews.evidence.items import in_order, items_of, task_of
from reviews.evidence.measured_value import Measured, ratio
from reviews.evidence.measured_value import share as _share
from reviews.evidence.row_reader import read_rows
from reviews.stages.evaluation.measure import held
from specs.errors import EvidenceMissing
from specs.stages.artifacts import Item
from specs.stages.evaluation.rows import EvaluationRow
from training.rules.tasks import verifier


class Judged(NamedTuple):
    """One held-out item with what was answered and whether the verifier accepts it."""

    item: Item
    row: EvaluationRow
    passed: bool
    reason: str


def judged_rows(evidence: Evidence, path: Path | None, what: str = "evaluation rows") -> tuple[Judged, ...]:
    """Return every registered item of the stage with its answer, in the order of the items.

    Raises:
        EvidenceMissing: rows are absent or unreadable, do not answer each registered item exactly once, or an item
            is not one of the task.
    """
    judge = verifier(task_of(evidence))
    found: list[Judged] = []
    for item, row in in_order(items_of(evidence), read_rows(path, EvaluationRow, what), what):
        try:
            verdict = judge(item, row.output)
        except (ValueError, KeyError) as error:
            raise EvidenceMissing(f"item '{item.id}' cannot be judged: {error}", where=what) from error
        found.append(Judged(item, row, verdict.passed, verdict.reason))
    return tuple(found)


class Answered(NamedTuple):
    """One held-out item of an arm, whatever its kind: a conversation is one item, its answers one text."""

    item: Item
    passed: bool
    reason: str
    text: str
    truncated: bool


def answered(evidence: Evidence, path: Path | None, what: str = "evaluation rows") -> tuple[Answered, ...]:
    """Return every registered item of an ``evaluate`` or ``multi_turn`` stage as it was answered and judged, in order.

    Raises:
        EvidenceMissing: as :func:`judged_rows` and :func:`reviews.stages.evaluation.measure.held`.
    """
    if evidence.stage.kind == "multi_turn":
        return tuple(
            Answered(
                one.item,
                one.passed,
                "; ".join(turn.reason for turn in one.turns if not turn.passed),
                "\n".join(turn.output for turn in one.row.turns),
                any(turn.truncated for turn in one.row.turns),
            )
            for one in held(evidence, path)
        )
    return tuple(
        Answered(one.item, one.passed, one.reason, one.row.output, one.row.truncated)
        for one in judged_rows(evidence, path, what)
    )


def measure_answers(judged: tuple[Judged, ...]) -> dict[str, Measured]:
    """Return the metrics of one arm's judged answers."""
    n = len(judged)
    return {
        "accuracy": _share(sum(one.passed for one in judged), n),
        "items": Measured(n, n),
        "truncation_rate": _share(sum(one.row.truncated for one in judged), n),
        "empty_rate": _share(sum(not one.row.output.strip() for one in judged), n),
        "mean_output_tokens": Measured(ratio(sum(one.row.output_tokens for one in judged), n), n),
    }
