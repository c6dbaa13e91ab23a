"""What is wrong with the rows that a stage sampled, counted again as the job did; the rates are declared over it."""

from __future__ import annotations

from typing import NamedTuple

from reviews.evidence.evidence import Evidence
from reviews.evidence.row_lines import Subjects
from reviews.evidence.row_reader import read_rows
from specs.stages.base.sampling import SAMPLED as SAMPLED
from specs.stages.base.sampling import SamplingParameters
from specs.stages.critique.parameters import BestOfNParameters
from specs.stages.critique.rows import CandidateRow, RevisionRow
from specs.stages.generation.parameters import GenerateParameters, SampleResponsesParameters, SelfInstructParameters
from specs.stages.generation.rows import GenerationRow, SampleResponsesRow, SelfInstructRow
from specs.stages.registry import STAGE_KINDS
from training.rules.sampling_quality import (
    SampleFaults,
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


class StageSamples(NamedTuple):
    """The rows of a stage that samples, by what is wrong with them."""

    parameters: SamplingParameters
    samples: list[SampleFaults]
    lines: list[int]
    """The line of each sample in the file of rows, from 1."""
    of: int
    """Lines of that file."""

    def subjects(self) -> Subjects:
        """Return the rows for the rates that are declared over them."""
        sampled_rows, seen_texts = list[SampledRow](), set[tuple[str, ...]]()
        for sample in self.samples:
            sampled_rows.append(
                SampledRow(
                    sample.empty, sample.runaway, sample.leaked, bool(sample.words) and sample.words in seen_texts
                )
            )
            seen_texts.add(sample.words)
        return Subjects(sampled_rows, self.lines, self.of)


def read_stage_samples(evidence: Evidence) -> StageSamples:
    """Return what is wrong with each row that was sampled; errors as :func:`read_rows` and :meth:`Evidence.granted`."""
    contract = evidence.parse_parameters(STAGE_KINDS[evidence.stage.kind].parameters)
    path, what = evidence.outputs.get("rows"), "sampled rows"
    if isinstance(contract, SelfInstructParameters):
        calls = read_rows(path, SelfInstructRow, what)
        work = [line for line, row in enumerate(calls, 1) if row.probe == 0]
        return StageSamples(contract, of_calls(calls), work, len(calls))
    if isinstance(contract, SampleResponsesParameters):
        samples = of_answers(read_rows(path, SampleResponsesRow, what), contract)
    elif isinstance(contract, BestOfNParameters):
        samples = of_candidates(read_rows(path, CandidateRow, what), contract)
    elif isinstance(contract, GenerateParameters):
        samples = of_samples(read_rows(path, GenerationRow, what), contract.stops)
    else:
        assert isinstance(contract, SamplingParameters)
        samples = of_chains(read_rows(path, RevisionRow, what))
    return StageSamples(contract, samples, list(range(1, len(samples) + 1)), len(samples))


def why_broken_off(evidence: Evidence) -> str:
    """Return why the stage was broken off, by its granted limits, if it was; errors as :func:`read_stage_samples`."""
    result = read_stage_samples(evidence)
    return why_low(result.samples, result.parameters.quality)
