"""The pairs of a stage as its files: those that are kept, and where a rule was set those that are not."""

from __future__ import annotations

from specs.stages.critique.parameters import Pairing
from training.jobs.job import Job
from training.rules.critique.pair_selection import Sifted


def write_pairs(job: Job, given: Pairing, pairs: Sifted) -> None:
    """Write ``preferences``, and ``dropped`` where it is among the outputs."""
    job.write_rows("preferences", pairs.kept)
    if given.keeps_dropped:
        job.write_rows("dropped", pairs.dropped)
