"""Held-out items with their answers, each judged again by the registered verifier."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from reviews.evidence.evidence import Evidence
from reviews.evidence.items import answers_per_item, in_order, items_of, task_of
from reviews.evidence.row_reader import once, read_rows
from reviews.evidence.subgroups import ArmPair, pair_items
from reviews.stages.evaluation.benchmark import BenchmarkSample, read_benchmark_samples
from reviews.stages.evaluation.multi_turn import JudgedConversation, read_judged_conversations
from reviews.statistics.pass_at_k import pass_at_k
from specs.stages.base.artifacts import Item
from specs.stages.evaluation.rows import EvaluationRow
from specs.stages.registry import kind_of
from specs.system.errors import EvidenceMissing
from specs.system.exact import Number
from training.rules.tasks import judge_answers


class JudgedAnswer(NamedTuple):
    """One held-out item with what was answered and whether the verifier accepts it."""

    item: Item
    row: EvaluationRow
    passed: bool
    reason: str

    @property
    def text(self) -> str:
        """What was answered."""
        return self.row.output

    @property
    def truncated(self) -> bool:
        """Return whether the answer hit the token limit."""
        return self.row.truncated


def judged_rows(evidence: Evidence, path: Path | None, what: str = "evaluation rows") -> tuple[JudgedAnswer, ...]:
    """Return every registered item of the stage with its answer, or each of them, in the order of the items.

    Raises:
        EvidenceMissing: as :func:`read_rows` and :func:`in_order`, or an item is not one of the task.
    """
    return once((judged_rows, path), evidence, lambda: _judged_again(evidence, path, what))


def _judged_again(evidence: Evidence, path: Path | None, what: str) -> tuple[JudgedAnswer, ...]:
    rows = read_rows(path, EvaluationRow, what)
    pairs = list(in_order(items_of(evidence), rows, what, answers_per_item(evidence)))
    judgements = judge_answers(task_of(evidence), [(item, row.output) for item, row in pairs])
    results: list[JudgedAnswer] = []
    for item, row in pairs:
        try:
            verdict = next(judgements)
        except (ValueError, KeyError) as error:
            raise EvidenceMissing(f"item '{item.id}' cannot be judged: {error}", where=what) from error
        results.append(JudgedAnswer(item, row, verdict.passed, verdict.reason))
    return tuple(results)


Answered = JudgedAnswer | JudgedConversation | BenchmarkSample
"""One answer of an arm to a held-out item, whatever its kind: a conversation is one item, its answers one text."""


def read_judged_items(evidence: Evidence, path: Path | None, what: str = "evaluation rows") -> tuple[Answered, ...]:
    """Return every answer to every registered item, judged, in order; errors as :func:`judged_rows` and its like."""
    if kind_of(evidence.stage).environment:
        return read_benchmark_samples(evidence, path, what)
    return (
        read_judged_conversations(evidence, path)
        if evidence.stage.kind == "multi_turn"
        else judged_rows(evidence, path, what)
    )


def both_sides(evidence: Evidence, before: Path | None, after: Path | None) -> list[tuple[Answered, Answered]]:
    """Return each answer of two files of rows to each item; errors as :func:`read_judged_items`, for either file."""
    then, now = (
        read_judged_items(evidence, before, "baseline rows"),
        read_judged_items(evidence, after, "treatment rows"),
    )
    return list(zip(then, now, strict=True))


def both_arms(evidence: Evidence) -> list[tuple[Answered, Answered]]:
    """Return each answer of baseline and treatment to each item; errors as :func:`read_judged_items`."""
    return both_sides(evidence, evidence.baseline_rows, evidence.outputs.get("rows"))


def pair_answers(answers: Iterable[tuple[Answered, Answered]]) -> tuple[ArmPair, ...]:
    """Return what a comparison counts of items that two sides answered, once or several times."""
    return pair_items((now.item, then.passed, now.passed) for then, now in answers)


def solve_at_k(answers: Sequence[Answered], k: int) -> list[Fraction]:
    """Return pass@k of each item, in order; raises ValueError for an item with fewer than ``k`` answers."""
    times, right = Counter(answer.item.id for answer in answers), Counter[str]()
    for answer in answers:
        right[answer.item.id] += answer.passed
    return [pass_at_k(count, right[item], k) for item, count in times.items()]


def share_right(answers: Iterable[Answered]) -> list[Number]:
    """Return for each item the share of its answers that are right, in order; of a single answer, whether it is."""
    return [pair.after for pair in pair_answers((answer, answer) for answer in answers)]
