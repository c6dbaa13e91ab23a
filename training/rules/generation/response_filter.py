"""Which answers are kept: whole, clean, in scope, each once. Pure: the measurer calls it too."""

from __future__ import annotations

from collections.abc import Sequence

from specs.stages.artifacts import Example
from specs.stages.generation.parameters import SampleResponsesParameters
from specs.stages.generation.rows import SampleResponsesRow
from training.rules.cleaning import is_runaway
from training.rules.sampling_quality import of_answers, over, why_low


def kept_of(rows: Sequence[SampleResponsesRow]) -> list[Example]:
    """Return the rows without marks as examples; an answer that was written again to the same instruction once."""
    found: dict[tuple[str, str], Example] = {}
    for row in rows:
        if row.marks:
            continue
        example = Example(
            item=row.item,
            group=row.group,
            kind=row.kind,
            sample=row.sample,
            prompt=row.instruction,
            completion=row.completion,
        )
        found.setdefault((row.instruction, row.completion), example)
    return list(found.values())


def why_broken_off(rows: Sequence[SampleResponsesRow], parameters: SampleResponsesParameters) -> str:
    """Say why the stage has to be broken off; nothing where it may go on."""
    runaway = sum(is_runaway(row.completion) for row in rows)
    ran = len(rows) >= parameters.abort_after and over(runaway, len(rows), parameters.abort_runaway, "answers ran away")
    return ran or why_low(of_answers(rows, parameters), parameters.quality)
