"""Continuous batching of transformers: a row that ends makes room for the next prompt at once.

What the library would decide by itself is set here: the size of its cache and batches follows from the prompts and
``batch_size`` instead of from the free memory, so that what is decoded together is the same again; no other attention
is fetched over the network; a setting it does not have is refused instead of dropped with a warning; and an answer
that failed is an error instead of a missing row.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specs.stages.engine_choice import EngineName, require_penalty
from training.engines.answer_ending import NotWhole, ended, ends_of
from training.engines.batched import Output
from training.engines.checkpoint import device_of, load
from training.engines.stop_strings import Watch
from training.engines.token_sampling import Sampling

if TYPE_CHECKING:
    from transformers.generation.continuous_batching.requests import RequestState

PAGE = 32
"""Tokens of one row that are kept together."""
READ_AT_ONCE = 2048
"""Tokens of prompts and answers in one pass through the model, at most."""
SILENT_S = 600.0
"""How long no answer may end before the engine is taken for dead: the longest one pass and its answers may take."""


class Continuous:
    """Continuous batching of transformers in this process, at most ``batch_size`` rows at a time."""

    name: EngineName = "continuous"
    told = "transformers, continuous batching"
    at_once = 16

    def __init__(self, folder: Path, batch_size: int) -> None:
        model, self.tokenizer = load(folder)
        self.device, self.dtype = device_of(model)
        self.model: Any = model
        self.facts: dict[str, Any] = {}
        self._ends = ends_of(folder, self.tokenizer)
        self._rows = batch_size

    def close(self) -> None:
        """Let go of the model."""
        self.model = None

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
            ValueError: the sampling asks for a repetition penalty, which this engine does not have.
            NotWhole: the library gave up on an answer.
        """
        import torch

        require_penalty(self.name, sampling.repetition_penalty)
        watch = Watch(self.tokenizer, sampling.stops, keep_special=sampling.keep_special)
        on_gpu = [self.model.device] if self.model.device.type == "cuda" else []
        # The library seeds and uses the global generator, which is not this engine's to change.
        with torch.random.fork_rng(devices=on_gpu):
            written = self._written(prompts, sampling, watch, samples, seed, on_batch)
        return [
            [ended(written[place, sample], self._ends, watch, sampling) for sample in range(samples)]
            for place in range(len(prompts))
        ]

    def _written(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        watch: Watch,
        samples: int,
        seed: int,
        on_batch: Callable[[int], None],
    ) -> dict[tuple[int, int], list[int]]:
        """Return the tokens of every answer by prompt and sample, its end token included."""
        request = _requests()
        manager: Any = self.model.init_continuous_batching(
            generation_config=self._decoding(sampling),
            continuous_batching_config=self._batching(prompts, sampling, seed),
        )
        names: dict[str, tuple[int, int]] = {}
        # Sorted as the batched engine sorts them; all of them wait before the first pass, so passes are the same again.
        for place in sorted(range(len(prompts)), key=lambda index: (len(prompts[index]), index)):
            for sample in range(samples):
                name = f"{place}/{sample}"
                names[name] = (place, sample)
                manager.input_queue.put(
                    request(
                        request_id=name,
                        initial_tokens=list(prompts[place]),
                        max_new_tokens=sampling.max_new_tokens,
                        eos_token_id=sorted(self._ends),
                        watch=watch,
                    )
                )
        written: dict[tuple[int, int], list[int]] = {}
        manager.start()
        try:
            while len(written) < len(names):
                result = self._next(manager)
                written[names[result.request_id]] = list(result.generated_tokens)
                on_batch(_whole(written, len(prompts), samples))
        finally:
            manager.stop(block=True, hard_stop=len(written) < len(names))
            manager.destroy()
        return written

    def _next(self, manager: Any) -> Any:
        """Return the next finished answer."""
        try:
            result = manager.output_router.output_queue.get(timeout=SILENT_S)
        except queue.Empty as error:
            raise NotWhole(f"continuous batching ended no answer in {SILENT_S:g} s") from error
        if result.error is not None:
            raise NotWhole(f"continuous batching gave up on prompt {result.request_id}: {result.error}")
        return result

    def _decoding(self, sampling: Sampling) -> Any:
        from transformers import GenerationConfig

        drawn: dict[str, Any] = {"do_sample": False}
        if sampling.temperature is not None:
            # Left out, top_k would be 50.
            drawn = {"do_sample": True, "temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": 0}
        return GenerationConfig(
            max_new_tokens=sampling.max_new_tokens, eos_token_id=sorted(self._ends), pad_token_id=0, **drawn
        )

    def _batching(self, prompts: Sequence[Sequence[int]], sampling: Sampling, seed: int) -> Any:
        from transformers import ContinuousBatchingConfig

        longest = max(len(prompt) for prompt in prompts) + sampling.max_new_tokens
        # One page a row begins, and one in reserve: no row is ever put out of the cache to make room for another.
        pages = self._rows * (longest // PAGE + 2)
        return ContinuousBatchingConfig(
            page_size=PAGE,
            num_blocks=pages,
            max_batch_tokens=max(READ_AT_ONCE, self._rows),
            max_requests_per_batch=self._rows,
            seed=seed,
            auto_switch_to_flash=False,
            drop_unsupported_processors=False,
            use_cuda_graph=False,
            use_async_batching=False,
        )


def _whole(written: dict[tuple[int, int], list[int]], prompts: int, samples: int) -> int:
    """Return how many prompts have all of their answers."""
    return sum(all((place, sample) in written for sample in range(samples)) for place in range(prompts))


def _requests() -> Callable[..., RequestState]:
    """Return the library's request with one thing more: it ends at a stop string, in the pass that wrote it.

    Cancelling it from outside would take effect some passes later, and no two runs would be alike.
    """
    from dataclasses import dataclass

    from transformers.generation.continuous_batching.requests import RequestState, RequestStatus

    @dataclass
    class Watched(RequestState):
        watch: Watch | None = None

        def update_and_check_completion(self, token_id: int, logprob: float | None) -> bool:
            if super().update_and_check_completion(token_id, logprob):
                return True
            if self.watch is not None and self.watch.has_stopped(self.generated_tokens):
                self.status = RequestStatus.FINISHED
                return True
            return False

        def create_equivalent_initial_request(self) -> RequestState:
            # Only where the cache is too small, and it is not.
            raise NotWhole(f"prompt {self.request_id} was put out of the cache")

    return Watched
