"""vLLM, on an NVIDIA GPU. Not run by the project's own tests, which have no such machine: see docs/how-to/engines.md.

Its seeds are held to per prompt, but what is decoded together depends on timing, and with it the last digits of sums;
so answers are not promised to repeat themselves.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from specs.stages.engine_choice import EngineName
from training.engines.answer_ending import NotWhole, ended, ends_of
from training.engines.batched import Output
from training.engines.stop_strings import Watch
from training.engines.token_sampling import Sampling
from training.engines.unavailable import EngineMissing
from training.rules.prompt_text import seed_of

SETTINGS = {
    # Its own process would outlive a stage that is killed, and hold the GPU.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # It reports how it is used to its makers otherwise.
    "VLLM_NO_USAGE_STATS": "1",
}


class Vllm:
    """vLLM in this process, with weights and cache in bfloat16 as the other engines have them on a GPU."""

    name: EngineName = "vllm"
    device, dtype = "cuda:0", "bfloat16"
    at_once = 64

    def __init__(self, folder: Path, batch_size: int) -> None:
        if not _gpu():
            raise EngineMissing("engine 'vllm' needs an NVIDIA GPU, and torch sees none here", "use another engine")
        os.environ.update(SETTINGS)
        try:
            library: Any = import_module("vllm")
        except ImportError as error:
            raise EngineMissing(
                f"engine 'vllm' cannot be imported: {error}", "docs/how-to/engines.md says what it needs beside this"
            ) from error
        from transformers import AutoTokenizer

        self._library = library
        self.told = f"vLLM {library.__version__}"
        self.facts: dict[str, Any] = {}
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        self._ends = ends_of(folder, self.tokenizer)
        self._engine: Any = library.LLM(
            model=str(folder),
            dtype=self.dtype,
            max_num_seqs=batch_size,
            # Settings of sampling come from the stage alone.
            generation_config="vllm",
            seed=0,
        )

    def close(self) -> None:
        """Give the GPU's memory back."""
        from training.engines.checkpoint import free

        self._engine = None
        free()

    def complete(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        *,
        samples: int = 1,
        seed: int = 0,
        on_batch: Callable[[int], None] = lambda _: None,
    ) -> list[list[Output]]:
        """Return one list of ``samples`` outputs per prompt, in their order.

        Raises:
            NotWhole: vLLM left an answer out, or ended one by no rule it was given.
        """
        watch = Watch(self.tokenizer, sampling.stops, keep_special=sampling.keep_special)
        asked = [{"prompt_token_ids": list(prompt)} for prompt in prompts]
        drawn = [self._sampling(sampling, samples, seed_of(seed, "vllm", place)) for place in range(len(prompts))]
        found = self._engine.generate(asked, drawn, use_tqdm=False)
        results: list[list[Output]] = []
        for one in found:
            if len(one.outputs) != samples:
                raise NotWhole(f"vLLM gave {len(one.outputs)} of {samples} answers to a prompt")
            written = sorted(one.outputs, key=lambda output: output.index)
            results.append([ended(self._ids(output), self._ends, watch, sampling) for output in written])
        if len(results) != len(prompts):
            raise NotWhole(f"vLLM answered {len(results)} of {len(prompts)} prompts")
        on_batch(len(prompts))
        return results

    def _sampling(self, sampling: Sampling, samples: int, seed: int) -> Any:
        return self._library.SamplingParams(
            n=samples,
            temperature=0.0 if sampling.temperature is None else sampling.temperature,
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
        """Return an answer's tokens; where an end token ended it, one stands at the end."""
        if output.finish_reason not in ("stop", "length"):
            raise NotWhole(f"vLLM ended an answer with '{output.finish_reason}'")
        by_token = output.finish_reason == "stop" and not isinstance(output.stop_reason, str)
        return [*output.token_ids, *([min(self._ends)] if by_token else [])]


def _gpu() -> bool:
    import torch

    return torch.cuda.is_available()
