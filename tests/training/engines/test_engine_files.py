"""The GGUF file that llama.cpp is given, and what vLLM is asked, where neither of the two is installed."""

from __future__ import annotations

import inspect
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from testing.fixtures.small_text import small_model
from training.engines.checkpoint import load
from training.engines.engine import EngineMissing, IncompleteCompletion, ends_of
from training.engines.engine_factory import make_engine
from training.engines.gguf_file import write_gguf
from training.engines.gguf_weights import NoGguf
from training.engines.token_sampling import TokenSampling
from training.engines.vllm import SETTINGS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("random"))


def test_the_file_holds_the_weights_as_they_are(folder: Path, tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf", reason="the package gguf is not installed (extra demo)")
    write_gguf(folder, tmp_path / "model.gguf")
    result = gguf.GGUFReader(tmp_path / "model.gguf")
    model, _ = load(folder)
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
    assert {item.tensor_type.name for item in result.tensors} == {"F32"}
    remaining = {names.get_name(name, try_suffixes=(".weight",)): value for name, value in weights.items()}
    assert sorted(remaining) == sorted(item.name for item in result.tensors)
    for tensor in result.tensors:
        ours, theirs = tensor.data, remaining[tensor.name]
        if "attn_q" in tensor.name or "attn_k" in tensor.name:
            heads = 2 if "attn_q" in tensor.name else 1
            width = theirs.shape[0] // heads
            # Row 2i of a head is the i-th of its first half, row 2i + 1 the i-th of its second.
            places = [
                head * width + (row // 2) + (row % 2) * (width // 2) for head in range(heads) for row in range(width)
            ]
            assert not (ours == theirs).all()
            theirs = theirs[places]
        assert (ours == theirs).all(), tensor.name
    fields = {name: field.contents() for name, field in result.fields.items()}
    assert fields["general.architecture"] == "llama" and fields["tokenizer.ggml.model"] == "no_vocab"
    assert fields["llama.vocab_size"] == model.config.vocab_size and fields["llama.attention.head_count_kv"] == 1


@pytest.mark.parametrize(
    ("change", "output"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, "cannot convert a GPT2LMHeadModel"),
        ({"hidden_act": "gelu"}, "hidden_act gelu"),
        (
            {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}},
            "rope_type linear, which cannot be converted",
        ),
    ],
)
def test_what_would_be_another_model_in_llama_cpp_is_refused(
    folder: Path, tmp_path: Path, change: dict[str, Any], output: str
) -> None:
    pytest.importorskip("gguf", reason="the package gguf is not installed (extra demo)")
    config = json.loads((folder / "config.json").read_bytes())
    (tmp_path / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(NoGguf, match=output):
        write_gguf(tmp_path, tmp_path / "model.gguf")


# Of vllm 0.32.0 (vllm/entrypoints/llm.py, vllm/engine/arg_utils.py, vllm/sampling_params.py): what is used of it.
LLM_TAKES = {
    *("model", "dtype", "seed", "generation_config", "max_num_seqs", "max_model_len", "enable_prefix_caching"),
    *("enforce_eager", "enable_chunked_prefill"),
}
SAMPLING_TAKES = {
    "n", "repetition_penalty", "temperature", "top_p", "top_k", "seed", "stop", "stop_token_ids", "max_tokens",
    "skip_special_tokens", "detokenize", "ignore_eos",
}  # fmt: skip


def stand_in(folder: Path, ways: list[str]) -> Any:
    """Return a module with the names of vLLM that answers with the batched engine, and takes only what vLLM takes.

    ``ways`` changes how answers come back.
    """
    module: Any = ModuleType("vllm")
    module.__version__ = "0.33.0"
    module.requests = []

    class SamplingParams(SimpleNamespace):
        def __init__(self, **arguments: Any) -> None:
            assert arguments.keys() <= SAMPLING_TAKES and (arguments["n"] == 1 or arguments["temperature"])
            super().__init__(**arguments)

    class LLM:
        def __init__(self, **arguments: Any) -> None:
            assert arguments.keys() <= LLM_TAKES and arguments["model"] == str(folder)
            module.requests.append(arguments)
            self.engine: Any = make_engine("batched", folder, 4, scratch=folder)

        def generate(self, prompts: list[dict[str, Any]], sampling_params: list[Any], *, use_tqdm: bool) -> list[Any]:
            assert not use_tqdm and len(prompts) == len(sampling_params)
            return [self.answer_prompt(prompt, drawn) for prompt, drawn in zip(prompts, sampling_params, strict=True)]

        def answer_prompt(self, requests: dict[str, Any], drawn: Any) -> Any:
            assert requests.keys() == {"prompt_token_ids"}
            module.requests.append(drawn)
            sampling = TokenSampling(drawn.max_tokens, drawn.temperature or None, drawn.top_p, stops=tuple(drawn.stop))
            (outputs,) = self.engine.complete(
                [requests["prompt_token_ids"]], sampling, samples=drawn.n, seed=drawn.seed
            )
            values: list[Any] = []
            for index, output in enumerate(outputs):
                ids, reason, stop = [*output.ids], "length", None
                if output.finish != "length":
                    reason, stop = "stop", output.stop
                if output.finish == "eos" and "without the end token" not in ways:
                    ids.append(drawn.stop_token_ids[0])
                if "cut short" in ways:
                    ids = ids[:-1]
                if "aborted" in ways:
                    reason = "abort"
                values.append(SimpleNamespace(index=index, token_ids=ids, finish_reason=reason, stop_reason=stop))
            return SimpleNamespace(outputs=values[:-1] if "one left out" in ways else values[::-1])

    module.LLM, module.SamplingParams = LLM, SamplingParams
    return module


@pytest.fixture
def ways(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    results: list[str] = []
    monkeypatch.setitem(sys.modules, "vllm", stand_in(folder, results))
    monkeypatch.setattr("training.engines.vllm._gpu", lambda: False)
    monkeypatch.setattr("training.engines.vllm._built_for_a_cpu", lambda: True)
    for name in SETTINGS:
        monkeypatch.setenv(name, "as it was")
    return results


def prompts_of(tokenizer: Any) -> list[list[int]]:
    return [list(tokenizer(text)["input_ids"]) for text in ("write a tale", "name the sea", "a short poem about rain")]


@pytest.mark.parametrize("way", ["", "without the end token"])
def test_answers_of_vllm_become_the_outputs_of_every_engine(folder: Path, ways: list[str], way: str) -> None:
    ways.append(way)
    engine = make_engine("vllm", folder, 4, scratch=folder)
    batched = make_engine("batched", folder, 4, scratch=folder)
    prompts = prompts_of(engine.tokenizer)
    (first, *_) = [output for (output,) in batched.complete(prompts, TokenSampling(12))]
    stops = (batched.tokenizer.decode(list(first.ids[:4]))[1:-1],)
    for sampling in (TokenSampling(12), TokenSampling(12, stops=stops)):
        results = engine.complete(prompts, sampling)
        assert results == batched.complete(prompts, sampling)
    both = engine.complete(prompts, TokenSampling(6, 1.0, 0.9), samples=2, seed=3)
    assert [len(completions) for completions in both] == [2, 2, 2]
    opened, *drawn = sys.modules["vllm"].requests
    assert (opened["dtype"], opened["generation_config"], opened["max_num_seqs"]) == ("float32", "vllm", 4)
    assert opened["enforce_eager"] and not opened["enable_chunked_prefill"]
    assert drawn[0].temperature == 0.0 and drawn[0].top_k == 0
    assert drawn[0].stop_token_ids == sorted(ends_of(folder, engine.tokenizer))
    # Every prompt has a seed of its own.
    assert len({item.seed for item in drawn[-3:]}) == 3
    # It takes no several greedy answers to a prompt.
    for answers, alone in zip(
        engine.complete(prompts, TokenSampling(6), samples=2), engine.complete(prompts, TokenSampling(6)), strict=True
    ):
        assert answers == alone * 2
    engine.close()


def test_on_a_gpu_weights_are_in_bfloat16_and_steps_are_compiled(
    folder: Path, ways: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ways == []
    monkeypatch.setattr("training.engines.vllm._gpu", lambda: True)
    engine = make_engine("vllm", folder, 4, scratch=folder)
    (opened,) = sys.modules["vllm"].requests
    assert (engine.device, engine.dtype, opened["dtype"], opened["enforce_eager"]) == (
        *("cuda:0", "bfloat16"),
        *("bfloat16", False),
    )


def test_a_vllm_that_is_damaged_is_not_taken_for_one_that_needs_a_gpu(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("raise ImportError('no libnuma here')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    monkeypatch.setattr("training.engines.vllm._gpu", lambda: False)
    with pytest.raises(EngineMissing, match="cannot be imported: no libnuma here"):
        make_engine("vllm", folder, 4, scratch=folder)


@pytest.mark.parametrize(
    ("way", "output"),
    [("cut short", "of 6 tokens and no end"), ("aborted", "ended an answer with 'abort'"), ("one left out", "0 of 1")],
)
def test_an_answer_that_is_not_whole_is_an_error(folder: Path, ways: list[str], way: str, output: str) -> None:
    ways.append(way)
    engine = make_engine("vllm", folder, 4, scratch=folder)
    with pytest.raises(IncompleteCompletion, match=output):
        engine.complete(prompts_of(engine.tokenizer), TokenSampling(6))


@pytest.mark.skipif(find_spec("vllm") is None, reason="vllm is not installed (make -f more.mk test-vllm)")
def test_the_installed_vllm_takes_what_it_is_given() -> None:
    library: Any = __import__("vllm")
    taken = {name for item in (library.LLM.__init__, library.EngineArgs) for name in inspect.signature(item).parameters}
    assert taken >= LLM_TAKES
    assert set(inspect.signature(library.SamplingParams).parameters) >= SAMPLING_TAKES
