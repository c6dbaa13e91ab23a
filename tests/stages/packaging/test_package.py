"""A package is the checkpoint it was made from, whatever this machine computes in; a witness reads its probes again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specs.jobs.job_records import LEFT, Artifact
from specs.stages.base.artifacts import Item
from specs.stages.packaging.parameters import PackageParameters
from specs.system.digests import digest_file, digest_path
from testing.fixtures.critic_jobs import lines
from testing.fixtures.package_here import packages_answer_here
from testing.fixtures.small_text import small_model
from testing.fixtures.stage_jobs import stage_job
from testing.fixtures.tiny_training import tiny_checkpoint
from testing.fixtures.witnessed_jobs import rewrite, unwritten
from training.engines.checkpoint import load, save
from training.jobs.job import Job
from training.jobs.packaging.package import package
from training.jobs.witness import witness

ITEM = Item(id="i0", group="g0", kind="lowercase", prompt="tell a tale", constraint={})


@pytest.mark.more
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


def packaged(folder: Path, model: Path) -> Job[PackageParameters]:
    """Return the job that packaged a model, its order with the package among what a witness gets."""
    inputs = {"model": model, "items": lines(folder / "items.jsonl", [ITEM, ITEM.model_copy(update={"id": "i1"})])}
    job: Job[PackageParameters] = stage_job(folder, "package", inputs, "instruct", probe_items=2, max_new_tokens=5)
    with packages_answer_here():
        package(job)
    path = job.out / "package"
    packed = Artifact(name="package", path=str(path), digest=digest_path(path), bytes=0)
    job.order = job.order.model_copy(update={"inputs": job.order.inputs | {f"{LEFT}package": packed}})
    return job


def test_a_witness_reads_probes_of_both_and_loads_equal_weights_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = list[str]()

    def counted(folder: Path) -> Any:
        loaded.append(folder.name)
        return load(folder)

    monkeypatch.setattr(witness, "load_for_inference", counted)
    job = packaged(tmp_path / "run", small_model(tmp_path / "model", chat=True))
    assert unwritten(job, folder="first") == set() and len(loaded) == 1
    other = small_model(tmp_path / "other", chat=True, seed=5)
    # The checkpoint is another one than the package: both are loaded, and the answers said to be its own are not.
    assert unwritten(job, other, folder="second") == {0, 1} and loaded[1:] == ["package", "other"]

    def one_token(rows: list[dict[str, Any]]) -> None:
        rows[1]["reloaded"][0] += 1

    rewrite(job, "rows", one_token)
    assert unwritten(job, folder="third") == {1}
