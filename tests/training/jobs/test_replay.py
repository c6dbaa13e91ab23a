"""A witness that trains some steps again comes to the same figures, and sees other data and other weights."""

from __future__ import annotations

import json
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from reviews.stages.finetuning.replay_checks import differs
from specs.stages.base.stage import Kind
from specs.stages.base.witness import MERGED_APART, REPLAYED
from specs.stages.finetuning.rows import ReplayedStep, TrainingRow, ValidationRow
from specs.stages.registry import STAGE_KINDS
from testing.fixtures.rollout_jobs import witness_of
from testing.fixtures.tiny_training import opposites, preferred, tiny_checkpoint, training_job, write_lines
from training.jobs.finetuning.weight_sketch import _places, sketch  # pyright: ignore[reportPrivateUsage]
from training.jobs.job import Job

pytestmark = [
    pytest.mark.integration,
    # transformers reads the old name when it saves a step.
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
]
LORA: dict[str, Any] = {
    "method": "lora",
    "lora_rank": 2,
    "lora_alpha": 4,
    "lora_dropout": 0.1,
    "target_modules": ["q_proj", "v_proj"],
}
QLORA = LORA | {"method": "qlora", "precision": "bfloat16", "device": "cpu"}
over_4_bits = pytest.mark.skipif(
    find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed (the extra 'qlora')"
)


def _rows(job: Job, name: str, form: Any) -> list[Any]:
    return [form.model_validate_json(line) for line in (job.out / f"{name}.jsonl").read_bytes().splitlines()]


def _trained(folder: Path, kind: Kind, **parameters: Any) -> Job:
    import torch

    model = tiny_checkpoint(folder / "model")
    data = write_lines(folder / "data.jsonl", opposites() if kind == "sft" else preferred())
    job = training_job(folder / "job", kind, model, data, epochs=2, batch_size=2, max_length=96, **parameters)
    torch.manual_seed(job.parameters.seed)
    module, _, function = STAGE_KINDS[kind].job.partition(":")
    getattr(import_module(module), function)(job)
    return job


def replayed_by(job: Job, effective: dict[str, Any] | None = None) -> tuple[list[ReplayedStep], dict[str, Any]]:
    """Have a witness replay what a challenge of this job names; return its rows and facts."""
    witness = witness_of(job, effective)
    module, _, function = (STAGE_KINDS[job.order.kind].replay_job or "").partition(":")
    facts = getattr(import_module(module), function)(witness).facts
    assert [*(witness.folder / "trainer").glob("checkpoint-*")] == [], "a witness is not resumed"
    return _rows(witness, "witness", ReplayedStep), facts


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("sft", {"snapshot_steps": 4, "validation_share": 0.3, **LORA}),
        ("sft", {"checkpoint_steps": 1}),
        ("dpo", {"validation_share": 0.3, "snapshot_steps": 3}),
        pytest.param(
            "dpo", {"validation_share": 0.3, "snapshot_steps": 3, "precision": "bfloat16"}, marks=pytest.mark.more
        ),
        pytest.param(
            "dpo", {"loss": "kto", "snapshot_steps": 4, "gradient_accumulation": 2, **LORA}, marks=pytest.mark.more
        ),
        pytest.param("sft", {"snapshot_steps": 4, **QLORA}, marks=over_4_bits),
        pytest.param("dpo", {"validation_share": 0.3, "snapshot_steps": 3, **QLORA}, marks=over_4_bits),
    ],
    ids=[
        "sft with adapters",
        "sft",
        "dpo",
        "dpo in bfloat16",
        "kto with adapters",
        "sft over 4 bits",
        "dpo over 4 bits",
    ],
)
def test_an_honest_training_is_trained_again_to_the_same_figures(
    tmp_path: Path, kind: Kind, parameters: dict[str, Any]
) -> None:
    job = _trained(tmp_path, kind, learning_rate=1e-2, **parameters)
    rows = _rows(job, "rows", STAGE_KINDS[kind].rows["rows"])
    replayed, facts = replayed_by(job)
    assert replayed[0].step == 1
    assert replayed[-1].step == (len(rows) if "snapshot_steps" in parameters else 2)
    dtype = parameters.get("precision", "float32")
    assert [why for step in replayed if (why := differs(rows, step, REPLAYED[dtype]))] == []
    assert list(facts["saved"]) == list(rows[-1].sketch) and facts["files"] == []
    assert facts.get("end_apart", 0.0) < 1e-6 and ("end_apart" in facts) == ("snapshot_steps" in parameters)
    if "method" in parameters:
        assert facts["merged_modules"] == ["q_proj", "v_proj"]
        assert facts["merged_apart"] < MERGED_APART[dtype] and facts["frozen_apart"] == 0
    if parameters.get("validation_share") and kind == "sft":
        read = {(row.step, row.example): row for row in _rows(job, "validation", ValidationRow)}
        last = max(step for step, _ in read)
        assert len(facts["kept"]) == 4
        for line, *scores, correct in facts["kept"]:
            assert scores == [pytest.approx(read[step, line].log_probability, abs=1e-3) for step in (0, last)]
            assert correct == read[last, line].correct
    if kind == "dpo":
        scored = {item["pair"]: item for item in map(json.loads, (job.out / "pairs.jsonl").read_text().splitlines())}
        assert {pair: row for pair, *row in facts["pairs"]} == {
            pair: pytest.approx(
                [item[f"{side}_{when}"] for when in ("before", "after") for side in ("chosen", "rejected")]
            )
            for pair, item in scored.items()
        }


@pytest.mark.parametrize(
    "parameters", [LORA, pytest.param({"snapshot_steps": 10}, marks=pytest.mark.more)], ids=["adapters", "full"]
)
def test_weights_saved_otherwise_next_to_those_of_the_sketch_are_seen(
    tmp_path: Path, parameters: dict[str, Any]
) -> None:
    """Who knows which weights a sketch holds can save others in every other place."""
    from safetensors.torch import load_file, save_file

    job = _trained(tmp_path, "sft", learning_rate=1e-2, **parameters)
    path = job.out / "checkpoint" / ("adapter/adapter_model" if "method" in parameters else "model")
    path = path.with_suffix(".safetensors")
    weights = load_file(path)
    selected, before = sketch(weights), {name: weight.clone() for name, weight in weights.items()}
    name = next(weight for weight in weights if "lora_B" in weight or "down_proj" in weight)
    weights[name] = weights[name].flip(0)
    places = [(tensor, at) for tensor, at in _places(sorted(weights), weights) if tensor == name]
    for tensor, at in places:
        weights[tensor].view(-1)[at] = before[tensor].view(-1)[at]
    norm = before[name].norm() / weights[name].norm()
    assert abs(float(norm) - 1) < 0.1
    save_file(weights, path, {"format": "pt"})
    assert sketch(weights)[1:] == selected[1:]
    config = job.out / "checkpoint" / "config.json"
    config.write_text(config.read_text(encoding="utf-8").replace("1e-06", "1e-01"), encoding="utf-8")
    (job.out / "checkpoint" / "chat_template.jinja").write_text("{{ 1 }}", encoding="utf-8")
    _, facts = replayed_by(job)
    assert facts["end_apart"] > REPLAYED["float32"].update
    assert facts["files"] == ["chat_template.jinja", "config.json"]


def test_the_norm_of_a_sketch_is_right_for_millions_of_weights() -> None:
    """On a GPU torch's norm is right, on a CPU it is not: saved weights would not be those of the last step."""
    import torch

    weights = torch.linspace(0.01, 0.05, 1 << 24)
    assert sketch({"w": weights})[0] == pytest.approx(float(weights.double().norm()), rel=1e-6)
    halves = weights.bfloat16()
    assert sketch({"w": halves})[0] == pytest.approx(float(halves.double().norm()), rel=1e-6)


def test_other_figures_and_other_data_are_seen(tmp_path: Path) -> None:
    job = _trained(tmp_path, "sft", learning_rate=1e-2)
    rows = _rows(job, "rows", TrainingRow)
    lines = (tmp_path / "data.jsonl").read_text(encoding="utf-8")
    most = REPLAYED["float32"]
    replayed, _ = replayed_by(job)
    second = replayed[1]
    still = (*rows[:1], rows[1].model_copy(update={"sketch": rows[0].sketch}))
    assert "moved otherwise" in differs(still, second, most)
    curve = (rows[0], rows[1].model_copy(update={"loss": rows[1].loss * 0.99}))
    assert "its loss is" in differs(curve, second, most)
    (tmp_path / "data.jsonl").write_text(lines.replace('"completion": "', '"completion": "so '), encoding="utf-8")
    (tmp_path / "witness").rename(tmp_path / "witness-before")
    other, _ = replayed_by(job)
    assert any("other batches" in differs(rows, step, most) for step in other)
