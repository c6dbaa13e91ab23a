"""The job of ``replay_traces`` with a random model: every state answered as asked, and read again by a witness."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specs.stages.traces.rows import TraceAnswer
from specs.system.errors import ExitCode
from testing.factories.trace_evidence import PARAMETERS, transcripts
from testing.fixtures.stage_jobs import stage_job
from testing.fixtures.tiny_training import tiny_checkpoint, write_lines
from testing.fixtures.witnessed_jobs import unwritten
from training.jobs.job import Job, StageResult
from training.jobs.traces.replay_traces import replay_traces
from training.rules.traces.local_replay import pairs_of, states_in

pytestmark = pytest.mark.integration
SMALL = PARAMETERS.model_dump(mode="json") | {
    "max_states": 3,
    "prompt_characters": 500,
    "max_new_tokens": 8,
    "batch_size": 4,
    "temperature": 1.2,
    "top_p": 0.5,
}


def job_of(folder: Path, rows: list[dict[str, Any]] | None = None) -> Job[Any]:
    inputs = {"model": tiny_checkpoint(folder / "model")}
    packed = [item.model_dump(mode="json") for item in transcripts()] if rows is None else rows
    inputs["transcripts"] = write_lines(folder / "transcripts.jsonl", packed)
    return stage_job(folder / "job", "replay_traces", inputs, "instruct", **SMALL)


def rows_in(job: Job[Any]) -> list[TraceAnswer]:
    lines = (job.out / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    return [TraceAnswer.model_validate_json(line) for line in lines]


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Job[Any], StageResult]:
    job = job_of(tmp_path_factory.mktemp("replay"))
    return job, replay_traces(job)


def test_every_state_that_the_seed_draws_is_answered_and_the_pairs_follow(
    answered: tuple[Job[Any], StageResult],
) -> None:
    job, done = answered
    states, rows = states_in(transcripts(), job.parameters), rows_in(job)
    requests = [(item.id, item.prompt) for item in states.items()]
    assert [(row.item, row.prompt) for row in rows[::2]] == requests == [(row.item, row.prompt) for row in rows[1::2]]
    assert len(requests) == 3 and done.facts["records"] == done.facts["records_used"] + sum(
        done.facts["records_skipped"].values()
    )
    lines = [json.loads(line) for line in (job.out / "pairs.jsonl").read_text(encoding="utf-8").splitlines()]
    assert lines == [preference.model_dump(mode="json") for preference in pairs_of(states, rows, job.parameters).pairs]


def test_a_witness_finds_that_these_weights_wrote_the_answers_and_others_did_not(
    answered: tuple[Job[Any], StageResult], tmp_path: Path
) -> None:
    job, _ = answered
    assert unwritten(job) == set()
    assert unwritten(job, tiny_checkpoint(tmp_path / "other", seed=5), "other")


def test_the_seed_decides_what_is_written(answered: tuple[Job[Any], StageResult], tmp_path: Path) -> None:
    again = job_of(tmp_path)
    replay_traces(again)
    assert (again.out / "rows.jsonl").read_bytes() == (answered[0].out / "rows.jsonl").read_bytes()


def test_transcripts_without_an_answer_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"id": "s.jsonl", "group": "s", "kind": "transcript", "prompt": "{}", "constraint": {}}
    with pytest.raises(SystemExit) as ended:
        replay_traces(job_of(tmp_path, [row]))
    assert ended.value.code == int(ExitCode.BLOCKED)
    assert "no answer of a model" in capsys.readouterr().err
