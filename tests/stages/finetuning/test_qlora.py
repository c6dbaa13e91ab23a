"""QLoRA for real, on the CPU kernels of bitsandbytes: 4 bits are loaded, trained over, and merged into 16."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from specs.stages.finetuning.parameters import SftParameters
from specs.system.digests import digest_file, digest_tree
from specs.system.extras import install_hint
from testing.fixtures.needed import need
from testing.fixtures.simulated_kill import SimulatedKill
from testing.fixtures.tiny_training import tiny_checkpoint, train
from tests.stages.finetuning.test_training import ADAPTER, dpo_job, judged, sft_job
from training.jobs.finetuning import trained_model
from training.jobs.job import Job

pytestmark = pytest.mark.integration

need("torch", "trl", "peft")

QLORA: dict[str, Any] = ADAPTER | {"method": "qlora", "device": "cpu", "precision": "bfloat16", "learning_rate": 1e-2}


@pytest.fixture
def four_bits() -> None:
    pytest.importorskip("bitsandbytes", reason="bitsandbytes is not installed (the extra 'qlora')")


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


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # 64 weights share a constant, so with fewer in a row no layer would be like one of a larger model.
    return tiny_checkpoint(tmp_path_factory.mktemp("model") / "model", hidden=64)


def job_of(kind: str, folder: Path, model: Path, **parameters: Any) -> Job:
    return (sft_job if kind == "sft" else dpo_job)(folder, model, **QLORA | parameters)


def test_without_bitsandbytes_the_stage_is_refused_with_what_to_install(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trained_model, "find_spec", {}.get)
    with pytest.raises(SystemExit) as caught:
        train(job_of("sft", tmp_path, model))
    assert caught.value.code == 4
    output = capsys.readouterr().err
    assert f"needs the package bitsandbytes, which is not installed: {install_hint('qlora')}" in output


@pytest.mark.usefixtures("four_bits")
def test_the_blocks_are_loaded_in_4_bits_and_nothing_else(model: Path) -> None:
    """Kills: 8 bits, another type of 4 bits, constants that are not quantised again, computing in float32."""
    import torch
    from bitsandbytes.nn import Linear4bit  # pyright: ignore[reportMissingImports, reportUnknownVariableType]

    loaded: Any = trained_model.prepare(model, SftParameters(**QLORA))
    layers: dict[str, Any] = {
        name: module for name, module in loaded.model.named_modules() if isinstance(module, torch.nn.Linear)
    }
    four = {name for name, layer in layers.items() if isinstance(layer, Linear4bit)}
    assert set(layers) - four == {"lm_head"} and len(four) == 14
    for name in four:
        state = layers[name].weight.quant_state
        assert (state.quant_type, state.nested, layers[name].compute_dtype) == ("nf4", True, torch.bfloat16)
        assert layers[name].weight.element_size() * layers[name].weight.numel() * 2 == state.shape.numel()
    others = [parameter for name, parameter in loaded.model.named_parameters() if name.rsplit(".", 1)[0] not in four]
    assert others and {other.dtype for other in others} == {torch.bfloat16}


@pytest.mark.usefixtures("four_bits")
@pytest.mark.parametrize("kind", ["sft", "dpo"])
def test_what_is_trained_over_4_bits_is_kept_in_16(kind: str, tmp_path: Path, model: Path) -> None:
    """Kills: merging into the rounded weights, a layer left out, 4 bits that stay in the configuration."""
    import torch
    from safetensors.torch import load_file

    job = job_of(kind, tmp_path, model)
    done = train(job)
    for name in ("method", "lora_rank", "lora_alpha", "lora_dropout", "target_modules", "precision", "device"):
        granted = QLORA[name]
        assert done.effective[name] == (list(granted) if isinstance(granted, tuple) else granted), name
    # Two of four bits lie in a byte: q_proj 64 x 64 and down_proj 128 -> 64, of rank 4, in two layers.
    assert done.effective["trained_parameters"] == 2 * 4 * (64 + 64 + 128 + 64)
    assert 0.001 < done.facts["quantisation_difference"] < 0.3 and done.facts["merge_difference"] < 0.05
    path = job.out / "checkpoint"
    assert "quantization_config" not in json.loads((path / "config.json").read_text())
    before, after = load_file(model / "model.safetensors"), load_file(path / "model.safetensors")
    adapters = load_file(path / "adapter" / "adapter_model.safetensors")
    assert {tensor.dtype for tensor in after.values()} == {torch.bfloat16}
    moved = {name for name, tensor in after.items() if not tensor.equal(before[name].bfloat16())}
    assert moved == {name for name in before if name.split(".")[-2] in QLORA["target_modules"]} and len(moved) == 4
    for name in moved:
        at = f"base_model.model.{name.removesuffix('.weight')}"
        product = adapters[f"{at}.lora_B.weight"].float() @ adapters[f"{at}.lora_A.weight"].float() * (8 / 4)
        whole = before[name].bfloat16().float() + product
        # bfloat16 keeps 8 bits: a sum is off by at most 2^-8 of the largest weight.
        assert (after[name].float() - whole).abs().max() <= whole.abs().max() / 2**7


@pytest.mark.usefixtures("four_bits")
@pytest.mark.parametrize("kind", ["sft", "dpo"])
def test_checks_pass_on_what_such_a_job_leaves(kind: str, tmp_path: Path, model: Path) -> None:
    job = job_of(kind, tmp_path, model, scheduler="cosine")
    results = judged(tmp_path, job, train(job))
    wrong = {id: text for id, text in results.items() if not text.startswith(("PASS", "NOT_APPLICABLE"))}
    assert set(wrong) <= {"training.starvation", "training.loss", "dpo.learnt"}, wrong
    assert len(results) >= 12


@pytest.mark.usefixtures("four_bits")
def test_such_a_job_that_is_killed_goes_on_and_ends_as_if_it_had_not_been(tmp_path: Path, model: Path) -> None:
    whole = job_of("sft", tmp_path / "whole", model, checkpoint_steps=2)
    train(whole)
    job = job_of("sft", tmp_path / "killed", model, checkpoint_steps=2)
    steps: list[int] = []

    def progress(done: int, *_: Any, **__: Any) -> None:
        steps.append(done)
        if len(steps) == 5:
            raise SimulatedKill

    job.progress = progress  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(SimulatedKill):
        train(job)
    again = Job(job.folder, job.order)
    assert train(again).facts["resumed_from"] == 4
    assert digest_file(again.out / "rows.jsonl") == digest_file(whole.out / "rows.jsonl")
    assert digest_tree(again.out / "checkpoint") == digest_tree(whole.out / "checkpoint")
