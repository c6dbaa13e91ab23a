"""A session of the small spec in which a builder's script trains what the other stages use, and evidence of it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from reviews.evidence.evidence import Evidence
from specs.system.digests import digest_bytes, digest_path
from testing.factories.evidence_on_disk import SCRIPT, evidence_of, examples, prompt_items, write_rows
from testing.fixtures.tiny_training import tiny_checkpoint
from training.jobs.recipes.adopt_checkpoint import take_checkpoint

STAGE = """\
  - name: look
    kind: recipe
    allow_code: true
    inputs: {rows: sample.accepted, prompts: data.prompts, start: model}
    parameters: {memory_mb: 4096, output_mb: 8, processes: 64, seed: 7, trains: start}
    witness: weights_only
    max_minutes: 5
"""
TRAINED = (
    ("builder: {vendor: playbook}", "builder: {vendor: anthropic, model: claude-opus-4-5}"),
    ("  - name: train\n", f"{STAGE}  - name: train\n"),
    ("{model: model, examples: sample.accepted}", "{model: look.checkpoint, examples: sample.accepted}"),
    (
        "name: tuned\n    kind: evaluate\n    inputs: {model: train.checkpoint",
        "name: tuned\n    kind: evaluate\n    inputs: {model: look.checkpoint",
    ),
    ("stages:\n", "evaluation: {not_evaluated: [train]}\nstages:\n"),
)
"""Changes of the small spec: a script trains before its sft stage, which goes on from there and is shipped; what the
script left is evaluated."""
SHIPPED = (
    "name: ship\n    kind: package\n    inputs: {model: train.checkpoint",
    "name: ship\n    kind: package\n    inputs: {model: look.checkpoint",
)
"""One more change: the script's checkpoint is shipped too."""


def move(folder: Path, by: float = 0.01) -> None:
    """Move one tensor of a checkpoint."""
    from safetensors.numpy import load_file, save_file

    result = load_file(folder / "model.safetensors")
    result["model.norm.weight"] = result["model.norm.weight"] + by
    save_file(result, folder / "model.safetensors", {"format": "pt"})


def trained_evidence(folder: Path) -> Evidence:
    """Return the healthy evidence of the stage that trains, with real weights of a tiny model."""
    evidence = evidence_of(folder, "look", recipe=TRAINED)
    base = tiny_checkpoint(folder / "base")
    shutil.copytree(base, folder / "left")
    move(folder / "left")
    checkpoint = folder / "look" / "checkpoint"
    change = take_checkpoint(folder / "left", base, checkpoint)
    inputs = {
        "rows": write_rows(folder / "accepted.jsonl", examples()),
        "prompts": write_rows(
            folder / "prompts-again.jsonl", [item.model_dump(mode="json") for item in prompt_items()]
        ),
        "start": base,
    }
    manifest, grant = evidence.manifest, evidence.grant
    assert manifest is not None and grant is not None
    digests = {role: digest_path(path) for role, path in inputs.items()}
    outputs = evidence.outputs | {"checkpoint": checkpoint}
    remaining = {name: digest_path(path) for name, path in outputs.items()}
    facts: dict[str, Any] = {
        "checkpoint": change.as_facts()
        | {"of": "model", "base": digests["start"], "code": digest_bytes(SCRIPT.encode())}
    }
    return replace(
        evidence,
        inputs=inputs,
        outputs=outputs,
        output_digests=remaining,
        grant=grant.model_copy(update={"inputs": digests}),
        manifest=manifest.model_copy(update={"inputs": digests, "outputs": remaining, "facts": manifest.facts | facts}),
    )
