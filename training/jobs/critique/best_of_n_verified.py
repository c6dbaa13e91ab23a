"""Pair samples that the task's verifier accepts with refused samples of the same prompt. Needs no model.

The samples come from a ``generate`` stage, which may have shown a worked example; pairs carry the bare prompt.
"""

from __future__ import annotations

import os

from specs.stages.critique.parameters import BestOfNVerifiedParameters, Pairing
from specs.stages.generation.rows import GenerationRow
from training.jobs.job import Job, StageResult
from training.jobs.row_files import read_rows
from training.rules.critique.pair_selection import PairSelection
from training.rules.critique.preference_pairs import NotTheirs, verdicts, verified_pairs
from training.rules.tasks import load_items


def prefer_verified(job: Job[BestOfNVerifiedParameters]) -> StageResult:
    """Write ``rows`` (the verifier's verdict on each sample) and ``preferences``."""
    items = load_items(job.inputs["prompts"])
    samples = read_rows(job.inputs["samples"], GenerationRow)
    try:
        rows = verdicts(job.order.task, items, samples)
    except NotTheirs as error:
        raise SystemExit(f"the samples cannot be used: {error}") from error
    pairs = verified_pairs(samples, rows, job.parameters)
    job.write_rows("rows", rows)
    write_pairs(job, job.parameters, pairs)
    job.progress(len(rows), len(rows), "samples")
    return StageResult(
        device="cpu",
        dtype="not stated",
        tokens=0,
        effective=job.parameters.model_dump(mode="json"),
        facts={"samples": len(samples), "pairs": len(pairs.pairs), "dropped": pairs.reasons()},
        threads=os.cpu_count() or 1,
    )


def write_pairs(job: Job, pairing: Pairing, pairs: PairSelection) -> None:
    """Write ``preferences``, and ``dropped`` if it is among the outputs."""
    job.write_rows("preferences", pairs.pairs)
    if pairing.keeps_dropped:
        job.write_rows("dropped", pairs.dropped)
