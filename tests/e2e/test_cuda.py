"""Whole sessions on an NVIDIA GPU, `make -f more.mk test-cuda`: honest ones pass every gate, and lies are stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from bench.flaws.run_many import run_planted_session, twin
from bench.flaws.session import SessionEnd
from bench.flaws.small_specs import CHANGES, tiny_model
from reviews.trail.chain.store import Store
from sessions.jobs.machine_capacity import gpus
from testing.fixtures.command_sessions import SPEC, entries, peergate, write_small_spec

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not gpus(), reason="there is no NVIDIA GPU: `make -f more.mk test-cuda` on a machine with one"),
]

Change = tuple[str, str]
TRAIN = "learning_rate: 1e-4, epochs: 1, batch_size: 4, max_length: 128"
SAMPLES: tuple[Change, ...] = (
    ("samples_per_prompt: 2, temperature", "samples_per_prompt: 4, temperature"),
    ("at_least: 33}   # 16 prompts: out of reach with 2 samples each, so the gate revises", "at_least: 4}"),
)
NOT_SHIPPED: Change = (SPEC[SPEC.index("  - name: ship") :], "")
ADAPTERS = (
    "lora_rank: 16, lora_alpha: 32, lora_dropout: 0.05, "
    "target_modules: [q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]"
)
SFT = {
    "full": "precision: bfloat16, learning_rate: 1e-4",
    "full, small rate, snapshots": "precision: bfloat16, learning_rate: 2e-5, snapshot_steps: 4",
    "full in float32": "precision: float32, learning_rate: 1e-4, snapshot_steps: 4",
    "full, mixed, checkpointing": "precision: mixed, learning_rate: 1e-4, gradient_checkpointing: true",
    "adapters": f"precision: bfloat16, learning_rate: 1e-3, method: lora, {ADAPTERS}",
    "adapters in float32": f"precision: float32, learning_rate: 1e-3, method: lora, {ADAPTERS}",
    "over 4 bits": "precision: bfloat16, learning_rate: 1e-3, method: qlora, "
    f"optimizer_kind: paged_adamw_8bit, {ADAPTERS}",
}
DPO = {
    "full": "precision: bfloat16, learning_rate: 1e-5",
    "full in float32": "precision: float32, learning_rate: 1e-5",
    "adapters": f"precision: bfloat16, learning_rate: 2e-4, method: lora, {ADAPTERS}",
    "over 4 bits": "precision: bfloat16, learning_rate: 2e-4, method: qlora, "
    f"optimizer_kind: paged_adamw_8bit, {ADAPTERS}",
}
CASES = [("sft", name) for name in SFT] + [("dpo", name) for name in DPO]


def _spec(folder: Path, kind: str, name: str) -> Path:
    text = {"sft": SFT, "dpo": DPO}[kind][name]
    train = (TRAIN, f"{text}, device: cuda, warmup_ratio: 0, epochs: 2, batch_size: 4, max_length: 160")
    pairs = CHANGES["dpo"][:1] if kind == "dpo" else ()
    return write_small_spec(folder, train, *SAMPLES, *pairs, *([] if name == "full" else [NOT_SHIPPED]))


def _checks(run: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (key of the packet, check) for every check of every gate."""
    store = Store(run / "store")
    for entry in entries(run, "packet"):
        packet: Any = store.get_value(entry.raw["packet"])
        yield from ((entry.key, check) for check in packet["checks"])


def _read_output(run: Path) -> list[str]:
    return [
        f"{key} {check['id']}: {check['status']}: {check['detail']}"
        for key, check in _checks(run)
        if check["status"] in ("FAIL", "BLOCKED", "ERROR") or check["id"].startswith("witness.")
    ]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_an_honest_session_on_a_gpu_passes_every_gate(tmp_path: Path, kind: str, name: str) -> None:
    if "4 bits" in name and find_spec("bitsandbytes") is None:
        pytest.skip("bitsandbytes is not installed (the extra 'qlora')")
    done = peergate("start", _spec(tmp_path / "spec", kind, name), "--runs", tmp_path / "runs")
    run = tmp_path / "runs" / "small"
    output = "\n".join(_read_output(run))
    print(output)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}{output}"
    outcomes = {entry.raw["outcome"] for entry in entries(run, "decision")}
    assert outcomes == {"approve"}, output
    judged = [(key, check["status"]) for key, check in _checks(run) if check["id"].startswith("witness.")]
    assert judged and {status for _, status in judged} <= {"PASS", "NOT_APPLICABLE"}, output
    devices = {path.parent.name: json.loads(path.read_bytes())["device"] for path in run.glob("jobs/*/manifest.json")}
    assert {device for key, device in devices.items() if ".pairs." not in key} == {"cuda:0"}, devices


FLAWS = (
    *("repaired", "few-repaired", "base-spoiled", "other-weights", "colder", "copied-draws"),
    *("invented-curve", "smoothed-curve", "twice-the-rate", "best-seed", "half-way", "adapter-scaled"),
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flaws")
    tiny_model(folder)
    return folder


@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(900)
def test_lies_of_a_job_on_a_gpu_are_stopped_and_its_healthy_twins_are_not(model: Path) -> None:
    twins: dict[str, SessionEnd] = {session: twin(model, session)[1] for session in ("sft", "lora")}
    assert {name: end.outcome for name, end in twins.items()} == {"sft": "approve", "lora": "approve"}
    for name in FLAWS:
        session = "lora" if name == "adapter-scaled" else "sft"
        assert run_planted_session(model, name, twins[session])["result"] == "stopped", name
    devices = {json.loads(path.read_bytes())["device"] for path in model.glob("**/jobs/*/manifest.json")}
    assert devices == {"cuda:0"}
