"""The judge of ``base_model_check`` stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reviews.evidence.evidence import Evidence
from reviews.evidence.row_lines import Subjects, as_written
from reviews.evidence.row_reader import read_rows
from specs.stages.generation.rows import BaseModelCheckRow
from specs.system.errors import EvidenceMissing
from training.rules.generation.sentinels import BY_ID, SENTINELS
from training.rules.prompt_encoding import fault_in


class SentinelAnswer(NamedTuple):
    """What a model answered to a sentinel."""

    row: BaseModelCheckRow
    command: bool
    """Whether it is a command; others are beginnings of sentences."""
    met: bool
    fault: str
    """What is wrong with how a bare prompt was encoded."""


def rows_of_form(rows: Sequence[BaseModelCheckRow], model: str, form: str) -> tuple[BaseModelCheckRow, ...]:
    """Return the answers of a model in a form; empty for the chat template of a model without one."""
    return tuple(row for row in rows if (row.model, row.form) == (model, form))


def guard_rows(evidence: Evidence) -> tuple[BaseModelCheckRow, ...]:
    """Return the rows of a base_model_check stage, one for each sentinel, model and form.

    Raises:
        EvidenceMissing: rows are absent or unreadable, a sentinel has not exactly one answer of a model in a form, or
            its prompt is not the registered one.
    """
    what = "base_model_check rows"
    rows = read_rows(evidence.outputs.get("rows"), BaseModelCheckRow, what)
    for row in rows:
        sentinel = BY_ID.get(row.sentinel)
        if sentinel is None or (row.form == "completion" and row.prompt != sentinel.prompt):
            raise EvidenceMissing(f"a row of sentinel '{row.sentinel}' does not hold its prompt", where=what)
        if sentinel.prompt not in row.prompt:
            raise EvidenceMissing(f"the templated prompt does not hold '{sentinel.prompt}'", where=what)
    wanted = sorted(sentinel.id for sentinel in SENTINELS)
    for model, form in dict.fromkeys((row.model, row.form) for row in rows):
        form_rows = rows_of_form(rows, model, form)
        if sorted(row.sentinel for row in form_rows) != wanted:
            message = f"the {model} model as {form} answered {len(form_rows)} sentinels, not {len(wanted)}, each once"
            raise EvidenceMissing(message, where=what)
    for model in ("declared", "control"):
        if not rows_of_form(rows, model, "completion"):
            raise EvidenceMissing(f"the {model} model was given no sentinel as bare text", where=what)
    return rows


def read(evidence: Evidence, output: str) -> Subjects:
    """Return the sentinels for its metrics; errors as :func:`guard_rows`."""
    rows = guard_rows(evidence)
    known = [BY_ID[row.sentinel] for row in rows]
    sentinels = [
        SentinelAnswer(row, sentinel.kind == "command", sentinel.meets(row.output), encoding_fault(row))
        for row, sentinel in zip(rows, known, strict=True)
    ]
    return as_written(sentinels, output)


def count_followed_commands(rows: Sequence[BaseModelCheckRow]) -> tuple[int, int]:
    """Return how many commands were followed, and how many there are."""
    commands = [row for row in rows if BY_ID[row.sentinel].kind == "command"]
    return sum(BY_ID[row.sentinel].meets(row.output) for row in commands), len(commands)


def encoding_fault(row: BaseModelCheckRow) -> str:
    """Return what is wrong with how a bare prompt was encoded, from the ids in the row."""
    return fault_in(row.prompt, row.ids, row.ids_with_special, row.decoded, row.template_ids)
