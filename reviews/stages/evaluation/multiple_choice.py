"""The judge of ``multiple_choice`` stages."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from reviews.evidence.evidence import Evidence
from reviews.evidence.items import in_order, items_of
from reviews.evidence.row_lines import Subjects, by_item
from reviews.evidence.row_reader import read_rows
from specs.session.evaluation_plan import Outcome
from specs.stages.evaluation.rows import ChoiceRow
from specs.system.errors import EvidenceMissing
from training.rules.tasks.choices import answer_of, choices_of


class AnsweredQuestion(NamedTuple):
    """A question as it was answered."""

    answer: int
    """The place of the right choice."""
    row: ChoiceRow

    def nats(self, per: Literal["", "tokens", "bytes"]) -> list[float]:
        """Return the negative log-likelihood of each choice, whole or in a unit."""
        return [choice.nats / getattr(choice, per) if per else choice.nats for choice in self.row.choices]

    def likeliest(self, per: Literal["", "tokens", "bytes"] = "") -> bool:
        """Return whether the right choice alone is the likeliest.

        The first of equal ones would be luck of the order.
        """
        nats = self.nats(per)
        return nats[self.answer] == min(nats) and nats.count(min(nats)) == 1


def questions(evidence: Evidence, path: Path | None) -> tuple[AnsweredQuestion, ...]:
    """Return every question, in the order of the items.

    Raises:
        EvidenceMissing: as :func:`in_order`, an item is not a question, or a row has other choices than its item.
    """
    matching_questions: list[AnsweredQuestion] = []
    for item, row in in_order(items_of(evidence), read_rows(path, ChoiceRow, "choice rows"), "choice rows"):
        try:
            choices, answer = choices_of(item), answer_of(item)
        except ValueError as error:
            raise EvidenceMissing(str(error), where="items") from error
        if [len(choice.encode()) for choice in choices] != [score.bytes for score in row.choices]:
            raise EvidenceMissing(f"'{item.id}' was asked with other choices than its own", where="choice rows")
        matching_questions.append(AnsweredQuestion(answer, row))
    return tuple(matching_questions)


def read(evidence: Evidence, output: str) -> Subjects:
    """Return the questions for its metrics; errors as :func:`questions`."""
    path = evidence.outputs.get(output)
    return by_item(questions(evidence, path), read_rows(path, ChoiceRow, "choice rows"))


def outcomes(evidence: Evidence, path: Path | None, outcome: Outcome) -> list[float]:
    """Return whether the right choice is the likeliest per byte, or by how many nats; errors as :func:`questions`."""
    requested_questions = questions(evidence, path)
    if outcome == "binary":
        return [float(question.likeliest("bytes")) for question in requested_questions]
    values: list[float] = []
    for question in requested_questions:
        nats = question.nats("bytes")
        values.append(min(nats[: question.answer] + nats[question.answer + 1 :]) - nats[question.answer])
    return values
