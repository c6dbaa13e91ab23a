"""A training that was cut off goes on from its last whole saved step, in the attempt after it, to the same weights."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specs.jobs.job_records import ResumeStep
from specs.stages.finetuning.rows import TrainingRow
from specs.system.digests import digest_file, digest_path
from testing.fixtures.simulated_kill import SimulatedKill
from testing.fixtures.tiny_training import opposites, tiny_checkpoint, training_job, write_lines
from training.jobs.finetuning.sft import sft
from training.jobs.job import Job
from training.jobs.saved_steps import FOLDER, NotTheStep, find_resumable_step, take_over

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]
# Four steps an epoch: the saved steps lie in the middle of one.
SETTINGS: dict[str, Any] = {
    **{"learning_rate": 1e-3, "epochs": 2, "batch_size": 3, "max_length": 128, "seed": 5},
    **{"checkpoint_steps": 3, "scheduler": "cosine", "warmup_ratio": 0.25},
}


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("run")
    tiny_checkpoint(run / "model")
    write_lines(run / "examples.jsonl", opposites())
    return run


@pytest.fixture(scope="module")
def undisturbed(ground: Path) -> Path:
    """Return the folder of a job that no one disturbed."""
    done = job(ground, 1, "whole")
    sft(done)
    return done.folder


@pytest.fixture(scope="module")
def lost(ground: Path) -> Path:
    """Return the folder of a job that was killed in its seventh step of eight."""
    folder = job(ground, 1, "lost")
    with pytest.MonkeyPatch.context() as patched:
        killed_at(patched, 7)
        with pytest.raises(SimulatedKill):
            sft(folder)
    return folder.folder


def killed_at(patched: pytest.MonkeyPatch, step: int) -> None:
    def report(job: Job, done: int, total: int, unit: str, **note: object) -> None:
        if done == step:
            raise SimulatedKill

    patched.setattr(Job, "progress", report)


def job(run: Path, attempt: int, name: str, resumes: ResumeStep | None = None) -> Job:
    made = training_job(run / "jobs" / name, "sft", run / "model", run / "examples.jsonl", **SETTINGS)
    grant = made.order.grant.model_copy(update={"attempt": attempt})
    order = made.order.model_copy(update={"grant": grant, "key": grant.key(), "resumes": resumes})
    return Job(made.folder, order)


def go_on(result: Job) -> tuple[dict[str, Any], Any]:
    """Run a job like ``training.jobs``; return what its manifest says of the resumed step, and all it says."""
    taken = take_over(result.order, result.run, result.folder)
    return taken, sft(result)


def rows(folder: Path) -> list[TrainingRow]:
    text = (folder / "out" / "rows.jsonl").read_text(encoding="utf-8")
    return [TrainingRow.model_validate_json(line) for line in text.splitlines()]


def test_the_attempt_after_a_lost_one_ends_with_the_same_weights(
    ground: Path, undisturbed: Path, lost: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    step = find_resumable_step(ground, lost, 1)
    assert step is not None and (step.step, step.attempt) == (6, 1)
    again = job(ground, 2, "again", step)
    taken, done = go_on(again)
    assert digest_path(again.out / "checkpoint") == digest_path(undisturbed / "out" / "checkpoint")
    assert digest_file(again.out / "rows.jsonl") == digest_file(undisturbed / "out" / "rows.jsonl")
    assert [row.step for row in rows(again.folder)] == list(range(1, 9))
    assert taken == {"resumed": {"attempt": 1, "step": 6, "checkpoint": step.digest}}
    assert done.facts["resumed_from"] == 6
    assert f"resumes from step 6, saved by attempt 1 ({step.digest})" in capsys.readouterr().out
    # What was saved is of no use any more here, and what the lost attempt saved is as it was.
    assert not (again.folder / FOLDER).exists()
    assert find_resumable_step(ground, lost, 1) == step


def test_without_the_state_of_the_optimizer_the_weights_would_be_others(
    ground: Path, undisturbed: Path, lost: Path
) -> None:
    """The comparison can fail: a step that was tampered with leads elsewhere."""
    import torch

    other = ground / "jobs" / "tampered"
    shutil.copytree(lost, other)
    state = other / FOLDER / "checkpoint-6" / "optimizer.pt"
    data = torch.load(state)
    for item in data["state"].values():
        item["exp_avg"].zero_()
    torch.save(data, state)
    # As large as before or not, the table of the step is written anew: this is about the weights.
    from training.jobs.saved_steps import mark

    (state.parent / "whole.json").unlink()
    mark(state.parent)
    step = find_resumable_step(ground, other, 1)
    assert step is not None and step.step == 6
    again = job(ground, 2, "elsewhere", step)
    go_on(again)
    assert digest_path(again.out / "checkpoint") != digest_path(undisturbed / "out" / "checkpoint")


def cut_short(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])


def unmarked(folder: Path) -> None:
    (folder / "whole.json").unlink()


def half_marked(folder: Path) -> None:
    mark = folder / "whole.json"
    mark.write_bytes(mark.read_bytes()[:20])


def without_random_state(folder: Path) -> None:
    (folder / "rng_state.pth").unlink()


@pytest.mark.parametrize("spoil", [cut_short, unmarked, half_marked, without_random_state])
def test_a_half_written_step_is_passed_over_for_the_one_before(
    ground: Path, lost: Path, spoil: Callable[[Path], None]
) -> None:
    half = ground / "jobs" / f"half.{spoil.__name__}"
    shutil.copytree(lost, half)
    spoil(half / FOLDER / "checkpoint-6")
    step = find_resumable_step(ground, half, 1)
    assert step is not None and step.step == 3
    shutil.rmtree(half / FOLDER / "checkpoint-3")
    assert find_resumable_step(ground, half, 1) is None
    shutil.rmtree(half)


def test_from_the_step_before_it_comes_to_the_same_weights(ground: Path, undisturbed: Path, lost: Path) -> None:
    half = ground / "jobs" / "half"
    shutil.copytree(lost, half)
    unmarked(half / FOLDER / "checkpoint-6")
    again = job(ground, 2, "from-three", find_resumable_step(ground, half, 1))
    taken, _ = go_on(again)
    assert taken["resumed"]["step"] == 3
    assert digest_path(again.out / "checkpoint") == digest_path(undisturbed / "out" / "checkpoint")


def test_a_step_that_is_not_the_ordered_one_is_refused(ground: Path, lost: Path) -> None:
    step = find_resumable_step(ground, lost, 1)
    assert step is not None
    for n, wrong in enumerate(
        (
            step.model_copy(update={"digest": f"sha256:{'0' * 64}"}),
            step.model_copy(update={"step": 3}),
            step.model_copy(update={"path": step.path.replace("checkpoint-6", "checkpoint-9")}),
        )
    ):
        result = job(ground, 2, f"refused.{n}", wrong)
        with pytest.raises(NotTheStep, match=r"checkpoint-\d (is|cannot be read)"):
            take_over(result.order, result.run, result.folder)
        assert not (result.folder / FOLDER).exists()
