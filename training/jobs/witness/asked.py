"""What a stage's model was asked for one answer, derived again from granted inputs and parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from specs.job_records import LEFT
from specs.stages.answer_end import Finish
from training.engines.token_sampling import Sampling
from training.jobs.job import Job
from training.jobs.row_files import Row, read_rows


class NotAsked(Exception):
    """A row does not say what a witness needs: its item is unknown, or it has no token ids."""


class Asked(NamedTuple):
    """One answer of a row, and what it is an answer to."""

    row: int
    """Its place in the file of rows, from 0."""
    prompt: Sequence[int]
    """Token ids, not taken from the row."""
    sampling: Sampling
    ids: Sequence[int]
    """Of the answer, as the row states them."""
    text: str
    finish: Finish
    part: str = ""


Asking = Callable[[Job[Any], Any, Sequence[int]], list[Asked]]
"""Given the witness's job, the tokenizer and places of rows: what the model was asked for them. Raises NotAsked."""


def left_rows(job: Job[Any], row: type[Row], places: Sequence[int], output: str = "rows") -> list[tuple[int, Row]]:
    """Return rows of the judged job with their places, or raise NotAsked where there are fewer."""
    found = read_rows(job.inputs[LEFT + output], row)
    if missing := [place for place in places if place >= len(found)]:
        raise NotAsked(f"there is no row {missing[0]}")
    return [(place, found[place]) for place in places]


def answer(
    row: int,
    prompt: Sequence[int],
    sampling: Sampling,
    *,
    ids: Sequence[int] | None,
    text: str,
    finish: Finish | None,
    part: str = "",
) -> Asked:
    """Return an answer, or raise NotAsked where the row does not hold its token ids and its end."""
    if ids is None or finish is None:
        raise NotAsked(f"row {row} has no token ids")
    return Asked(row, prompt, sampling, ids, text, finish, part)
