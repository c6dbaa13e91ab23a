"""Whether what a stage samples is worth going on with: counted row by row, told from the first rows on.

Pure, and the same whatever the order of the rows: the measurer counts the rows that were left again and comes to the
same answer. A stage looks after each group of rows; one that was ended and goes on looks at the same groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

from specs.exact import holds
from specs.stages.critique.parameters import BestOfNParameters
from specs.stages.critique.rows import CandidateRow, RevisionRow
from specs.stages.generation.parameters import SampleResponsesParameters
from specs.stages.generation.rows import GenerationRow, SampleResponsesRow, SelfInstructRow
from specs.stages.sampling import END_MARK, ROLE_STOPS, Quality
from training.rules.cleaning import is_runaway, leak_in
from training.rules.numbered_lists import parse
from training.rules.similarity import words_of

MARKS = (END_MARK, *ROLE_STOPS)
"""Delimiters that are looked for where a stage has no stop strings of its own."""


class Sample(NamedTuple):
    """What is wrong with one row, and its words."""

    words: tuple[str, ...]
    """Without case and marks."""
    empty: bool
    runaway: bool
    truncated: bool
    leaked: bool


class Rates(NamedTuple):
    """Rows by what is wrong with them."""

    rows: int
    empty: int
    runaway: int
    truncated: int
    leaked: int
    repeated: int
    """Rows with the words of an earlier one; rows without a word are none."""


TOLD = {
    "empty": "are empty",
    "runaway": "ran away",
    "truncated": "hit the token limit",
    "leaked": "hold a delimiter",
    "repeated": "repeat an earlier row",
}


class Tally:
    """Counts rows as they come. Without limits nothing is counted and nothing is broken off."""

    def __init__(self, quality: Quality | None) -> None:
        self._quality = quality
        self._seen: set[tuple[str, ...]] = set()
        self.rates = Rates(0, 0, 0, 0, 0, 0)

    def add(self, samples: Iterable[Sample]) -> None:
        """Count more rows."""
        if self._quality is None:
            return
        for one in samples:
            again = bool(one.words) and one.words in self._seen
            self._seen.add(one.words)
            had = self.rates
            self.rates = Rates(
                had.rows + 1,
                had.empty + one.empty,
                had.runaway + one.runaway,
                had.truncated + one.truncated,
                had.leaked + one.leaked,
                had.repeated + again,
            )

    def why(self) -> str:
        """Say why the stage has to be broken off; nothing where it may go on."""
        quality, rates = self._quality, self.rates
        if quality is None or rates.rows < quality.first:
            return ""
        told = (
            over(getattr(rates, name), rates.rows, getattr(quality, name), f"rows {words}")
            for name, words in TOLD.items()
        )
        return "; ".join(one for one in told if one)


def over(count: int, of: int, most: float, what: str) -> str:
    """Say that a share is above its limit; nothing where it is not."""
    return f"{count} of {of} {what}, more than {most:g}" if of and holds(Fraction(count, of), ">", most) else ""


def rates_of(samples: Iterable[Sample]) -> Rates:
    """Return the counts of rows, whatever their limits."""
    tally = Tally(Quality())
    tally.add(samples)
    return tally.rates


def why_low(samples: Iterable[Sample], quality: Quality | None) -> str:
    """Say why a stage with these rows has to be broken off; nothing where it may go on."""
    tally = Tally(quality)
    tally.add(samples)
    return tally.why()


def group_size(quality: Quality | None, most: int, each: int = 1) -> int:
    """Return how many prompts make a group of rows, after which the stage looks: no more than the first rows need.

    Args:
        quality: the stage's limits. None: it does not look.
        most: prompts of a group where it does not look.
        each: rows of a prompt.
    """
    return most if quality is None else min(most, math.ceil(quality.first / each))


def of_samples(rows: Iterable[GenerationRow], stops: tuple[str, ...]) -> list[Sample]:
    """Return what is wrong with the samples of a ``generate`` stage."""
    marks = stops or MARKS
    return [_sample(row.prompt, row.completion, row.truncated, marks) for row in rows]


def of_calls(rows: Iterable[SelfInstructRow]) -> list[Sample]:
    """Return what is wrong with calls for instructions, probes left out: one without an instruction is empty.

    A list has no length at which it runs away; one that goes on hits the token limit.
    """
    found: list[Sample] = []
    for row in rows:
        if row.probe:
            continue
        cut = row.finish == "length"
        listed = parse(row.raw, first=row.first, primed=row.form == "completion", cut=cut)
        empty = not any(one.fate == "candidate" for one in listed)
        found.append(_sample(row.prompt, row.raw, cut, MARKS)._replace(empty=empty, runaway=False))
    return found


def of_answers(rows: Iterable[SampleResponsesRow], given: SampleResponsesParameters) -> list[Sample]:
    """Return what is wrong with cleaned answers to instructions."""
    return [_sample(row.instruction, row.completion, row.finish == "length", given.stops) for row in rows]


def of_candidates(rows: Iterable[CandidateRow], given: BestOfNParameters) -> list[Sample]:
    """Return what is wrong with the responses of which the best is looked for."""
    return [_sample(row.instruction, row.response, row.finish == "length", given.stops) for row in rows]


def of_chains(rows: Iterable[RevisionRow]) -> list[Sample]:
    """Return what is wrong with chains: with any of their revisions, or a critique that is empty or cut."""
    found: list[Sample] = []
    for row in rows:
        parts = [_sample(row.instruction, one.revision, one.revision_finish == "length", MARKS) for one in row.rounds]
        found.append(
            Sample(
                parts[-1].words,
                any(one.empty for one in parts) or any(not one.critique.strip() for one in row.rounds),
                any(one.runaway for one in parts),
                any(one.truncated for one in parts) or any(one.critique_finish == "length" for one in row.rounds),
                any(one.leaked for one in parts),
            )
        )
    return found


def _sample(asked: str, text: str, truncated: bool, marks: tuple[str, ...]) -> Sample:
    return Sample(words_of(text), not text.strip(), is_runaway(text), truncated, bool(leak_in(text, asked, marks)))
