"""A session whose training is done by two replicas, one of them killed, beside the same one in a single process."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from reviews.trail.store import Store
from specs.job_records import Manifest
from specs.stages.finetuning.distributed import ReplicaRound
from tests.e2e.sessions import entries, peergate, verify
from tests.fixtures.needed import need
from tests.fixtures.tiny_training import opposites, tiny_checkpoint, write_lines

need("torch", "trl", "peft", "torchft")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
HELDOUT = Path(__file__).parents[2] / "specs" / "library" / "data" / "format_heldout.jsonl"
SPEC = """\
schema_version: 1
name: NAME
objective: See whether replicas that synchronise rarely teach what one process teaches.
task: format_instructions
seed: 3
model: {source: "path:model", kind: instruct}
heldout: {path: heldout.jsonl}
data:
  lessons: {path: lessons.jsonl, as: examples}
thresholds: {items_per_kind: 1, parameters_per_token: 1000}
analysis: {minimum_effect: 0.4, expected_lost: 0.01, power: 0.5}
stages:
  - name: train
    kind: sft
    inputs: {model: model, examples: data.lessons}
    parameters:
      learning_rate: 1e-2
      epochs: 4
      batch_size: SIZE
      max_length: 96
      method: lora
      lora_rank: 4
      lora_alpha: 8
      lora_dropout: 0.0
      target_modules: [q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]
    gate: {criteria: [{metric: loss_drop, at_least: 0.1}]}
  - name: before
    kind: evaluate
    inputs: {model: model, items: heldout}
  - name: after
    kind: evaluate
    inputs: {model: train.checkpoint, items: heldout}
"""
TWO = "      distributed: {replicas: 2, sync_every: 4, outer: {lr: 0.7, momentum: 0.5}}\n"


def _spec(folder: Path, name: str, size: int, more: str = "") -> Path:
    text = (
        SPEC.replace("NAME", name)
        .replace("SIZE", str(size))
        .replace("      method: lora\n", f"      method: lora\n{more}")
    )
    path = folder / f"{name}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def _kill_the_second(run: Path, killed: list[int]) -> None:
    """Kill replica 1 of the training once it has synchronised."""
    job = run / "jobs" / f"{run.name}.train.1"
    first = job / "replicas" / "1" / "rounds" / "1.json"
    for _ in range(9000):
        if first.is_file():
            break
        time.sleep(0.02)
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "training.jobs.finetuning.replicas" in words and words[4:6] == [str(job), "1"]:
            process.kill()
            killed.append(process.pid)


def _decision(run: Path) -> dict[str, Any]:
    return next(one.body for one in entries(run, "decision") if one.body.get("stage") == "train")


def test_two_replicas_one_killed_reach_the_decision_of_one_process(tmp_path: Path) -> None:
    tiny_checkpoint(tmp_path / "model")
    write_lines(tmp_path / "lessons.jsonl", opposites(48))
    lines = HELDOUT.read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "heldout.jsonl").write_text("".join(lines[::7]), encoding="utf-8")
    runs = tmp_path / "runs"
    killed: list[int] = []
    watch = threading.Thread(target=_kill_the_second, args=(runs / "two", killed), daemon=True)
    watch.start()
    # The later gates are of no interest: a random model has nothing to answer.
    two = peergate("start", _spec(tmp_path, "two", 2, TWO), "--runs", runs)
    one = peergate("start", _spec(tmp_path, "one", 4), "--runs", runs)
    assert killed, two.stderr + two.stdout
    decisions = [_decision(runs / name) for name in ("one", "two")]
    assert [one["outcome"] for one in decisions] == ["approve", "approve"], (decisions, one.stderr, two.stderr)
    store = Store(runs / "two" / "store")
    ended = next(one.body for one in entries(runs / "two", "exit") if one.body["stage"] == "train")
    manifest = Manifest.model_validate_json(store.get(ended["manifest"]))
    starts = [one for one in manifest.facts["starts"] if one["replica"] == 1]
    assert starts[1]["why"] == "was ended by SIGKILL" and starts[1]["step"] >= 4
    rows = [
        ReplicaRound.model_validate(json.loads(line))
        for line in store.get(ended["outputs"]["replicas"]["digest"]).splitlines()
    ]
    assert {row.process for row in rows if row.replica == 1} >= {1, 2}
    assert len({row.after for row in rows}) == max(row.sync for row in rows)
    checks = next(one.body for one in entries(runs / "two", "checks") if one.body.get("stage") == "train")
    assert "replicas.equal" in json.dumps(checks) or store
    code, _ = verify(runs / "two")
    assert code in (0, 2)
