"""A package is the checkpoint it was made from, whatever this machine computes in."""

from __future__ import annotations

from pathlib import Path

from specs.digests import digest_file
from specs.stages.artifacts import Item
from specs.stages.packaging.parameters import PackageParameters
from tests.fixtures.critic_jobs import lines
from tests.fixtures.package_here import packages_answer_here
from tests.fixtures.stage_jobs import stage_job
from tests.fixtures.tiny_training import tiny_checkpoint
from training.engines.checkpoint import load, save
from training.jobs.job import Job
from training.jobs.packaging.package import package

ITEM = Item(id="i0", group="g0", kind="lowercase", prompt="tell a tale", constraint={})


def test_weights_of_bfloat16_are_packed_as_they_are_on_a_cpu(tmp_path: Path) -> None:
    import torch

    model, tokenizer = load(tiny_checkpoint(tmp_path / "model"), "cpu", torch.bfloat16)
    checkpoint = tmp_path / "checkpoint"
    save(model, tokenizer, checkpoint)
    (checkpoint / "adapter").mkdir()
    inputs = {"model": checkpoint, "items": lines(tmp_path / "items.jsonl", [ITEM])}
    job: Job[PackageParameters] = stage_job(
        tmp_path / "run", "package", inputs, "instruct", probe_items=1, max_new_tokens=2
    )
    with packages_answer_here():
        package(job)
    packed = {path.name: digest_file(path) for path in (job.out / "package").iterdir()}
    assert packed == {path.name: digest_file(path) for path in checkpoint.iterdir() if path.is_file()}
