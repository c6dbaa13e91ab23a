"""Healthy evidence of a ``dpo`` stage."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from reviews.evidence.evidence import Evidence
from specs.stages.base.artifacts import Preference
from specs.stages.finetuning.kinds import DPO
from specs.stages.finetuning.parameters import DpoParameters
from specs.system.digests import digest_path
from testing.factories.evidence_on_disk import evidence_of, sketch, with_manifest, write_rows
from training.jobs.row_files import read_rows
from training.rules.finetuning.validation_split import divide

PAIRS, GROUPS = 40, 20
GRANTED = DpoParameters(epochs=2, batch_size=8, learning_rate=1e-5, validation_share=0.5, seed=7)


def preferences(**changes: Any) -> list[dict[str, Any]]:
    return [
        {
            "prompt": f"Say something kind about number {n} of the list.",
            "chosen": f"It is a fine {n}.",
            "rejected": f"It is {n}, so what.",
            "group": f"pairs-{n % GROUPS}",
            "source": "given",
        }
        | changes
        for n in range(PAIRS)
    ]


def course(count: int = 6) -> list[dict[str, Any]]:
    """Return steps: three batches of eight of twenty pairs, twice, on a straight line after a warm-up of one."""
    return [
        {
            "step": n,
            "epoch": n / 3,
            "loss": 0.7 - 0.05 * n,
            "learning_rate": 0.0 if n == 1 else 1e-5 * (count + 1 - n) / (count - 1),
            "grad_norm": 1.0 + 0.01 * n,
            "tokens": 100,
            "chosen_reward": 0.1 * n,
            "rejected_reward": -0.1 * n,
            "margin": 0.2 * n,
            "accuracy": 1.0,
            "batches": [f"batch {n}"],
            "sketch": sketch(n),
        }
        for n in range(1, count + 1)
    ]


def scores(pairs: list[dict[str, Any]], lines: tuple[int, ...], **changes: Any) -> list[dict[str, Any]]:
    return [
        {
            "pair": line,
            "group": pairs[line]["group"],
            "chosen_tokens": 4,
            "rejected_tokens": 5,
            "chosen_before": -10.0,
            "rejected_before": -11.0,
            "chosen_after": -8.0,
            "rejected_after": -15.0,
        }
        | changes
        for line in lines
    ]


def dpo_evidence(folder: Path, **changes: Any) -> Evidence:
    """Return the healthy evidence of a ``dpo`` stage; ``changes`` go to its parameters."""
    parameters = GRANTED.model_copy(update=changes)
    base = evidence_of(folder, "train", course())
    rows = preferences()
    path = write_rows(folder / "preferences.jsonl", rows)
    split = divide(read_rows(path, Preference), parameters.validation_share, parameters.seed)
    stage = DPO.stage(
        name="train", kind="dpo", inputs={"model": "model", "preferences": "best_of_n.pairs"}, parameters=parameters
    )
    outputs = base.outputs | {"pairs": write_rows(folder / "train" / "pairs.jsonl", scores(rows, split.validation))}
    digests = {name: digest_path(path) for name, path in outputs.items()}
    evidence = replace(
        base,
        stage=stage,
        parameters=parameters.model_dump(mode="json"),
        inputs={"model": base.inputs["model"], "preferences": path},
        outputs=outputs,
        output_digests=digests,
    )
    read_back = parameters.model_dump() | {"steps": 6, "planned_steps": 6, "precision": "float32", "trained_share": 1.0}
    seen_values = {"pairs": len(split.train), "sequences": 4 * len(split.train), "epochs_done": 2.0, "batches": 6}
    seen_values |= {"distinct_batches": 6, "reference_difference": 1e-7, "reference_responses": 32}
    evidence = with_manifest(evidence, outputs=digests, effective=read_back, facts=seen_values)
    witness = evidence.witness
    assert witness is not None and witness.manifest is not None
    read = [[line, -10.0, -11.0, -8.0, -15.0] for line in split.validation]
    manifest = witness.manifest.model_copy(update={"facts": witness.manifest.facts | {"pairs": read}})
    return replace(evidence, witness=witness._replace(manifest=manifest))
