"""Stages that sample, on a tiny model that cannot end what it writes: broken off at the first rows, and again there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reviews.gate.check_list import run_checks
from specs.stages.base.stage import Kind
from specs.stages.registry import outputs_of
from testing.factories.bound_evidence import bound
from testing.factories.critic_evidence import STAGES
from testing.factories.evidence_on_disk import evidence_of, prompt_items
from testing.fixtures.critic_jobs import CONSTITUTION, labelled_items, lines, lively_checkpoint, responses
from testing.fixtures.stage_jobs import stage_job
from training.jobs.critique import best_of_n, revise
from training.jobs.generation import generate
from training.jobs.job import Job, StageResult

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("one_thread")]

WORK: dict[Kind, Callable[[Job], StageResult]] = {
    "generate": generate.generate,
    "revise": revise.revise,
    "best_of_n": best_of_n.prefer,
}
RUBRIC = {
    "judges": "comparison",
    "good": "A is better",
    "bad": "B is better",
    "head": "Compare these two.\n{options}",
    "item": "I: {instruction}\n1: {first}\n2: {second}\nLabel:",
}
# One token is too few for an answer: every row is cut, or empty where the token begins a stop string.
CUT: dict[Kind, dict[str, Any]] = {
    "generate": {"samples_per_prompt": 2, "max_new_tokens": 1, "batch_size": 2, "worked_example": False},
    "revise": {"critique_tokens": 1, "revision_tokens": 1},
    "best_of_n": {"samples": 2, "max_new_tokens": 1, "shots": [], "rubric": RUBRIC, "seed": 3},
}
ROWS: dict[Kind, tuple[int, int]] = {"generate": (4, 10), "revise": (3, 6), "best_of_n": (4, 10)}
"""Rows until the stage can be broken off (three of them, in whole groups), and rows without limits."""
TOLD: dict[Kind, str] = {
    "generate": "hit the token limit, more than 0.5",
    "revise": "are empty, more than 0.3",
    "best_of_n": "hit the token limit, more than 0.5",
}
FILES: dict[Kind, str] = {"generate": "samples.jsonl", "revise": "chains.jsonl", "best_of_n": "candidates.jsonl"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lively_checkpoint(tmp_path_factory.mktemp("tiny"), seed=5)


def job_of(folder: Path, kind: Kind, model: Path, **changes: Any) -> Job:
    data, inputs = folder / "data", {"model": model}
    if kind == "revise":
        inputs |= {"examples": lines(data / "examples.jsonl", responses()), "constitution": CONSTITUTION}
    else:
        inputs["prompts"] = lines(data / "prompts.jsonl", list(prompt_items()))
    if kind == "best_of_n":
        inputs |= {"judge": model, "calibration": lines(data / "labelled.jsonl", labelled_items("comparison"))}
    return stage_job(folder / "job", kind, inputs, "base", **(CUT[kind] | changes))


def rows_of(job: Job) -> list[bytes]:
    return (job.out / "rows.jsonl").read_bytes().splitlines()


LIMITS = {"quality": {"first": 3, "truncated": 0.5}}


@pytest.mark.parametrize("kind", WORK)
def test_rows_that_are_no_good_end_the_stage_at_the_first_ones(tmp_path: Path, model: Path, kind: Kind) -> None:
    first, every = ROWS[kind]
    free = job_of(tmp_path / "free", kind, model)
    assert "broken_off" not in WORK[kind](free).facts and len(rows_of(free)) == every
    job = job_of(tmp_path / "limited", kind, model, **LIMITS)
    done = WORK[kind](job)
    assert len(rows_of(job)) == first
    assert done.facts["broken_off"] == f"{first} of {first} rows {TOLD[kind]}"
    # Limits that are not passed break nothing off, and the rows begin as those of the stage that ended early.
    healthy = job_of(tmp_path / "healthy", kind, model, quality={"first": 3, "truncated": 1, "repeated": 1, "empty": 1})
    assert "broken_off" not in WORK[kind](healthy).facts and len(rows_of(healthy)) == every
    assert rows_of(healthy)[:1] == rows_of(job)[:1]


@pytest.mark.parametrize("kind", WORK)
def test_a_stage_that_was_killed_is_broken_off_again_at_the_same_row(tmp_path: Path, model: Path, kind: Kind) -> None:
    whole = job_of(tmp_path / "whole", kind, model, **LIMITS)
    broken_off = WORK[kind](whole).facts["broken_off"]
    content = (whole.folder / "shards" / FILES[kind]).read_bytes()
    for name, chunk in (("in a group", content[:-20]), ("after the last group", content)):
        job = job_of(tmp_path / name, kind, model, **LIMITS)
        shards = job.folder / "shards"
        shards.mkdir()
        (shards / FILES[kind]).write_bytes(chunk)
        assert WORK[kind](job).facts["broken_off"] == broken_off
        for output in outputs_of(kind, job.parameters):
            assert (job.out / f"{output}.jsonl").read_bytes() == (whole.out / f"{output}.jsonl").read_bytes()


@pytest.mark.parametrize("kind", ["revise", "best_of_n"])
def test_the_gate_of_a_stage_that_was_broken_off_is_closed(tmp_path: Path, model: Path, kind: Kind) -> None:
    job = job_of(tmp_path, kind, model, **LIMITS)
    WORK[kind](job)
    outputs = {name: job.out / f"{name}.jsonl" for name in outputs_of(kind, job.parameters)}
    (tmp_path / "gate").mkdir()
    stage = STAGES[kind].model_copy(update={"parameters": job.parameters})
    checks = {
        check.id: check
        for check in run_checks(bound(evidence_of(tmp_path / "gate", "base"), stage, dict(job.inputs), outputs), None)
    }
    assert checks["text.finished"].status == "FAIL" and TOLD[kind] in checks["text.finished"].detail
