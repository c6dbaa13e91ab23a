"""What the two critics share as stages: the labelled sample first, then the subjects in groups that are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from specs.stages.critique.parameters import CriticParameters
from specs.stages.critique.rows import CalibrationRow, CritiqueRow
from specs.stages.rubric import Judges
from training.engines.checkpoint import device_of, load
from training.jobs.critique.critic import Critic
from training.jobs.job import Done, Job
from training.jobs.row_files import GroupedRows
from training.rules.critique.subjects import Subject, Unlabelled, labelled
from training.rules.prompt_encoding import form_of
from training.rules.rubric_prompts import rubric_for
from training.rules.tasks import load_items

GROUP = 256
"""Subjects judged together and written down as a whole. Lengths are sorted within a group."""


class Judged(NamedTuple):
    """All rows of a critic's stage, and what it ran on."""

    rows: list[CritiqueRow]
    calibration: list[CalibrationRow]
    done: Done


def judge_all(job: Job, judges: Judges, parameters: CriticParameters, subjects: Sequence[Subject]) -> Judged:
    """Judge the labelled sample and all subjects; write ``rows`` and ``calibration``."""
    try:
        sample = labelled(load_items(job.inputs["calibration"]), responses=judges == "response")
    except Unlabelled as error:
        raise SystemExit(f"the labelled sample cannot be used: {error}") from error
    form = form_of(job.order.model_kind)
    model, tokenizer = load(job.inputs["model"])
    critic = Critic(model, tokenizer, rubric_for(judges, parameters.rubric), parameters, form)
    calibration = GroupedRows(job.folder / "shards" / "calibration.jsonl", CalibrationRow)
    kept = GroupedRows(job.folder / "shards" / "critiques.jsonl", CritiqueRow)
    groups = [subjects[at : at + GROUP] for at in range(0, len(subjects), GROUP)]
    if not calibration.groups:
        calibration.add(critic.calibrated(sample))
    for number, some in enumerate(groups):
        if number >= len(kept.groups):
            kept.add(critic.critiques(some))
        job.progress(number + 1, len(groups), "groups")
    job.write_rows("rows", kept.rows())
    job.write_rows("calibration", calibration.rows())
    device, dtype = device_of(model)
    facts: dict[str, Any] = critic.facts() | {"subjects": len(subjects), "labelled": len(sample)}
    tokens = sum(one.scores.prompt_tokens for row in kept.rows() for one in (row.plain, row.swapped))
    done = Done(device, dtype, tokens, parameters.model_dump(mode="json"), facts)
    return Judged(kept.rows(), calibration.rows(), done)
