"""The items that a stage was asked, in the order of their file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

from reviews.evidence.evidence import Evidence
from reviews.evidence.row_reader import read_rows
from specs.stages.base.artifacts import Item
from specs.stages.evaluation.rows import BenchmarkRow, ChoiceRow, ConversationRow, DuelRow, EvaluationRow, PerplexityRow
from specs.stages.registry import kind_of
from specs.system.errors import EvidenceMissing
from training.rules.tasks import CONVERSATION

Row = TypeVar("Row", PerplexityRow, ChoiceRow, DuelRow, ConversationRow, EvaluationRow, BenchmarkRow)


def items_of(evidence: Evidence) -> tuple[Item, ...]:
    """Return the items of an evaluating stage, as they are registered; those of an earlier stage as it left them.

    Raises:
        EvidenceMissing: the stage's items cannot be read.
    """
    reference = evidence.stage.inputs.get("items", "heldout")
    head, _, name = reference.partition(".")
    if reference == "heldout":
        return evidence.heldout
    if head == "data":
        if name not in evidence.data:
            raise EvidenceMissing(f"unknown data file '{name}'", where="items")
        return evidence.data[name]
    return read_rows(evidence.inputs.get("items"), Item, "items")


def task_of(evidence: Evidence) -> str:
    """Return the task whose verifier judges this stage's answers."""
    arm = kind_of(evidence.stage).arm
    if arm is not None and arm.conversations:
        return CONVERSATION
    return str(evidence.parameters.get("scorer") or evidence.resolved.spec.task)


def in_order(items: Sequence[Item], rows: Iterable[Row], what: str) -> tuple[tuple[Item, Row], ...]:
    """Return each item with its row.

    Raises:
        EvidenceMissing: the rows do not answer each item exactly once.
    """
    rows = tuple(rows)
    times = Counter(row.item for row in rows)
    known = {item.id for item in items}
    for wrong, name in (
        (sorted(times.keys() - known), "are not registered"),
        (sorted(known - times.keys()), "have no answer"),
        (sorted(id for id, count in times.items() if count > 1), "have several answers"),
    ):
        if wrong:
            raise EvidenceMissing(f"{len(wrong)} items {name}, for example '{wrong[0]}'", where=what)
    by_item = {row.item: row for row in rows}
    return tuple((item, by_item[item.id]) for item in items)
