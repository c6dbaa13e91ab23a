"""The judge of ``generate`` stages."""

from __future__ import annotations

from typing import Any, NamedTuple

from reviews.evidence.evidence import Evidence
from reviews.evidence.row_lines import Subjects, as_written
from reviews.evidence.row_reader import ROW_CHARACTERS, once, read_rows
from specs.stages.base.artifacts import Item
from specs.stages.generation.rows import GenerationRow
from specs.system.errors import EvidenceMissing
from specs.system.text import plain
from training.rules.tasks import judge_answers


class JudgedCompletion(NamedTuple):
    """A sampled completion as the task's verifier judges it again."""

    row: GenerationRow
    accepted: bool
    """It reached its end token and the verifier accepts it."""
    repeated: bool
    """It is accepted and says what an earlier accepted one says."""

    @property
    def answer(self) -> tuple[str, str]:
        """What makes it another answer than others."""
        return self.row.prompt, self.row.completion.strip()


def judged_rows(evidence: Evidence) -> tuple[JudgedCompletion, ...]:
    """Return all sampled rows, judged again.

    Raises:
        EvidenceMissing: rows are absent or unreadable, or name an item the prompts do not hold.
    """
    return once(judged_rows, evidence, lambda: _judged_again(evidence))


def _judged_again(evidence: Evidence) -> tuple[JudgedCompletion, ...]:
    rows = read_rows(evidence.outputs.get("rows"), GenerationRow, "generation rows")
    _, _, name = evidence.stage.inputs["prompts"].partition(".")
    items = {item.id: item for item in evidence.data.get(name, ())}
    pairs: list[tuple[Item, str]] = []
    for row in rows:
        item = items.get(row.item)
        if item is None or item.prompt != row.prompt:
            message = f"row of item '{row.item}' does not belong to a registered prompt"
            raise EvidenceMissing(message, where="generation rows")
        if not row.truncated:
            pairs.append((item, row.completion))
    judgements = judge_answers(evidence.resolved.spec.task, pairs)
    results, seen_pairs = list[JudgedCompletion](), set[tuple[str, str]]()
    for row in rows:
        value = JudgedCompletion(row, not row.truncated and next(judgements).passed, False)
        results.append(value._replace(repeated=value.accepted and value.answer in seen_pairs))
        if value.accepted:
            seen_pairs.add(value.answer)
    return tuple(results)


def read(evidence: Evidence, output: str) -> Subjects:
    """Return the samples for its metrics; errors as :func:`judged_rows`."""
    return as_written(judged_rows(evidence), output)


def summarise_rows(evidence: Evidence) -> list[dict[str, Any]]:
    """Return every sample, and whether it was accepted; errors as :func:`judged_rows`."""
    return [
        {
            "item": judged_row.row.item,
            "prompt": plain(judged_row.row.prompt, ROW_CHARACTERS),
            "completion": plain(judged_row.row.completion, ROW_CHARACTERS),
            "truncated": judged_row.row.truncated,
            "accepted": judged_row.accepted,
        }
        for judged_row in judged_rows(evidence)
    ]
