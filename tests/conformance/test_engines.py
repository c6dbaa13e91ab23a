"""Every engine against the batched one, on a random model of two layers: the same prompts in, the same outputs out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from specs.stages.base.sampling import ENGINES, EngineName
from testing.fixtures.small_text import WORDS, small_model
from training.engines.batched import Completion
from training.engines.engine import CompletionEngine
from training.engines.engine_factory import make_engine
from training.engines.token_sampling import TokenSampling

pytestmark = pytest.mark.usefixtures("one_thread")

LLAMA = [name for name in ("llama_cpp", "gguf") if find_spec(name) is None]


def without_vllm() -> bool:
    """Return whether vLLM cannot run here."""
    if find_spec("vllm") is None:
        return True
    import torch

    platforms: Any = import_module("vllm.platforms")
    return not torch.cuda.is_available() and not platforms.current_platform.is_cpu()


NAMES = [
    pytest.param("batched"),
    pytest.param("continuous"),
    pytest.param(
        "llama",
        marks=[
            pytest.mark.llama,
            pytest.mark.skipif(bool(LLAMA), reason=f"not installed: {', '.join(LLAMA)} (make -f more.mk test-llama)"),
        ],
    ),
    pytest.param(
        "vllm",
        marks=pytest.mark.skipif(
            without_vllm(), reason="not here: vllm, a GPU or its CPU build (make -f more.mk test-vllm)"
        ),
    ),
]
ROWS = 4
"""Rows at a time: fewer than the prompts, so that places are filled again."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("random"))


@pytest.fixture(scope="module", params=NAMES)
def engine(
    request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CompletionEngine]:
    made = make_engine(request.param, folder, ROWS, scratch=tmp_path_factory.mktemp("scratch"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def batched(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> CompletionEngine:
    return make_engine("batched", folder, ROWS, scratch=tmp_path_factory.mktemp("scratch"))


@pytest.fixture
def exact(engine: CompletionEngine) -> CompletionEngine:
    """Return the engine where it computes in float32; with 16 bits sums in another order choose other tokens."""
    if engine.dtype != "float32":
        pytest.skip(f"in {engine.dtype} greedy answers of two engines are not promised to be equal")
    return engine


@pytest.fixture(scope="module")
def prompts(batched: CompletionEngine) -> list[list[int]]:
    texts = [f"{WORDS[n]} a {'short ' * ((5 * n) % 7)}tale about the {WORDS[11 + n]}" for n in range(7)]
    ids = [list(batched.tokenizer(text)["input_ids"]) for text in texts]
    assert len({len(row) for row in ids}) > 2 and len(ids) > ROWS
    return ids


def greedy(
    engine: CompletionEngine, prompts: Sequence[Sequence[int]], limit: int = 12, **settings: Any
) -> list[Completion]:
    return [output for (output,) in engine.complete(prompts, TokenSampling(limit, **settings))]


def test_it_says_what_it_is(engine: CompletionEngine, folder: Path) -> None:
    assert engine.name in ENGINES and engine.description and engine.at_once >= 1
    assert engine.device.partition(":")[0] in ("cpu", "cuda") and engine.dtype in ("float32", "bfloat16")
    assert engine.tokenizer.decode(engine.tokenizer("a tale")["input_ids"]) == "a tale"


def test_greedy_answers_are_those_of_the_batched_engine(
    exact: CompletionEngine, batched: CompletionEngine, prompts: list[list[int]]
) -> None:
    completions = greedy(exact, prompts)
    assert completions == greedy(batched, prompts)
    assert len({output.ids for output in completions}) > 3, "the model says the same to all: nothing is compared"


def test_the_limit_is_reported(engine: CompletionEngine, prompts: list[list[int]]) -> None:
    for limit in (1, 5):
        for output in greedy(engine, prompts, limit):
            assert (output.finish, output.truncated, len(output.ids), output.stop) == ("length", True, limit, None)


def test_answers_come_in_the_order_of_the_prompts(engine: CompletionEngine, prompts: list[list[int]]) -> None:
    forward = greedy(engine, prompts)
    assert greedy(engine, prompts[::-1]) == forward[::-1]
    assert greedy(engine, prompts[:1]) == forward[:1]


def test_a_stop_string_ends_an_answer_wherever_its_tokens_end(
    exact: CompletionEngine, batched: CompletionEngine, prompts: list[list[int]]
) -> None:
    whole = greedy(batched, prompts)
    pieces = [batched.tokenizer.decode(list(completion.ids[:4])) for completion in whole]
    # Ends inside the fourth token of the first answer.
    stop = pieces[0][1:-1]
    assert len(stop) > 2
    completions = greedy(exact, prompts, stops=(stop, "never written"))
    assert completions == greedy(batched, prompts, stops=(stop, "never written"))
    first = completions[0]
    assert (first.finish, first.stop, first.truncated) == ("stop", stop, False)
    assert stop not in first.text and whole[0].text.startswith(first.text + stop)
    # All that was written is there, the tokens of the stop included, and nothing after them.
    assert first.ids == whole[0].ids[: len(first.ids)] and len(first.ids) <= 4
    # A part of a stop ends nothing.
    assert greedy(exact, prompts[:1], stops=(stop + "never written",))[0] == whole[0]


def sampled(engine: CompletionEngine, prompts: list[list[int]], seed: int) -> list[list[Completion]]:
    return engine.complete(prompts, TokenSampling(10, 1.0, 0.95), samples=2, seed=seed)


def test_seeds_decide_what_is_sampled(engine: CompletionEngine, prompts: list[list[int]]) -> None:
    results = sampled(engine, prompts, 3)
    assert [len(completions) for completions in results] == [2] * len(prompts)
    assert sum(completion == two for completion, two in results) <= 1, "the samples of a prompt are drawn apart"
    assert sampled(engine, prompts, 4) != results
    if ENGINES[engine.name].repeatable:
        # Not by luck of timing: what was done in between does not count either.
        greedy(engine, prompts[:2])
        assert sampled(engine, prompts, 3) == results


def test_sampling_leaves_the_numbers_of_others_alone(engine: CompletionEngine, prompts: list[list[int]]) -> None:
    import torch

    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    sampled(engine, prompts[:2], 3)
    assert torch.equal(torch.rand(3), expected)


def test_a_nucleus_of_one_token_is_greedy(engine: CompletionEngine, prompts: list[list[int]]) -> None:
    outputs = engine.complete(prompts, TokenSampling(8, 1.0, 1e-6), seed=5)
    assert [output for (output,) in outputs] == greedy(engine, prompts, 8)


def test_a_repetition_penalty_is_that_of_the_batched_engine_or_refused(
    exact: CompletionEngine, batched: CompletionEngine, prompts: list[list[int]]
) -> None:
    if not ENGINES[exact.name].penalty:
        with pytest.raises(ValueError, match=f"engine '{exact.name}' has no repetition penalty"):
            greedy(exact, prompts, repetition_penalty=1.3)
        return
    completions = greedy(exact, prompts, repetition_penalty=1.3)
    assert completions == greedy(batched, prompts, repetition_penalty=1.3) != greedy(batched, prompts)


def test_special_tokens_are_shown_where_that_is_asked_for(
    exact: CompletionEngine, batched: CompletionEngine, prompts: list[list[int]]
) -> None:
    completions = greedy(exact, prompts, 40, keep_special=True)
    assert completions == greedy(batched, prompts, 40, keep_special=True)


def test_progress_ends_with_all_prompts(engine: CompletionEngine, prompts: list[list[int]]) -> None:
    lines: list[int] = []
    engine.complete(prompts, TokenSampling(2), samples=2, on_batch=lines.append)
    assert lines == sorted(lines) and lines[-1] == len(prompts)


def test_an_empty_stop_is_refused(engine: CompletionEngine, prompts: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="an empty stop string"):
        greedy(engine, prompts, stops=("",))


# From here on tests open a second engine. Of vLLM a process has one: closing any takes what the others need.
def with_end(folder: Path, target: Path, end: int) -> Path:
    """Return a copy of a checkpoint that ends its answers with another token as well."""
    shutil.copytree(folder, target)
    path = target / "generation_config.json"
    config = json.loads(path.read_bytes())
    path.write_text(json.dumps(config | {"eos_token_id": [config["eos_token_id"], end]}))
    return target


def test_an_end_token_ends_an_answer_and_is_no_part_of_it(
    exact: CompletionEngine, batched: CompletionEngine, folder: Path, prompts: list[list[int]], tmp_path: Path
) -> None:
    whole = greedy(batched, prompts)
    end = whole[0].ids[3]
    at = whole[0].ids.index(end)
    ending = make_engine(exact.name, with_end(folder, tmp_path / "model", end), ROWS, scratch=tmp_path)
    completions = greedy(ending, prompts)
    ending.close()
    assert (completions[0].finish, completions[0].truncated, completions[0].stop) == ("eos", False, None)
    assert completions[0].ids == whole[0].ids[:at]
    for completion, before in zip(completions, whole, strict=True):
        assert completion == before or (completion.finish == "eos" and before.ids[len(completion.ids)] == end)


def test_no_files_are_left(folder: Path, tmp_path: Path, engine: CompletionEngine) -> None:
    make_engine(engine.name, folder, 1, scratch=tmp_path).close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_has_a_promise(name: EngineName) -> None:
    assert ENGINES[name].devices


@pytest.mark.llama
@pytest.mark.skipif(bool(LLAMA), reason=f"not installed: {', '.join(LLAMA)} (make -f more.mk test-llama)")
def test_llama_cpp_reads_qwen2_as_transformers_does(folder: Path, tmp_path: Path, prompts: list[list[int]]) -> None:
    """Another order of queries and keys than Llama's, and biases."""
    import torch
    from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM

    from training.engines.checkpoint import save

    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    torch.manual_seed(1)
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        tie_word_embeddings=False,
        initializer_range=0.4,
    )
    model = Qwen2ForCausalLM(config)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if name.endswith("bias"):
                weights.normal_(0, 0.5)
    save(model.eval(), tokenizer, tmp_path / "model")
    results = [
        greedy(make_engine(name, tmp_path / "model", ROWS, scratch=tmp_path), prompts) for name in ("batched", "llama")
    ]
    assert results[0] == results[1] and len({output.ids for output in results[0]}) > 3
