"""A stage is held to the device it was granted: refused where torch finds no GPU, and read back where it ran."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specs.stages.registry import STAGE_KINDS
from testing.factories.evidence_on_disk import evidence_of, with_manifest
from testing.factories.judged_evidence import results_of
from training.jobs import job
from training.jobs.job import StageResult


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="torch is not installed")


def test_every_kind_that_loads_a_model_has_a_device() -> None:
    for kind, declared in STAGE_KINDS.items():
        # An export reads tensors and writes them, on the CPU.
        loads = "checkpoint" in declared.inputs.values() and kind != "export"
        assert ("device" in declared.parameters.model_fields) is loads, kind
        if loads:
            # Left out where it is not granted: older registrations stay the same.
            needed = {name: "x" * 10 for name, field in declared.parameters.model_fields.items() if field.is_required()}
            assert "device" not in declared.parameters(**needed).model_dump()


@pytest.mark.parametrize("device", ["auto", "cpu"])
def test_without_a_gpu_nothing_else_is_refused(device: str, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    job.place(device)
    # On the CPU a GPU is hidden, so that no library takes it.
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ("" if device == "cpu" else "0")


def test_a_granted_gpu_that_torch_does_not_find_is_refused(
    torch: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as caught:
        job.place("cuda")
    assert caught.value.code == 4
    assert capsys.readouterr().err == (
        "refused: device: cuda was granted, but torch finds no NVIDIA GPU on this machine; "
        "the CPU is not used instead\n"
    )
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    job.place("cuda")


def test_the_gate_compares_where_it_ran_with_where_it_had_to(tmp_path: Path) -> None:
    granted = {"batch_size": 4, "device": "cuda"}
    echoed = {"batch_size": 4, "device": "cuda"}
    assert job.read_back(granted, StageResult("cpu", "float32", 0, echoed))["device"] == "cpu"
    assert job.read_back(granted, StageResult("cuda:0", "bfloat16", 0, echoed))["device"] == "cuda"
    assert "device" not in job.read_back({"batch_size": 4}, StageResult("cpu", "float32", 0, {"batch_size": 4}))
    evidence = evidence_of(tmp_path, "base")
    result = replace(evidence, parameters=evidence.parameters | {"device": "cuda"})
    for text, status in (("cuda", "PASS"), ("cpu", "FAIL")):
        judged = results_of(with_manifest(result, effective={"device": text}))["jobs.effective"]
        assert judged.status == status, judged.detail
    assert judged.detail == "the job ran with device cpu instead of cuda"
