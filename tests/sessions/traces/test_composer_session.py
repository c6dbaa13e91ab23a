"""From transcripts to a model behind a gate: ingest, replay against teachers over the wire, pairs, three channels.

``PEERGATE_TRACES`` names a folder of transcripts to take instead of those that this file writes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.flaws.small_specs import tiny_model
from reviews.audit.verify import verify_run
from specs.system.digests import digest_file
from specs.system.vendors import http_exchange
from testing.factories.transcripts import Transcript
from testing.fixtures.command_sessions import called, environment
from testing.fixtures.small_pipeline import CONSTITUTION
from testing.fixtures.tiny_training import tiny_checkpoint, write_lines
from tests.sessions.test_own_data import _items, checks, decided, played  # pyright: ignore[reportPrivateUsage]
from tests.sessions.traces.test_replay import BUDGET, LLAMA, QWEN, serving, teachers
from training.items.format_items import HELDOUT_TOPICS, TRAIN_TOPICS
from training.rules.traces.rendering import INSTRUCTIONS

pytestmark = [
    pytest.mark.integration,
    pytest.mark.more,
    pytest.mark.filterwarnings("ignore::FutureWarning:transformers.*"),
]
REAL = os.environ.get("PEERGATE_TRACES", "")

SPEC = """\
schema_version: 1
name: small
objective: See whether answers, feedback and replayed traces train one model behind one gate.
task: format_instructions
constitution: constitution.yaml
model: {source: "path:MODEL", kind: instruct}
budget: {max_cost_usd: 1, machine_usd_per_hour: 0.1, max_hours: 2}
heldout: {path: heldout.jsonl, digest: "HELDOUT"}
data: {prompts: {path: prompts.jsonl}, pairs: {path: PAIRS}}
analysis: {alpha: 0.05, minimum_effect: 0.3, n: 40, seeds: [3], baseline: before, treatment: after}
thresholds: {identical_answers: 0.5, near_duplicates: 0.9}
stages:
  - {name: before, kind: evaluate, inputs: {model: model, items: heldout}, parameters: {max_new_tokens: 24, seed: 3}}
  - name: train
    kind: composer
    inputs: {model: model, prompts: data.prompts, pairs: data.pairs}
    parameters:
      channels: {grpo: 1, sdpo: 1, dpo: 0.5}
      rewards: {verified: 1, ended: 0.5, length: -0.2}
      replayed_pairs: {max_length: 200}
      learning_rate: 1e-3
      generations: 4
      batch_size: 16
      max_new_tokens: 24
      device: cpu
      seed: 3
  - name: after
    kind: evaluate
    inputs: {model: train.checkpoint, items: heldout}
    parameters: {max_new_tokens: 24, seed: 3}
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(http_exchange, "BACKOFF_S", 0.01)
    yield


def transcripts(folder: Path) -> Path:
    """Return a folder of transcripts."""
    if REAL:
        return Path(REAL)
    for number in range(4):
        made = Transcript(f"s{number}")
        made.says(f"Change file {number}.")
        for tool in ("Edit", "Read", "Bash"):
            made.answers(f"I use {tool} on file {number}.", tool)
        made.answers("All done.")
        made.write(folder / f"s{number}.jsonl")
    return folder


def first_tool(body: dict[str, Any]) -> str:
    """Answer as both teachers do: with the first tool that the instructions list after a text."""
    text = json.dumps(body)
    name = next((word for word in ("Read", "Grep", "Bash", "Edit") if word in text.replace(INSTRUCTIONS, "")), "Read")
    return json.dumps({"tool": name, "arguments": {"path": "0.txt"}})


LOCAL = """\
stages:
  - name: replay
    kind: replay_traces
    inputs: {model: model, transcripts: data.sessions}
    parameters:
      teacher: llama
      student: llama
      license: that of the test
      circular: The test needs no other model.
      answers: 3
      max_states: 12
      prompt_characters: 500
      # A random model never ends by itself.
      stops: [a, e, i, o, u, r, s, t, n, l, d, h]
      max_new_tokens: 40
      temperature: 1.0
      device: cpu
      seed: 3
"""


def prepared(folder: Path, text: str, model: Path) -> Path:
    """Write a spec with its files, and return it."""
    (folder / "constitution.yaml").write_bytes(CONSTITUTION.read_bytes())
    heldout = _items("heldout", HELDOUT_TOPICS[:20])
    write_lines(folder / "heldout.jsonl", [item.model_dump(mode="json") for item in heldout])
    prompts = _items("train", TRAIN_TOPICS[:16])
    write_lines(folder / "prompts.jsonl", [prompt.model_dump(mode="json") for prompt in prompts])
    path = folder / "spec.yaml"
    digest = digest_file(folder / "heldout.jsonl")
    path.write_text(text.replace("MODEL", str(model)).replace("HELDOUT", digest), encoding="utf-8")
    return path


def test_a_local_teacher_answers_inside_the_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a random model, which no later gate lets pass; what is made of its pairs the shipped spec shows."""
    path = transcripts(tmp_path / "sessions")
    text = SPEC.replace("pairs: {path: PAIRS}", f"sessions: {{path: {path}, as: transcripts}}")
    text = text.replace("stages:\n", LOCAL).replace("pairs: data.pairs", "pairs: replay.pairs")
    model = tiny_checkpoint(tmp_path / "model")
    run = played(prepared(tmp_path, text, model), model, monkeypatch)

    seen = checks(run, "replay.1")
    assert decided(run)["replay"] == "approve", seen
    for check in ("traces.accounted", "traces.states", "traces.pairs", "witness.answers", "health.kept"):
        assert seen[check][0] == "PASS", seen[check]
    audit = verify_run(run, "trail.sqlite", "store")
    assert audit.damage == [] and audit.verdict in ("verified", "open")


def test_transcripts_become_a_model_behind_a_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "traces"
    done = called("traces", "ingest", transcripts(tmp_path / "sessions"), "--out", folder)
    assert done.returncode == 0, done
    with serving(first_tool) as played_by:
        listed = tmp_path / "teachers.yaml"
        listed.write_text(teachers(played_by.address, QWEN, LLAMA), encoding="utf-8")
        arguments = environment() | {"TEACHER_KEY": "sk-test-CANARY-that-must-never-be-written"}
        states = ("--states", "24") if REAL else ()
        done = called("traces", "replay", folder, "--teachers", listed, *states, *BUDGET, env=arguments)
        assert done.returncode == 0, done
    pairs = folder / "replay" / "pairs.jsonl"
    count = len(pairs.read_bytes().splitlines())
    assert count > 0

    model = tiny_model(tmp_path)
    path = prepared(tmp_path, SPEC.replace("PAIRS", str(pairs.relative_to(tmp_path))), model)
    run = played(path, model, monkeypatch)

    outcomes = decided(run)
    results = checks(run, "train.1")
    assert outcomes["design"] == outcomes["before"] == outcomes["train"] == "approve", results
    for check in ("witness.training", "witness.weights", "witness.rollouts", "rollouts.rewards", "rollouts.channels"):
        assert results[check][0] == "PASS", results[check]
    assert all(f"{name} " in results["rollouts.channels"][1] for name in ("grpo", "sdpo", "dpo"))
    assert results["training.moved"][0] == "PASS"
    audit = verify_run(run, "trail.sqlite", "store")
    assert audit.damage == [] and audit.verdict in ("verified", "open")
