"""What is wrong with the rows that a stage sampled, counted again as the job did; the rates are declared over it."""

from __future__ import annotations

from typing import NamedTuple

from reviews.evidence.evidence import Evidence
from reviews.evidence.row_lines import Subjects
from reviews.evidence.row_reader import read_rows
from specs.stages.critique.parameters import BestOfNParameters
from specs.stages.critique.rows import CandidateRow, RevisionRow
from specs.stages.generation.parameters import GenerateParameters, SampleResponsesParameters, SelfInstructParameters
from specs.stages.generation.rows import GenerationRow, SampleResponsesRow, SelfInstructRow
from specs.stages.registry import STAGE_KINDS
from specs.stages.sampling import Sampling
from specs.stages.sampling_metrics import SAMPLED as SAMPLED
from training.rules.sampling_quality import (
    Sample,
    of_answers,
    of_calls,
    of_candidates,
    of_chains,
    of_samples,
    why_low,
)


class SampledRow(NamedTuple):
    """What is wrong with a row."""

    empty: bool
    runaway: bool
    leaked: bool
    repeated: bool
    """It has the words of an earlier row."""


class Sampled(NamedTuple):
    """The rows of a stage that samples, by what is wrong with them."""

    parameters: Sampling
    samples: list[Sample]
    lines: list[int]
    """Of each sample, in the file of rows, from 1."""
    of: int
    """Lines of that file."""

    def subjects(self) -> Subjects:
        """Return the rows for the rates that are declared over them."""
        found, seen = list[SampledRow](), set[tuple[str, ...]]()
        for one in self.samples:
            found.append(SampledRow(one.empty, one.runaway, one.leaked, bool(one.words) and one.words in seen))
            seen.add(one.words)
        return Subjects(found, self.lines, self.of)


def sampled(evidence: Evidence) -> Sampled:
    """Return what is wrong with each row that was sampled; errors as :func:`read_rows` and :meth:`Evidence.granted`."""
    given = evidence.granted(STAGE_KINDS[evidence.stage.kind].parameters)
    path, what = evidence.outputs.get("rows"), "sampled rows"
    if isinstance(given, SelfInstructParameters):
        calls = read_rows(path, SelfInstructRow, what)
        work = [line for line, row in enumerate(calls, 1) if row.probe == 0]
        return Sampled(given, of_calls(calls), work, len(calls))
    if isinstance(given, SampleResponsesParameters):
        samples = of_answers(read_rows(path, SampleResponsesRow, what), given)
    elif isinstance(given, BestOfNParameters):
        samples = of_candidates(read_rows(path, CandidateRow, what), given)
    elif isinstance(given, GenerateParameters):
        samples = of_samples(read_rows(path, GenerationRow, what), given.stops)
    else:
        assert isinstance(given, Sampling)
        samples = of_chains(read_rows(path, RevisionRow, what))
    return Sampled(given, samples, list(range(1, len(samples) + 1)), len(samples))


def why_broken_off(evidence: Evidence) -> str:
    """Say why the stage was broken off, by its granted limits, if it was; errors as :func:`sampled`."""
    found = sampled(evidence)
    return why_low(found.samples, found.parameters.quality)
