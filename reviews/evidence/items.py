"""The items that a stage was asked, in the order of their file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

from reviews.evidence.evidence import Evidence
from reviews.evidence.row_lines import answer_of
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


def answers_per_item(evidence: Evidence) -> int:
    """Return how many answers of an evaluating stage each item has, as it was granted."""
    return int(evidence.parameters.get("samples_per_item", 1))


def in_order(items: Sequence[Item], rows: Iterable[Row], what: str, samples: int = 1) -> tuple[tuple[Item, Row], ...]:
    """Return each item with its row, or with each of its ``samples`` rows, in the order of their numbers.

    Raises:
        EvidenceMissing: the rows do not answer each item exactly so often.
    """
    rows = tuple(rows)
    times = Counter(map(answer_of, rows))
    ordered = [(item, (item.id, sample)) for item in items for sample in range(samples)]
    known = {answer for _, answer in ordered}
    for wrong, name in (
        (sorted(times.keys() - known), "are not registered"),
        (sorted(known - times.keys()), "have no answer"),
        (sorted(answer for answer, count in times.items() if count > 1), "have several answers"),
    ):
        if wrong:
            (item, sample), whose = wrong[0], "items" if samples == 1 else "samples of items"
            number = f", sample {sample}" if samples > 1 or sample else ""
            raise EvidenceMissing(f"{len(wrong)} {whose} {name}, for example '{item}'{number}", where=what)
    by_answer = {answer_of(row): row for row in rows}
    return tuple((item, by_answer[answer]) for item, answer in ordered)
