"""Pair samples that the task's verifier accepts with samples of the same prompt that it refuses. Needs no model.

The samples are those of a ``generate`` stage, which may have shown a worked example; pairs carry the bare prompt.
"""

from __future__ import annotations

import os

from specs.stages.critique.parameters import BestOfNVerifiedParameters
from specs.stages.generation.rows import GenerationRow
from training.jobs.critique.pair_files import write_pairs
from training.jobs.job import Done, Job, run_stage
from training.jobs.row_files import read_rows
from training.rules.critique.verified_pairs import NotTheirs, verdicts, verified_pairs
from training.rules.tasks import load_items


def prefer_verified(job: Job) -> Done:
    """Write ``rows`` (what the verifier says of each sample) and ``preferences``."""
    parameters = job.parameters
    assert isinstance(parameters, BestOfNVerifiedParameters)
    items = load_items(job.inputs["prompts"])
    samples = read_rows(job.inputs["samples"], GenerationRow)
    try:
        rows = verdicts(job.order.task, items, samples)
    except NotTheirs as error:
        raise SystemExit(f"the samples cannot be used: {error}") from error
    pairs = verified_pairs(samples, rows, parameters)
    job.write_rows("rows", rows)
    write_pairs(job, parameters, pairs)
    job.progress(len(rows), len(rows), "samples")
    return Done(
        device="cpu",
        dtype="not stated",
        tokens=0,
        effective=parameters.model_dump(mode="json"),
        facts={"samples": len(samples), "pairs": len(pairs.kept), "dropped": pairs.reasons()},
        threads=os.cpu_count() or 1,
    )


if __name__ == "__main__":
    run_stage("best_of_n_verified", prefer_verified, uses_torch=False)
