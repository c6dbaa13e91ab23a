"""Continuous batching of transformers: a row that ends makes room for the next prompt at once.

The size of its cache and batches follows from the prompts and ``batch_size``, not from the free memory, so that the
same rows are decoded together again. No other attention is fetched over the network; a setting that the library lacks
is refused instead of dropped with a warning; a failed answer is an error instead of a missing row.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specs.stages.base.sampling import require_penalty
from training.engines.batched import Completion, CompletionTask
from training.engines.checkpoint import device_of, load
from training.engines.engine import CompletionEngine, IncompleteCompletion, cut_at_end, ends_of
from training.engines.stop_strings import StopWatcher
from training.engines.token_sampling import TokenSampling

if TYPE_CHECKING:
    from transformers.generation.continuous_batching.requests import RequestState

PAGE = 32
"""Tokens of one row that are kept together."""
READ_AT_ONCE = 2048
"""Tokens of prompts and answers in one pass through the model, at most."""
SILENT_S = 600.0
"""Without an answer for this long the engine counts as dead; no pass may take longer."""


class Continuous(CompletionEngine):
    """Continuous batching of transformers in this process, at most ``batch_size`` rows at a time."""

    name = "continuous"
    description = "transformers, continuous batching"
    at_once = 16

    def __init__(self, folder: Path, batch_size: int) -> None:
        model, self.tokenizer = load(folder)
        self.device, self.dtype = device_of(model)
        self.model = model
        self._ends = ends_of(folder, self.tokenizer)
        self._rows = batch_size

    def _complete(self, work: CompletionTask) -> list[list[Completion]]:
        import torch

        require_penalty(self.name, work.sampling.repetition_penalty)
        on_gpu = [self.model.device] if self.model.device.type == "cuda" else []
        # The library seeds and uses the global generator, which other code uses too.
        with torch.random.fork_rng(devices=on_gpu):
            written = self._generate_ids(work)
        return [
            [cut_at_end(written[place, sample], self._ends, work) for sample in range(work.samples)]
            for place in range(len(work.prompts))
        ]

    def _generate_ids(self, work: CompletionTask) -> dict[tuple[int, int], list[int]]:
        """Return the tokens of every answer by prompt and sample, its end token included."""
        request, prompts, sampling = _requests(), work.prompts, work.sampling
        manager: Any = self.model.init_continuous_batching(
            generation_config=self._decoding(sampling),
            continuous_batching_config=self._batching(work),
        )
        names: dict[str, tuple[int, int]] = {}
        # Sorted as the batched engine sorts them; all of them wait before the first pass, so passes are the same again.
        for place in sorted(range(len(prompts)), key=lambda index: (len(prompts[index]), index)):
            for sample in range(work.samples):
                name = f"{place}/{sample}"
                names[name] = (place, sample)
                manager.input_queue.put(
                    request(
                        request_id=name,
                        initial_tokens=list(prompts[place]),
                        max_new_tokens=sampling.max_new_tokens,
                        eos_token_id=sorted(self._ends),
                        watch=work.watch,
                    )
                )
        written: dict[tuple[int, int], list[int]] = {}
        manager.start()
        try:
            while len(written) < len(names):
                result = self._next(manager)
                written[names[result.request_id]] = list(result.generated_tokens)
                whole = (all((place, n) in written for n in range(work.samples)) for place in range(len(prompts)))
                work.on_batch(sum(whole))
        finally:
            manager.stop(block=True, hard_stop=len(written) < len(names))
            manager.destroy()
        return written

    def _next(self, manager: Any) -> Any:
        """Return the next finished answer."""
        try:
            result = manager.output_router.output_queue.get(timeout=SILENT_S)
        except queue.Empty as error:
            raise IncompleteCompletion(f"continuous batching finished no answer in {SILENT_S:g} s") from error
        if result.error is not None:
            raise IncompleteCompletion(f"continuous batching gave up on prompt {result.request_id}: {result.error}")
        return result

    def _decoding(self, sampling: TokenSampling) -> Any:
        from transformers import GenerationConfig

        drawn: dict[str, Any] = {"do_sample": False}
        if sampling.temperature is not None:
            # Left out, top_k would be 50.
            drawn = {"do_sample": True, "temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": 0}
        return GenerationConfig(
            max_new_tokens=sampling.max_new_tokens, eos_token_id=sorted(self._ends), pad_token_id=0, **drawn
        )

    def _batching(self, work: CompletionTask) -> Any:
        from transformers import ContinuousBatchingConfig

        longest = max(map(len, work.prompts)) + work.sampling.max_new_tokens
        # One page a row begins, and one in reserve: no row is ever put out of the cache to make room for another.
        pages = self._rows * (longest // PAGE + 2)
        return ContinuousBatchingConfig(
            page_size=PAGE,
            num_blocks=pages,
            max_batch_tokens=max(READ_AT_ONCE, self._rows),
            max_requests_per_batch=self._rows,
            seed=work.seed,
            auto_switch_to_flash=False,
            drop_unsupported_processors=False,
            use_cuda_graph=False,
            use_async_batching=False,
        )


def _requests() -> Callable[..., RequestState]:
    """Return the library's request, extended to end at a stop string in the pass that wrote it.

    Cancelling a request from outside takes effect some passes later, and no two runs would be alike.
    """
    from dataclasses import dataclass

    from transformers.generation.continuous_batching.requests import RequestState, RequestStatus

    @dataclass
    class WatchedRequestState(RequestState):
        watch: StopWatcher | None = None

        def update_and_check_completion(self, token_id: int, logprob: float | None) -> bool:
            if super().update_and_check_completion(token_id, logprob):
                return True
            if self.watch is not None and self.watch.has_stopped(self.generated_tokens):
                self.status = RequestStatus.FINISHED
                return True
            return False

        def create_equivalent_initial_request(self) -> RequestState:
            # Only where the cache is too small, and it is not.
            raise IncompleteCompletion(f"prompt {self.request_id} was evicted from the cache")

    return WatchedRequestState
