"""Which samples are kept, and whether a stage's samples are worth continuing, counted row by row.

Pure and independent of the order of rows: the measurer comes to the same answer. A stage looks after each group of
rows, and a resumed stage looks at the same groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

from specs.stages.base.artifacts import Example
from specs.stages.base.sampling import END_MARK, ROLE_STOPS, Quality
from specs.stages.critique.parameters import BestOfNParameters
from specs.stages.critique.rows import CandidateRow, RevisionRow
from specs.stages.generation.parameters import SampleResponsesParameters
from specs.stages.generation.rows import GenerationRow, SampleResponsesRow, SelfInstructRow
from specs.system.exact import holds
from training.rules.cleaning import is_runaway, leak_in
from training.rules.prompt_text import parse
from training.rules.similarity import words_of

MARKS = (END_MARK, *ROLE_STOPS)
"""Delimiters to look for if a stage has no stop strings."""


class SampleFaults(NamedTuple):
    """The faults of one row, and its words."""

    words: tuple[str, ...]
    """Without case and marks."""
    empty: bool
    runaway: bool
    truncated: bool
    leaked: bool


class Rates(NamedTuple):
    """Rows by fault."""

    rows: int
    empty: int
    runaway: int
    truncated: int
    leaked: int
    repeated: int
    """Rows with the words of an earlier one; rows without a word do not count."""


_PREDICATES = {
    "empty": "are empty",
    "runaway": "ran away",
    "truncated": "hit the token limit",
    "leaked": "hold a delimiter",
    "repeated": "repeat an earlier row",
}


class Tally:
    """Counts rows. Without limits it counts nothing."""

    def __init__(self, quality: Quality | None) -> None:
        self._quality = quality
        self._seen: set[tuple[str, ...]] = set()
        self.rates = Rates(0, 0, 0, 0, 0, 0)

    def add(self, samples: Iterable[SampleFaults]) -> None:
        """Count more rows."""
        if self._quality is None:
            return
        for sample in samples:
            again = bool(sample.words) and sample.words in self._seen
            self._seen.add(sample.words)
            row = (1, sample.empty, sample.runaway, sample.truncated, sample.leaked, again)
            self.rates = Rates(*(had + new for had, new in zip(self.rates, row, strict=True)))

    def look(self, samples: Iterable[SampleFaults]) -> str:
        """Count more rows; say why the stage has to stop early, or nothing."""
        self.add(samples)
        return self.why()

    def why(self) -> str:
        """Return why the stage must stop early, or nothing."""
        quality, rates = self._quality, self.rates
        if quality is None or rates.rows < quality.first:
            return ""
        parts = (
            over(getattr(rates, name), rates.rows, getattr(quality, name), f"rows {words}")
            for name, words in _PREDICATES.items()
        )
        return "; ".join(part for part in parts if part)


def over(count: int, of: int, most: float, what: str) -> str:
    """Return that a share is above its limit, or nothing."""
    return f"{count} of {of} {what}, more than {most:g}" if of and holds(Fraction(count, of), ">", most) else ""


def why_low(samples: Iterable[SampleFaults], quality: Quality | None) -> str:
    """Return why a stage with these rows must stop early, or nothing."""
    return Tally(quality).look(samples)


def group_size(quality: Quality | None, most: int, rows_per_prompt: int = 1) -> int:
    """Return the prompts of a group of rows, after which the stage looks: as few as the first rows need.

    ``most`` without limits; ``rows_per_prompt`` is the rows of a prompt.
    """
    return most if quality is None else min(most, math.ceil(quality.first / rows_per_prompt))


def of_samples(rows: Iterable[GenerationRow], stops: tuple[str, ...]) -> list[SampleFaults]:
    """Return the faults of the samples of a ``generate`` stage."""
    marks = stops or MARKS
    return [_sample(row.prompt, row.completion, row.truncated, marks) for row in rows]


def of_calls(rows: Iterable[SelfInstructRow]) -> list[SampleFaults]:
    """Return the faults of calls for instructions, without probes: a call without an instruction is empty.

    A list has no length at which it runs away; if it continues, it hits the token limit.
    """
    samples: list[SampleFaults] = []
    for row in rows:
        if row.probe:
            continue
        cut = row.finish == "length"
        listed = parse(row.raw, first=row.first, primed=row.form == "completion", cut=cut)
        empty = not any(value.fate == "candidate" for value in listed)
        samples.append(_sample(row.prompt, row.raw, cut, MARKS)._replace(empty=empty, runaway=False))
    return samples


def of_answers(
    rows: Iterable[SampleResponsesRow], responses_parameters: SampleResponsesParameters
) -> list[SampleFaults]:
    """Return the faults of cleaned answers to instructions."""
    return [
        _sample(row.instruction, row.completion, row.finish == "length", responses_parameters.stops) for row in rows
    ]


def of_candidates(rows: Iterable[CandidateRow], n_parameters: BestOfNParameters) -> list[SampleFaults]:
    """Return the faults of the responses among which the best is searched."""
    return [_sample(row.instruction, row.response, row.finish == "length", n_parameters.stops) for row in rows]


def of_chains(rows: Iterable[RevisionRow]) -> list[SampleFaults]:
    """Return the faults of chains: those of any revision, or an empty or cut critique."""
    samples: list[SampleFaults] = []
    for row in rows:
        parts = [
            _sample(row.instruction, revision_round.revision, revision_round.revision_finish == "length", MARKS)
            for revision_round in row.rounds
        ]
        samples.append(
            SampleFaults(
                parts[-1].words,
                any(sample.empty for sample in parts)
                or any(not revision_round.critique.strip() for revision_round in row.rounds),
                any(sample.runaway for sample in parts),
                any(sample.truncated for sample in parts)
                or any(revision_round.critique_finish == "length" for revision_round in row.rounds),
                any(sample.leaked for sample in parts),
            )
        )
    return samples


def _sample(requested_text: str, text: str, truncated: bool, marks: tuple[str, ...]) -> SampleFaults:
    return SampleFaults(
        words_of(text), not text.strip(), is_runaway(text), truncated, bool(leak_in(text, requested_text, marks))
    )


def kept_of(rows: Sequence[SampleResponsesRow]) -> list[Example]:
    """Return the rows without marks as examples, each answer to an instruction once."""
    examples: dict[tuple[str, str], Example] = {}
    for row in rows:
        if not row.marks:
            examples.setdefault((row.instruction, row.completion), example_of(row, row.instruction, row.completion))
    return list(examples.values())


def example_of(row: SampleResponsesRow | GenerationRow | RevisionRow, prompt: str, completion: str) -> Example:
    """Return what a row holds as an example."""
    return Example(
        item=row.item, group=row.group, kind=row.kind, sample=row.sample, prompt=prompt, completion=completion
    )


def why_broken_off(rows: Sequence[SampleResponsesRow], parameters: SampleResponsesParameters) -> str:
    """Return why the stage must stop early, or nothing."""
    runaway = sum(is_runaway(row.completion) for row in rows)
    ran = len(rows) >= parameters.abort_after and over(runaway, len(rows), parameters.abort_runaway, "answers ran away")
    return ran or why_low(of_answers(rows, parameters), parameters.quality)
