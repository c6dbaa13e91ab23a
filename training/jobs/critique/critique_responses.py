"""Keep the examples whose response a single-token A/B critic accepts: good and confident, in both orders."""

from __future__ import annotations

from specs.stages.artifacts import Example
from specs.stages.critique.parameters import CritiqueResponsesParameters
from training.jobs.critique.critic_stage import judge_all
from training.jobs.job import Done, Job, run_stage
from training.jobs.row_files import read_rows
from training.rules.critique.subjects import of_examples


def critique_responses(job: Job) -> Done:
    """Write ``rows`` and ``calibration`` (every log-probability) and ``accepted`` (the examples kept, as they came)."""
    parameters = job.parameters
    assert isinstance(parameters, CritiqueResponsesParameters)
    examples = read_rows(job.inputs["examples"], Example)
    judged = judge_all(job, "response", parameters, of_examples(examples))
    job.write_rows("accepted", [one for one, row in zip(examples, judged.rows, strict=True) if row.accepted])
    return judged.done


if __name__ == "__main__":
    run_stage("critique_responses", critique_responses)
