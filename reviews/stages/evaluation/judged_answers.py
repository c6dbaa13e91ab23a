"""Held-out items with their answers, each judged again by the registered verifier."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from reviews.evidence.evidence import Evidence
from reviews.evidence.items import in_order, items_of, task_of
from reviews.evidence.row_reader import read_rows
from reviews.stages.evaluation.multi_turn import held
from reviews.statistics import mcnemar
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


class Retested(NamedTuple):
    """The registered test on some of the items."""

    n: int
    gained: int
    lost: int
    p: float


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
        EvidenceMissing: as :func:`judged_rows` and :func:`reviews.stages.evaluation.multi_turn.held`.
    """
    if evidence.stage.kind == "multi_turn":
        return tuple(
            Answered(one.item, one.passed, one.reason, "\n".join(turn.output for turn in one.row.turns), one.truncated)
            for one in held(evidence, path)
        )
    return tuple(
        Answered(one.item, one.passed, one.reason, one.row.output, one.row.truncated)
        for one in judged_rows(evidence, path, what)
    )


def both_arms(evidence: Evidence) -> list[tuple[Answered, Answered]]:
    """Return each item as the baseline and as the treatment answered it; errors as :func:`answered`."""
    before = answered(evidence, evidence.baseline_rows, "baseline rows")
    return list(zip(before, answered(evidence, evidence.outputs.get("rows"), "treatment rows"), strict=True))


def retested(pairs: Sequence[tuple[Answered, Answered]]) -> Retested:
    """Repeat the registered test on some of the items."""
    gained = sum(now.passed and not then.passed for then, now in pairs)
    lost = sum(then.passed and not now.passed for then, now in pairs)
    return Retested(len(pairs), gained, lost, mcnemar.exact_mcnemar(gained, lost))
