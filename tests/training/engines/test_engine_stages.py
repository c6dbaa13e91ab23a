"""Stages with another engine: the same rows, its name read back, and a refusal where it cannot run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from specs.stages.base.artifacts import Item
from specs.stages.base.stage import Kind
from specs.stages.generation.rows import GenerationRow, SampleResponsesRow
from specs.stages.registry import STAGE_KINDS
from testing.fixtures.critic_jobs import CONSTITUTION, instructions, labelled_items, lines, responses
from testing.fixtures.small_text import seed_items, small_model
from testing.fixtures.stage_jobs import stage_job
from tests.conformance.test_engines import NAMES, without_vllm
from training.engines.engine import EngineMissing
from training.jobs.critique import best_of_n, revise
from training.jobs.evaluation import evaluate, multi_turn
from training.jobs.generation import base_model_check, generate, sample_responses, self_instruct
from training.jobs.job import Job, StageResult

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("one_thread")]

WORK: dict[str, Any] = {
    "base_model_check": base_model_check.check_base_model,
    "self_instruct": self_instruct.instruct,
    "sample_responses": sample_responses.respond,
    "revise": revise.revise,
    "best_of_n": best_of_n.prefer,
    "generate": generate.generate,
    "evaluate": evaluate.evaluate,
    "multi_turn": multi_turn.converse,
}


@pytest.fixture(scope="module")
def no_vllm() -> None:
    if not without_vllm():
        pytest.skip("vllm can run here")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("random"))


def talks() -> list[Item]:
    return [
        Item(
            id=f"t{n}",
            group=f"t{n}",
            kind="talk",
            prompt=f"Say {'it ' * n}now.",
            constraint={"turn_2": "And then?", "require_2": "now"},
        )
        for n in range(4)
    ]


def job_of(folder: Path, kind: str, model: Path, **parameters: Any) -> Job:
    """Return a small job of a kind, with the inputs that it reads."""
    data = folder / "data"
    path = lines(data / "items.jsonl", talks() if kind == "multi_turn" else instructions())
    inputs: dict[str, dict[str, Path]] = {
        "base_model_check": {"control": model},
        "self_instruct": {"seeds": lines(data / "seeds.jsonl", seed_items(6))},
        "sample_responses": {"instructions": path},
        "revise": {"examples": lines(data / "examples.jsonl", responses()), "constitution": CONSTITUTION},
        "best_of_n": {
            "prompts": path,
            "judge": model,
            "calibration": lines(data / "labelled.jsonl", labelled_items("comparison")),
        },
        "generate": {"prompts": path},
        "evaluate": {"items": path},
        "multi_turn": {"items": path},
    }
    made: Kind = next(text for text in STAGE_KINDS if text == kind)
    return stage_job(folder, made, {"model": model} | inputs[kind], "base", **parameters)


def rows(job: Job) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (job.out / "rows.jsonl").read_text(encoding="utf-8").splitlines()]


def with_engine(kind: str) -> dict[str, Any]:
    return {} if "repetition_penalty" not in STAGE_KINDS[kind].parameters.model_fields else {"repetition_penalty": 1.0}  # pyright: ignore[reportArgumentType]


SMALL = {"max_new_tokens": 6, "batch_size": 4}


def device_of_engine(name: str) -> dict[str, Any]:
    """Return the device that vLLM has to be given."""
    import torch

    return {"device": "cuda" if torch.cuda.is_available() else "cpu"} if name == "vllm" else {}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["evaluate", "multi_turn"])
def test_greedy_rows_do_not_show_the_engine(tmp_path: Path, model: Path, kind: str, name: str) -> None:
    device = device_of_engine(name)
    ours = job_of(tmp_path / "ours", kind, model, engine=name, **SMALL, **device)
    done: StageResult = WORK[kind](ours)
    assert done.effective["engine"] == name and done.facts["engine"]
    assert name == "batched" or ours.order.parameters["engine"] == name
    theirs = job_of(tmp_path / "theirs", kind, model, **SMALL)
    WORK[kind](theirs)
    assert "engine" not in theirs.order.parameters
    if done.dtype == "float32":
        assert (ours.out / "rows.jsonl").read_bytes() == (theirs.out / "rows.jsonl").read_bytes()
    assert len(rows(ours)) == (4 if kind == "multi_turn" else 6)


@pytest.mark.parametrize("name", [parameter_set for parameter_set in NAMES if parameter_set.values != ("batched",)])
def test_sampled_rows_have_one_schema_and_come_again(tmp_path: Path, model: Path, name: str) -> None:
    device = device_of_engine(name)
    settings = SMALL | {"engine": name, "seed": 5} | device
    jobs = [
        job_of(tmp_path / place, "generate", model, samples_per_prompt=2, worked_example=False, **settings)
        for place in ("one", "two")
    ]
    for job in jobs:
        generate.generate(job)
    generation_rows = [GenerationRow.model_validate(row) for row in rows(jobs[0])]
    assert [(row.item, row.sample) for row in generation_rows] == [
        (f"i{n}", sample) for n in range(6) for sample in range(2)
    ]
    assert len({row.completion for row in generation_rows}) > 6
    if name != "vllm":
        assert rows(jobs[0]) == rows(jobs[1])
    answers = job_of(tmp_path / "answers", "sample_responses", model, **settings, **with_engine("sample_responses"))
    done = sample_responses.respond(answers)
    assert [SampleResponsesRow.model_validate(row).item for row in rows(answers)] == [f"i{n}" for n in range(6)]
    assert done.effective["engine"] == name


@pytest.mark.usefixtures("no_vllm")
@pytest.mark.parametrize("kind", WORK)
def test_every_stage_that_writes_text_runs_in_the_granted_engine_or_not_at_all(
    tmp_path: Path, model: Path, kind: str
) -> None:
    job = job_of(tmp_path, kind, model, engine="vllm", device="cuda")
    with pytest.raises(EngineMissing, match="engine 'vllm' needs an NVIDIA GPU, and torch sees none here"):
        WORK[kind](job)
    assert not list(job.out.iterdir())


def test_no_other_kind_takes_an_engine() -> None:
    # What a task of another library asks is tested with its server (test_completion_server.py); `bench` compares an
    # engine with plain generation, `code_eval` samples as `sample_responses` does, and `replay_traces` writes answers
    # to states as `generate` does, in tests of their own.
    works = set(WORK) | {"inspect", "lm_eval", "bench", "code_eval", "replay_traces"}
    assert {kind for kind, stage_kind in STAGE_KINDS.items() if "engine" in stage_kind.parameters.model_fields} == works


@pytest.mark.more
def test_a_stage_whose_engine_cannot_run_leaves_with_exit_code_4(tmp_path: Path, model: Path) -> None:
    """As a process of its own: refused, told in a line, and no manifest."""
    other = tmp_path / "other"
    other.mkdir()
    for path in model.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    config = json.loads((other / "config.json").read_bytes())
    (other / "config.json").write_text(json.dumps(config | {"architectures": ["UnknownForCausalLM"]}))
    job = job_of(tmp_path / "run" / "jobs" / "small", "evaluate", other, engine="llama", **SMALL)
    (job.folder / "claim").mkdir()
    (job.folder / "claim" / "claim.json").write_text(json.dumps({"key": job.order.key, "pid": os.getpid()}))
    (job.folder / "order.json").write_bytes(job.order.canonical())
    done = subprocess.run(
        [sys.executable, "-P", "-m", "training.jobs", str(job.folder)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 4, done.stderr
    (output,) = [line for line in done.stderr.splitlines() if line.startswith("refused: ")]
    # Where llama-cpp-python is installed, the weights are what it cannot read.
    missing = "needs the package llama_cpp" in output
    assert output.startswith(f"refused: {job.order.key}: engine 'llama' ")
    assert missing or "cannot convert a UnknownForCausalLM" in output
    assert not (job.folder / "manifest.json").exists() and not list(job.out.iterdir())
