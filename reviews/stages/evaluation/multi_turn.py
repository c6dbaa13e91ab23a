"""The judge of ``multi_turn`` stages."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from reviews.evidence.evidence import Evidence
from reviews.evidence.items import in_order, items_of
from reviews.evidence.row_lines import Subjects, by_item, inside
from reviews.evidence.row_reader import ROW_CHARACTERS, read_rows
from specs.session.evaluation_plan import Outcome
from specs.stages.base.artifacts import Item
from specs.stages.evaluation.rows import ConversationRow
from specs.system.errors import EvidenceMissing
from specs.system.text import plain
from training.rules.tasks.conversation import judge, turns_of
from training.rules.tasks.format_instructions import Judgement


class JudgedConversation(NamedTuple):
    """A conversation as it was held, with the judgement of every turn after the first."""

    item: Item
    row: ConversationRow
    turns: tuple[Judgement, ...]
    of_lowest: bool = False
    """Whether conversations of its kind pass least often."""

    @property
    def passed(self) -> bool:
        """Return whether all of them pass."""
        return all(judgement.passed for judgement in self.turns)

    @property
    def reason(self) -> str:
        """Why the turns fail that do."""
        return "; ".join(turn.reason for turn in self.turns if not turn.passed)

    @property
    def text(self) -> str:
        """The answers of all turns."""
        return "\n".join(turn.output for turn in self.row.turns)

    @property
    def truncated(self) -> bool:
        """Return whether an answer hit the token limit."""
        return any(turn.truncated for turn in self.row.turns)


def read_judged_conversations(evidence: Evidence, path: Path | None) -> tuple[JudgedConversation, ...]:
    """Return every conversation as it was held and judged.

    Raises:
        EvidenceMissing: as :func:`in_order`, or a row holds other turns than its item.
    """
    results: list[JudgedConversation] = []
    rows = read_rows(path, ConversationRow, "conversation rows")
    for item, row in in_order(items_of(evidence), rows, "conversation rows"):
        try:
            texts = turns_of(item)
            if tuple(turn.user for turn in row.turns) != texts:
                raise EvidenceMissing(f"'{item.id}' was held with other turns than its own", where="conversation rows")
            results.append(JudgedConversation(item, row, judge(item, tuple(turn.output for turn in row.turns))))
        except ValueError as error:
            raise EvidenceMissing(str(error), where="items") from error
    kinds: defaultdict[str, list[bool]] = defaultdict(list)
    for value in results:
        kinds[value.item.kind].append(value.passed)
    lowest = min(kinds, key=lambda kind: sum(kinds[kind]) / len(kinds[kind]), default="")
    return tuple(value._replace(of_lowest=value.item.kind == lowest) for value in results)


def read(evidence: Evidence, output: str) -> Subjects:
    """Return the conversations for its metrics, their judged ``turns`` or all ``answers``.

    Errors are those of :func:`read_judged_conversations`.
    """
    path = evidence.outputs.get("rows")
    subjects = by_item(read_judged_conversations(evidence, path), read_rows(path, ConversationRow, "conversation rows"))
    if output == "rows":
        return subjects
    return inside(subjects, lambda value: value.turns if output == "turns" else value.row.turns)


def outcomes(evidence: Evidence, path: Path | None, outcome: Outcome) -> list[float]:
    """Return whether each conversation passes, or how many of its turns do.

    Errors are those of :func:`read_judged_conversations`.
    """
    talks = read_judged_conversations(evidence, path)
    if outcome == "binary":
        return [float(talk.passed) for talk in talks]
    return [float(sum(turn.passed for turn in talk.turns)) for talk in talks]


def summarise_rows(evidence: Evidence) -> list[dict[str, Any]]:
    """Return every conversation with its judgement; errors as :func:`read_judged_conversations`."""
    return [
        {
            "item": value.item.id,
            **{
                f"turn_{number}": plain(f"{turn.user}\n-> {turn.output}", ROW_CHARACTERS)
                for number, turn in enumerate(value.row.turns, 1)
            },
            "truncated": value.truncated,
            "passed": value.passed,
            "reason": plain(value.reason, ROW_CHARACTERS),
        }
        for value in read_judged_conversations(evidence, evidence.outputs.get("rows"))
    ]
