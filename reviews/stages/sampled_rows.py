"""What is wrong with the rows that a stage sampled, counted again: the rates that can break a stage off.

They are declared in ``specs/stages/sampling_metrics.py``; what is counted is ``training/rules/sampling_quality.py``,
as in the job.
"""

from __future__ import annotations

from typing import NamedTuple

from reviews.evidence.evidence import Evidence
from reviews.evidence.measured_value import Measured, share
from reviews.evidence.row_reader import read_rows
from specs.errors import EvidenceMissing
from specs.stages.critique.parameters import BestOfNParameters
from specs.stages.critique.rows import CandidateRow, RevisionRow
from specs.stages.generation.parameters import GenerateParameters, SampleResponsesParameters, SelfInstructParameters
from specs.stages.generation.rows import GenerationRow, SampleResponsesRow, SelfInstructRow
from specs.stages.kind import StageKind
from specs.stages.registry import STAGE_KINDS, kind_of
from specs.stages.sampling import Sampling
from specs.stages.sampling_metrics import Counts, SampledMetric
from training.rules.sampling_quality import (
    Sample,
    of_answers,
    of_calls,
    of_candidates,
    of_chains,
    of_samples,
    rates_of,
    why_low,
)


def counted_by(kind: StageKind) -> dict[str, Counts]:
    """Return what each declared rate of a kind counts; what it lacks is measured under an older name."""
    return {one.id: one.counts for one in kind.metrics if isinstance(one, SampledMetric)}


class Sampled(NamedTuple):
    """The rows of a stage that samples, by what is wrong with them."""

    parameters: Sampling
    samples: list[Sample]
    lines: list[int]
    """Of each sample, in the file of rows, from 1."""
    of: int
    """Lines of that file."""


def sampled(evidence: Evidence) -> Sampled:
    """Return what is wrong with each row that was sampled.

    Raises:
        EvidenceMissing: the rows are absent or unreadable, or the order of the attempt is not on record.
    """
    if not evidence.parameters:
        raise EvidenceMissing("the order of the attempt is not on record")
    given = STAGE_KINDS[evidence.stage.kind].parameters.model_validate(evidence.parameters)
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


def measure_sampled(evidence: Evidence) -> dict[str, Measured]:
    """Return the rates of a stage that samples.

    Raises:
        EvidenceMissing: as :func:`sampled`, or nothing was sampled.
    """
    rates = rates_of(sampled(evidence).samples)
    if not rates.rows:
        raise EvidenceMissing("nothing was sampled", where="sampled rows")
    return {id: share(getattr(rates, what), rates.rows) for id, what in counted_by(kind_of(evidence.stage)).items()}


def why_broken_off(evidence: Evidence) -> str:
    """Say why the stage was broken off, by the limits it was granted; nothing where it was not.

    Raises:
        EvidenceMissing: as :func:`sampled`.
    """
    found = sampled(evidence)
    return why_low(found.samples, found.parameters.quality)


def lines_of(evidence: Evidence, metric: str) -> tuple[list[int], Sampled]:
    """Return the lines that a metric of :func:`counted_by` counts.

    Raises:
        EvidenceMissing: as :func:`sampled`.
    """
    found, what = sampled(evidence), counted_by(kind_of(evidence.stage))[metric]
    seen, lines = set[tuple[str, ...]](), list[int]()
    for line, one in zip(found.lines, found.samples, strict=True):
        if (bool(one.words) and one.words in seen) if what == "repeated" else getattr(one, what):
            lines.append(line)
        seen.add(one.words)
    return lines, found
