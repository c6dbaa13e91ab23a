"""A session whose training is done by two replicas, one of them killed, next to the same one in a single process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from reviews.trail.chain.store import Store
from sessions.pods.pod_record import place_of
from sessions.pods.pull import verify as pod_copy
from specs.stages.finetuning.distributed import ReplicaRound
from testing.fixtures import ray_cluster
from testing.fixtures.command_sessions import called, entries, start_in_background, verify, wait_for
from testing.fixtures.needed import need
from testing.fixtures.sshd_pod import MISSING, pod
from testing.fixtures.sshd_quick import peergate as on_pod
from testing.fixtures.sshd_quick import write_pod_file
from testing.fixtures.tiny_training import opposites, tiny_checkpoint, write_lines

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
    max_minutes: 60
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
    max_minutes: 60
    inputs: {model: model, items: heldout}
  - name: after
    kind: evaluate
    max_minutes: 60
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


def _first_round(run: Path) -> Path:
    return run / "jobs" / f"{run.name}.train.1" / "replicas" / "1" / "rounds" / "1.json"


def _kill_the_second(run: Path, killed: list[int]) -> None:
    """Kill replica 1 of the training once it has synchronised."""
    first = _first_round(run)
    for _ in range(9000):
        if first.is_file():
            break
        time.sleep(0.02)
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "training.jobs.finetuning.replicas" in words and words[4:6] == [str(first.parents[3]), "1"]:
            process.kill()
            killed.append(process.pid)


def _decisions(run: Path) -> list[dict[str, Any]]:
    if not (run / "trail.sqlite").is_file():
        return []
    return [entry.raw for entry in entries(run, "decision") if entry.raw.get("stage") == "train"]


def _decided(spec: Path, runs: Path, *more: str) -> dict[str, Any]:
    """Run a session until its training is judged, and end it: a random model has nothing to answer later."""
    process = start_in_background("start", spec, "--runs", runs, *more)
    wait_for(lambda: bool(_decisions(runs / spec.stem)) or process.poll() is not None, 900)
    results = _decisions(runs / spec.stem)
    process.send_signal(signal.SIGINT)
    process.wait(300)
    called("cancel", spec.stem, "--runs", runs)
    assert results, "the session ended before its training was judged"
    return results[0]


def _inputs(folder: Path) -> None:
    tiny_checkpoint(folder / "model")
    write_lines(folder / "lessons.jsonl", opposites(48))
    lines = HELDOUT.read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "heldout.jsonl").write_text("".join(lines[::7]), encoding="utf-8")


@pytest.mark.nightly
def test_replicas_are_where_ray_starts_their_job(tmp_path: Path) -> None:
    if missing := ray_cluster.missing():
        pytest.skip(missing)
    _inputs(tmp_path)
    runs = tmp_path / "runs"
    spec = _spec(tmp_path, "two", 2, TWO)
    budget = "budget: {max_cost_usd: 20, machine_usd_per_hour: 2.5}\n"
    spec.write_text(spec.read_text(encoding="utf-8") + budget, encoding="utf-8")
    decided = _decided(spec, runs, "--launcher", "ray")
    assert decided["outcome"] == "approve", _checks(runs / "two")
    assert {entry.raw["launcher"] for entry in entries(runs / "two", "launch")} == {"ray"}
    results = {check["id"]: check["status"] for check in _checks(runs / "two")}
    assert {results[id] for id in results if id.startswith("replicas.") and id != "replicas.single"} == {"PASS"}
    assert {row.replica for row in _rows(runs / "two")} == {0, 1}


@pytest.mark.timeout(5400)
@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_a_session_with_replicas_is_pulled_from_a_pod_after_a_cut_and_a_kill(tmp_path: Path) -> None:
    _inputs(tmp_path)
    spec, own = _spec(tmp_path, "two", 2, TWO), ("--pods", tmp_path / "pods")
    with pod(tmp_path / "pod") as machine:
        there = machine.seen / "runs" / "two"
        for words in (("up", spec, "--pod", write_pod_file(tmp_path, machine, sys.executable)), ("start", "two")):
            done = on_pod("pod", *words, *own)
            assert done.returncode == 0, done.stdout + done.stderr
        log = tmp_path / "attach.log"
        with log.open("wb") as file:
            words = [sys.executable, "-u", "-m", "sessions.commands.cli", "pod", "attach", "two", *map(str, own)]
            attached = subprocess.Popen(words, stdout=file, stderr=file, stdin=subprocess.DEVNULL)
        try:
            wait_for(lambda: _first_round(there).is_file(), 2400)
            (second,) = (process for process in machine.processes("finetuning.replicas") if process.cmdline()[5] == "1")
            assert machine.cut() >= 1
            second.kill()
            attached.wait(2700)
        finally:
            attached.kill()
            attached.wait()
        text = log.read_text(encoding="utf-8")
        # A random model has nothing to answer to the next stage.
        assert "trying again" in text and "it waits for a person" in text, text[-3000:]
        done = on_pod("pod", "start", "two", "--answer", "stop", "--reason", "the model is random", *own)
        assert done.returncode == 0, done.stderr
        assert "two: closed" in on_pod("pod", "attach", "two", *own).stdout
        place = place_of(tmp_path / "pods", "two")
        assert _decisions(place.run)[0]["outcome"] == "approve", _checks(place.run)
        results = {check["id"]: check for check in _checks(place.run)}
        assert "replica 1 was ended by SIGKILL, again from step" in results["replicas.quorum"]["detail"]
        assert {row["status"] for id, row in results.items() if id.startswith(("replicas.", "witness."))} <= {
            "PASS",
            "NOT_APPLICABLE",
        }
        assert {row.process for row in _rows(place.run) if row.replica == 1} >= {1, 2}
        audit = pod_copy(place)
        assert audit.exit_code == 0 and audit.closed, audit.damage
        assert not machine.processes("finetuning.replicas")


def test_two_replicas_one_killed_reach_the_decision_of_one_process(tmp_path: Path) -> None:
    _inputs(tmp_path)
    runs, killed = tmp_path / "runs", list[int]()
    watch = threading.Thread(target=_kill_the_second, args=(runs / "two", killed), daemon=True)
    watch.start()
    # The same examples, tokens and steps: 48 of them in batches of 4, or in two halves in batches of 2.
    two = _decided(_spec(tmp_path, "two", 2, TWO), runs)
    assert killed
    fields = _decided(_spec(tmp_path, "one", 4), runs)
    results = {name: {check["id"]: check for check in _checks(runs / name)} for name in ("one", "two")}
    wrong = {
        name: [c for c in checks.values() if c["status"] in ("FAIL", "BLOCKED", "ERROR")]
        for name, checks in results.items()
    }
    assert [fields["outcome"], two["outcome"]] == ["approve", "approve"], wrong
    assert {results["one"][id]["status"] for id in results["one"] if id.startswith("replicas.")} == {"NOT_APPLICABLE"}
    values = {id: check["status"] for id, check in results["two"].items() if id.startswith(("replicas.", "witness."))}
    # There the other training is a session of its own.
    assert values.pop("replicas.single") == "NOT_APPLICABLE"
    assert values == dict.fromkeys(values, "PASS") and {"witness.training", "replicas.equal"} <= values.keys()
    assert "replica 1 was ended by SIGKILL, again from step" in results["two"]["replicas.quorum"]["detail"]
    rows = _rows(runs / "two")
    assert {row.process for row in rows if row.replica == 1} >= {1, 2}
    # 24 examples each in batches of 2, four epochs: 48 steps, with a synchronisation after every fourth.
    assert len({row.after for row in rows}) == max(row.sync for row in rows) == 12
    assert verify(runs / "two")[0] in (0, 2)


def _checks(run: Path) -> list[dict[str, Any]]:
    store = Store(run / "store")
    body = next(entry.raw for entry in entries(run, "checks") if entry.raw.get("stage") == "train")
    return json.loads(store.get(body["checks"]))


def _rows(run: Path) -> list[ReplicaRound]:
    ended = next(entry.raw for entry in entries(run, "exit") if entry.raw["stage"] == "train")
    data = Store(run / "store").get(ended["outputs"]["replicas"]["digest"])
    return [ReplicaRound.model_validate_json(line) for line in data.splitlines()]
