"""Keep the instructions that a single-token A/B critic accepts: good and confident, in both orders of the labels."""

from __future__ import annotations

from specs.stages.critique.parameters import CritiqueInstructionsParameters
from training.jobs.critique.critic_stage import judge_all
from training.jobs.job import Done, Job, run_stage
from training.rules.critique.subjects import of_items
from training.rules.tasks import load_items


def critique_instructions(job: Job) -> Done:
    """Write ``rows`` and ``calibration`` (every log-probability) and ``accepted`` (the items kept, as they came)."""
    parameters = job.parameters
    assert isinstance(parameters, CritiqueInstructionsParameters)
    items = load_items(job.inputs["items"])
    judged = judge_all(job, "instruction", parameters, of_items(items))
    job.write_rows("accepted", [item for item, row in zip(items, judged.rows, strict=True) if row.accepted])
    return judged.done


if __name__ == "__main__":
    run_stage("critique_instructions", critique_instructions)
