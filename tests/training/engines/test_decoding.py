"""Batched decoding against the plainest way there is, on a small random model and on the real one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from specs.system.digests import digest_tree
from testing.fixtures.real_model import smollm2_checkpoint
from testing.fixtures.small_text import small_model
from tests.training.jobs.test_witness_passes import with_convolutions
from training.engines import batched
from training.engines import checkpoint as checkpoint_module
from training.engines.batched import SPARE, Batch
from training.engines.checkpoint import load, save
from training.engines.engine import BatchedEngine, without_plans
from training.engines.token_sampling import TokenSampling
from training.rules.prompt_encoding import prompt_ids

pytestmark = pytest.mark.integration

STOPS = ("a", "r")
"""Letters at which answers of a small model end after few and after many tokens."""
SEED = 24
"""Of a small model some of whose answers end early."""
QUESTIONS = [
    "Name a colour.",
    "Write one sentence about the sea. Use only lowercase letters.",
    "Say yes.",
    "List 3 facts about tea. Start every line with '- ' and write nothing else.",
    "What is the capital of France? Answer in one word.",
]


@pytest.fixture(scope="module", params=["small", pytest.param("smollm2", marks=[pytest.mark.model, pytest.mark.slow])])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "small":
        return small_model(tmp_path_factory.mktemp("small") / "model", chat=True, seed=SEED)
    return smollm2_checkpoint()


@pytest.fixture(scope="module")
def loaded(checkpoint: Path) -> tuple[Any, Any]:
    return load(checkpoint)


@pytest.fixture(scope="module")
def prompts(loaded: tuple[Any, Any]) -> list[list[int]]:
    return [list(prompt_ids(loaded[1], text, "chat").ids) for text in QUESTIONS]


def test_greedy_answers_are_those_of_decoding_one_by_one_without_a_cache(
    loaded: tuple[Any, Any], prompts: list[list[int]]
) -> None:
    import torch

    model, tokenizer = loaded
    outputs = BatchedEngine(model, tokenizer, 5, share=False).complete(prompts, TokenSampling(20))
    for prompt, (output,) in zip(prompts, outputs, strict=True):
        ids, written = list(prompt), list[int]()
        with torch.inference_mode():
            for _ in range(20):
                token = int(model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].argmax())
                if token == tokenizer.eos_token_id:
                    break
                ids.append(token)
                written.append(token)
        assert list(output.ids) == written
        assert output.truncated == (len(written) == 20)
        assert output.text == tokenizer.decode(written, skip_special_tokens=True)


def test_answers_end_at_different_times_and_in_the_order_of_the_prompts(
    loaded: tuple[Any, Any], prompts: list[list[int]]
) -> None:
    # The control of the test above: without rows that end early nothing would be dropped from the batch.
    outputs = BatchedEngine(*loaded, 5, share=False).complete(prompts, TokenSampling(20))
    assert len({len(output.ids) for (output,) in outputs}) > 2
    backward = BatchedEngine(*loaded, 5, share=False).complete(prompts[::-1], TokenSampling(20))
    assert [row[0].text for row in backward[::-1]] == [row[0].text for row in outputs]


def test_sampling_repeats_with_its_seed_and_differs_between_samples_and_seeds(
    loaded: tuple[Any, Any], prompts: list[list[int]]
) -> None:
    def sample(seed: int) -> list[list[str]]:
        engine = BatchedEngine(*loaded, 8, share=False)
        outputs = engine.complete(prompts[:2], TokenSampling(16, 1.0, 0.9), samples=4, seed=seed)
        return [[output.text for output in row] for row in outputs]

    first = sample(1)
    assert first == sample(1) != sample(2)
    assert all(len(set(row)) > 1 for row in first)


def test_a_tiny_nucleus_is_greedy(loaded: tuple[Any, Any], prompts: list[list[int]]) -> None:
    engine = BatchedEngine(*loaded, 2, share=False)
    greedy = engine.complete(prompts[:2], TokenSampling(8))
    nucleus = engine.complete(prompts[:2], TokenSampling(8, 1.0, 1e-6), seed=3)
    assert [row[0].ids for row in nucleus] == [row[0].ids for row in greedy]


def test_saving_twice_gives_the_same_digest(loaded: tuple[Any, Any], tmp_path: Path) -> None:
    for name in ("one", "two"):
        save(*loaded, tmp_path / name)
    assert digest_tree(tmp_path / "one") == digest_tree(tmp_path / "two")


def test_large_weights_are_saved_in_parts_and_are_the_same(
    loaded: tuple[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(*loaded, tmp_path / "whole")
    whole = (tmp_path / "whole" / "model.safetensors").stat().st_size
    monkeypatch.setattr(checkpoint_module, "PART", whole // 3)
    save(*loaded, tmp_path / "parts")
    parts = list((tmp_path / "parts").glob("model-*.safetensors"))
    assert len(parts) >= 3 and not (tmp_path / "parts" / "model.safetensors").exists()
    same = zip(load(tmp_path / "parts")[0].parameters(), loaded[0].parameters(), strict=True)
    assert all(bool((item == other).all()) for item, other in same)


def test_a_model_that_is_not_there_is_one_line_of_error(tmp_path: Path) -> None:
    for source, text in (
        ("path:nowhere", "holds no config.json"),
        ("hub:nobody/nothing", "not in the local hub cache"),
    ):
        command = [
            "-m",
            "training.jobs.base_model",
            source,
            "--origin",
            str(tmp_path),
            "--cache",
            str(tmp_path / "cache"),
        ]
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 1 and text in done.stderr.splitlines()[-1]


def test_attention_is_without_cudnn_while_answers_are_written(
    loaded: tuple[Any, Any], prompts: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU it makes a plan for every length of the keys, which takes several times as long as a step."""
    import torch

    seen: list[bool] = []
    read = Batch.read

    def watched(self: Batch, *values: Any) -> Any:
        seen.append(torch.backends.cuda.cudnn_sdp_enabled())
        return read(self, *values)

    monkeypatch.setattr(Batch, "read", watched)
    before = torch.backends.cuda.cudnn_sdp_enabled()
    BatchedEngine(*loaded, 8).complete(prompts[:1], TokenSampling(1))
    assert seen == [False] and torch.backends.cuda.cudnn_sdp_enabled() == before
    with pytest.raises(ValueError, match="stop"), without_plans():
        raise ValueError("stop")
    assert torch.backends.cuda.cudnn_sdp_enabled() == before


def steps_of(model: Any, prompts: list[list[int]], leave_room: Callable[[Any], None]) -> tuple[list[Any], set[str]]:
    """Return the logits of more steps than a cache has spare places, rows repeated and dropped, and its layers."""
    import torch

    caches: list[Any] = []

    def leave(past: Any) -> None:
        leave_room(past)
        caches.append(past)

    with torch.inference_mode(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(batched, "leave_room", leave)
        batch = Batch(model, share=False)
        logits = [batch.read([*prompts], 2)]
        for step in range(2 * SPARE + 3):
            token = logits[-1].argmax(-1)
            if step in (5, SPARE + 7):
                rows = torch.arange(step % 2, len(token), 2)
                batch.keep(rows)
                token = token[rows]
            logits.append(batch.next(token))
    return logits, {type(layer).__name__ for layer in caches[0].layers}


def copy_always(past: Any) -> None:
    """Leave the layers as transformers made them."""


def test_tokens_written_in_place_give_the_logits_of_copied_ones_bit_by_bit(
    loaded: tuple[Any, Any], prompts: list[list[int]]
) -> None:
    import torch

    in_place, layers = steps_of(loaded[0], prompts, batched.leave_room)
    assert layers == {"RoomyLayer"}
    copied, layers = steps_of(loaded[0], prompts, copy_always)
    assert layers == {"DynamicLayer"}
    assert all(torch.equal(*logits) for logits in zip(in_place, copied, strict=True))


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize(
    "sampling", [TokenSampling(24, stops=STOPS), TokenSampling(24, 1.0, 0.9, repetition_penalty=1.2, stops=STOPS)]
)
def test_rows_that_end_make_room_for_the_next_prompts_and_change_no_answer(
    loaded: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch, sampling: TokenSampling, share: bool
) -> None:
    model, tokenizer = loaded
    texts = [f"Name {n} things.{' Please.' * (n % 7)}" for n in range(9)]
    prompts = [list(prompt_ids(tokenizer, text, "chat").ids) for text in texts]
    widths, forward = list[int](), model.forward

    def watched(*arguments: Any, **named: Any) -> Any:
        widths.append(len(named["input_ids"]))
        return forward(*arguments, **named)

    monkeypatch.setattr(model, "forward", watched)
    refilled = BatchedEngine(model, tokenizer, 6, share=share).complete(prompts, sampling, samples=2, seed=3)
    passes, most = len(widths), max(widths)
    widths.clear()
    monkeypatch.setattr(Batch, "can_add", False)
    alone = BatchedEngine(model, tokenizer, 6, share=share).complete(prompts, sampling, samples=2, seed=3)
    assert refilled == alone
    lengths = [len(output.ids) for outputs in alone for output in outputs]
    assert len(set(lengths)) > 5
    assert most <= 6 and passes < len(widths)


def test_progress_counts_prompts_that_are_done(loaded: tuple[Any, Any], prompts: list[list[int]]) -> None:
    counts = list[int]()
    BatchedEngine(*loaded, 2).complete(prompts, TokenSampling(20), on_batch=counts.append)
    assert counts == sorted(counts) and counts[-1] == len(prompts) and len(counts) > 1


def test_a_layer_with_a_window_keeps_the_way_it_drops_tokens() -> None:
    import torch
    from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

    states = torch.zeros(1, 1, 3, 4)
    layers = [DynamicSlidingWindowLayer(sliding_window=2), DynamicLayer(), DynamicLayer()]
    for layer in layers[:2]:
        layer.update(states, states)
    past = SimpleNamespace(layers=layers)
    batched.leave_room(past)
    assert [type(layer).__name__ for layer in past.layers] == [
        "DynamicSlidingWindowLayer",
        "RoomyLayer",
        "DynamicLayer",
    ]


def test_a_batch_without_rows_begins_anew_whatever_its_cache_holds() -> None:
    import torch

    model = with_convolutions()
    batch = Batch(model, share=True)
    with torch.inference_mode():
        first = batch.read([[5, 6, 7], [8, 9]], 1)
        assert not batch.can_add
        batch.keep(torch.tensor([], dtype=torch.int64))
        assert torch.equal(batch.read([[5, 6, 7], [8, 9]], 1), first)
