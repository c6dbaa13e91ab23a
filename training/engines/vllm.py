"""vLLM, on an NVIDIA GPU or, in its build for them, on a CPU: see docs/how-to/engines.md.

Each prompt has its seed, but timing decides what is decoded together, and with it the last digits of sums; answers are
not promised to repeat themselves.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from training.engines.batched import Completion, CompletionTask
from training.engines.checkpoint import free
from training.engines.engine import CompletionEngine, EngineMissing, IncompleteCompletion, cut_at_end, ends_of
from training.rules.prompt_text import seed_of

SETTINGS = {
    # A separate process would outlive a stage that is killed, and hold the GPU.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # Otherwise it reports its use to its makers.
    "VLLM_NO_USAGE_STATS": "1",
    # On a CPU: the threads are those of the job, and the cache takes so many GiB, not nine tenths of the memory.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
}


class Vllm(CompletionEngine):
    """vLLM in this process, with weights and cache in bfloat16 on a GPU, in float32 on a CPU, as other engines."""

    name = "vllm"
    at_once = 64

    def __init__(self, folder: Path, batch_size: int) -> None:
        os.environ.update(SETTINGS)
        gpu = _gpu()
        if not gpu and not _built_for_a_cpu():
            raise EngineMissing(
                "engine 'vllm' needs an NVIDIA GPU, and torch sees none here", "use another engine, or vLLM for CPUs"
            )
        self.device, self.dtype = ("cuda:0", "bfloat16") if gpu else ("cpu", "float32")
        library = _import_vllm_module("vllm")
        from transformers import AutoTokenizer

        self._library = library
        self.description = f"vLLM {library.__version__}"
        self.tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self._ends = ends_of(folder, self.tokenizer)
        self.model = library.LLM(
            model=str(folder),
            dtype=self.dtype,
            max_num_seqs=batch_size,
            # Settings of sampling come from the stage alone.
            generation_config="vllm",
            # On a CPU compiling took minutes for a model that answers in seconds.
            enforce_eager=not gpu,
            # A prompt read in parts has its generator set back, which that of a CPU cannot be.
            enable_chunked_prefill=gpu,
            seed=0,
        )

    def close(self) -> None:
        """Give the GPU's memory back."""
        self.model = None
        free()

    def _complete(self, work: CompletionTask) -> list[list[Completion]]:
        import torch

        prompts, greedy = work.prompts, not work.sampling.temperature
        # It refuses several greedy answers to a prompt: they would be one.
        copies, samples = (work.samples, 1) if greedy else (1, work.samples)
        counts = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        seeds = [seed_of(work.seed, "vllm", place) for place in range(len(prompts))]
        drawn = [self._sampling(work, samples, seed) for seed in seeds]
        # It draws from torch's own numbers next to those of each prompt's seed.
        with torch.random.fork_rng(devices=[0] if self.device == "cuda:0" else []):
            result = self.model.generate(counts, drawn, use_tqdm=False)
        results: list[list[Completion]] = []
        for value in result:
            if len(value.outputs) != samples:
                raise IncompleteCompletion(f"vLLM gave {len(value.outputs)} of {samples} answers to a prompt")
            written = sorted(value.outputs, key=lambda output: output.index)
            results.append([cut_at_end(self._ids(output), self._ends, work) for output in written] * copies)
        if len(results) != len(prompts):
            raise IncompleteCompletion(f"vLLM answered {len(results)} of {len(prompts)} prompts")
        work.on_batch(len(prompts))
        return results

    def _sampling(self, work: CompletionTask, samples: int, seed: int) -> Any:
        sampling = work.sampling
        return self._library.SamplingParams(
            n=samples,
            temperature=sampling.temperature or 0.0,
            top_p=sampling.top_p,
            top_k=0,
            repetition_penalty=sampling.repetition_penalty,
            seed=seed,
            stop=list(sampling.stops),
            stop_token_ids=sorted(self._ends),
            max_tokens=sampling.max_new_tokens,
            skip_special_tokens=not sampling.keep_special,
        )

    def _ids(self, output: Any) -> list[int]:
        """Return an answer's tokens, with an end token last if one ended it."""
        if output.finish_reason not in ("stop", "length"):
            raise IncompleteCompletion(f"vLLM ended an answer with '{output.finish_reason}'")
        by_token = output.finish_reason == "stop" and not isinstance(output.stop_reason, str)
        return [*output.token_ids, *([min(self._ends)] if by_token else [])]


def _gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _built_for_a_cpu() -> bool:
    return find_spec("vllm") is not None and _import_vllm_module("vllm.platforms").current_platform.is_cpu()


def _import_vllm_module(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise EngineMissing(
            f"engine 'vllm' cannot be imported: {error}", "docs/how-to/engines.md says what it needs next to this"
        ) from error
