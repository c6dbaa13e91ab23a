"""Adapters of a model of 4 bits are merged on the CPU, with nothing of the training left next to the second copy."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from specs.stages.base.stage import Kind
from testing.fixtures.needed import need
from testing.fixtures.tiny_training import opposites, preferred, tiny_checkpoint, training_job, write_lines
from training.jobs.job import Job, StageResult

pytestmark = pytest.mark.integration

need("torch", "trl", "peft")

ADAPTER: dict[str, Any] = {
    "method": "lora",
    "lora_rank": 4,
    "lora_alpha": 8,
    "lora_dropout": 0.1,
    "target_modules": ("q_proj", "down_proj"),
    "epochs": 1,
    "batch_size": 4,
    "learning_rate": 1e-2,
    "warmup_ratio": 0.0,
    "max_length": 128,
    "seed": 3,
}


class Loaded(NamedTuple):
    """What was the case when the second copy was read."""

    alive: tuple[str, ...]
    """What of the training still lived."""
    devices: frozenset[str]
    """Where the second copy with its adapters is."""


@pytest.fixture(autouse=True)
def quiet_and_on_one_thread() -> Iterator[None]:
    import warnings

    import torch

    # The stages run in processes of their own, where a warning of a library is a line in the log.
    warnings.simplefilter("ignore")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_checkpoint(tmp_path / "model")


def job_of(kind: Any, folder: Path, model: Path) -> Job:
    rows = opposites(8) if kind == "sft" else preferred(8)
    return training_job(folder / "job", kind, model, write_lines(folder / "data.jsonl", rows), **ADAPTER)


def run(job: Job) -> StageResult:
    from training.jobs.finetuning.dpo import dpo
    from training.jobs.finetuning.sft import sft

    return (sft if job.order.kind == "sft" else dpo)(job)


def as_of_4_bits(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> list[Loaded]:
    """Have the trained model be one of 4 bits on a GPU, rounding included; returns what is seen at the second load.

    bitsandbytes needs no part in this: what the saving asks is the flag, and where the second copy goes.
    """
    import importlib

    import peft.peft_model
    import torch

    from training.jobs.finetuning import adapter_merge as merging

    stage = importlib.import_module(f"training.jobs.finetuning.{kind}")
    references: dict[str, weakref.ref[Any]] = {}
    seen: list[Loaded] = []
    prepared: list[Any] = []
    prepare, train, read_again = stage.prepare, stage.train, merging.read_again

    def prepares(*values: Any) -> Any:
        prepared.append(prepare(*values))
        return prepared[-1]

    def trains(trainer: Any, folder: Path) -> None:
        train(trainer, folder)
        base = trainer.model.get_base_model()
        with torch.no_grad():
            for weight in (parameter for parameter in base.parameters() if not parameter.requires_grad):
                weight.copy_((weight * 64).round() / 64)
        base.is_loaded_in_4bit = True
        prepared[-1].device = "cuda:0"
        references.update(
            model=weakref.ref(base),
            weights=weakref.ref(next(base.parameters())),
            optimizer=weakref.ref(trainer.optimizer),
            adapters=weakref.ref(next(parameter for parameter in base.parameters() if parameter.requires_grad)),
        )

    def reads(*values: Any) -> Any:
        alive = tuple(name for name, reference in references.items() if reference() is not None)
        whole = read_again(*values)
        places = frozenset(str(parameter.device) for parameter in (*whole.parameters(), *whole.buffers()))
        seen.append(Loaded(alive, places))
        return whole

    monkeypatch.setattr(stage, "prepare", prepares)
    monkeypatch.setattr(stage, "train", trains)
    monkeypatch.setattr(merging, "read_again", reads)
    # Where a GPU is, this is what peft takes without being told.
    monkeypatch.setattr(peft.peft_model, "infer_device", lambda: "meta")
    return seen


@pytest.mark.parametrize("kind", ["sft", pytest.param("dpo", marks=pytest.mark.slow)])
def test_nothing_of_the_training_lives_when_the_second_copy_is_read_on_the_cpu(
    kind: Kind, tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from training.engines.checkpoint import load

    seen = as_of_4_bits(kind, monkeypatch)
    job = job_of(kind, tmp_path, model)
    done = run(job)
    assert seen == [Loaded((), frozenset({"cpu"}))]
    assert done.device == "cpu" and done.facts["quantisation_difference"] > 0 and done.facts["merge_difference"] < 0.1
    saved: Any = load(job.out / "checkpoint")[0]
    began: Any = load(model)[0]
    before = dict(began.named_parameters())
    changed = {
        name for name, parameter in saved.named_parameters() if not parameter.equal(before[name].bfloat16().float())
    }
    assert changed and all(name.split(".")[-2] in ("q_proj", "down_proj") for name in changed)


def test_without_the_release_all_of_it_would_live(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from training.jobs.finetuning import adapter_merge as merging

    seen = as_of_4_bits("sft", monkeypatch)

    def keeps(*_: Any) -> None:
        """Give up nothing."""

    monkeypatch.setattr(merging, "release", keeps)
    run(job_of("sft", tmp_path, model))
    assert seen[0].alive == ("model", "weights", "optimizer", "adapters")


def test_the_packaged_model_is_given_up_before_it_is_loaded_again(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import subprocess

    from testing.fixtures.critic_jobs import instructions, lines
    from testing.fixtures.stage_jobs import stage_job
    from training.jobs.packaging import package as stage

    references: list[weakref.ref[Any]] = []
    alive: list[bool] = []
    load = stage.load

    def loads(folder: Path) -> Any:
        loaded = load(folder)
        references.append(weakref.ref(loaded[0]))
        return loaded

    def runs(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        # In this process: what another one holds would not show here.
        alive.append(references[0]() is not None)
        stage.main(command[4:])
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(stage, "load", loads)
    monkeypatch.setattr(stage.subprocess, "run", runs)
    inputs = {"model": model, "items": lines(tmp_path / "items.jsonl", instructions(2))}
    done = stage.package(stage_job(tmp_path, "package", inputs, "instruct", probe_items=2, max_new_tokens=3))
    assert alive == [False] and done.device == "cpu"
    # The fault itself: with one more name for the model it would have lived.
    keep: list[Any] = []

    def keeps(folder: Path) -> Any:
        keep.append(loads(folder))
        return keep[-1]

    monkeypatch.setattr(stage, "load", keeps)
    references.clear()
    stage.package(stage_job(tmp_path / "again", "package", inputs, "instruct", probe_items=2, max_new_tokens=3))
    assert alive == [False, True]
