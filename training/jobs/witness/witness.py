"""Read the answers of a job that has ended again, those that its challenge names, with the weights it was granted.

Always transformers in this process, whichever engine wrote the answers: another engine is the stronger witness.
"""

from __future__ import annotations

from importlib import import_module

from specs.stages.registry import STAGE_KINDS
from specs.stages.witness import ROWS
from training.engines.checkpoint import device_of, load
from training.jobs.job import Done, Job
from training.jobs.witness.asked import Asking
from training.jobs.witness.reading import read


def bear_witness(job: Job) -> Done:
    """Write one row for each answer; raises NotAsked, and EncodingFault as the stage does."""
    challenge = job.order.challenge
    assert challenge is not None
    module, _, function = STAGE_KINDS[job.order.kind].asked.partition(":")
    asked_of: Asking = getattr(import_module(module), function)
    model, tokenizer = load(job.inputs["model"])
    asked = asked_of(job, tokenizer, challenge.rows)
    rows, tokens = [], 0
    for row in read(model, tokenizer, asked):
        rows.append(row)
        tokens += row.tokens
        job.progress(len(rows), len(asked), "answers")
    job.write_rows(ROWS, sorted(rows, key=lambda row: (row.row, row.part)))
    return Done(*device_of(model), tokens, {})
