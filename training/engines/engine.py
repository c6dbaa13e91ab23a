"""What completes prompts; all engines give the same rows (``engine_factory.py`` loads the granted one).

Their promises are in ``specs/stages/base/sampling.py``, their differences in docs/how-to/engines.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from specs.stages.base.sampling import EngineName
from training.engines.batched import Batch, Completion, CompletionTask, ends_in, in_batches, output_of, write
from training.engines.checkpoint import device_of
from training.engines.sampling_noise import stream_of
from training.engines.stop_strings import StopWatcher
from training.engines.token_sampling import TokenSampling


class EngineMissing(Exception):
    """The granted engine cannot run on this machine or with these weights. No other engine replaces it."""

    def __init__(self, why: str, hint: str) -> None:
        super().__init__(f"{why}; {hint}")


class IncompleteCompletion(Exception):
    """An engine gave up in the middle of an answer, or left answers out."""


class CompletionEngine(ABC):
    """Completes token ids. ``specs.stages.base.sampling.ENGINES`` says whether it repeats itself."""

    name: EngineName
    description: str
    """What it is, for the manifest."""
    model: Any = None
    tokenizer: Any
    device: str
    dtype: str
    """The type of the weights, as torch names it."""
    at_once: int = 1
    """Batches to hand over together: more than one where a row that ends makes room for another."""
    facts: Mapping[str, Any] = MappingProxyType({})
    """More for the manifest."""

    def complete(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: TokenSampling,
        *,
        samples: int = 1,
        seed: int = 0,
        streams: Sequence[Sequence[int]] = (),
        on_batch: Callable[[int], None] = lambda _: None,
    ) -> list[list[Completion]]:
        """Return one list of ``samples`` outputs per prompt, in their order; report how many prompts are done.

        Samples are drawn by ``streams``, one for each sample of each prompt, made of the seed if left out; engines that
        do not promise ``streams`` draw by the seed.

        Raises ValueError for an empty stop or a penalty that the engine lacks, NotWhole if it gave up on an answer.
        """
        watch = StopWatcher(self.tokenizer, sampling.stops, keep_special=sampling.keep_special)
        streams = streams or [[stream_of(seed, place, n) for n in range(samples)] for place in range(len(prompts))]
        return self._complete(CompletionTask(prompts, sampling, samples, seed, streams, on_batch, watch))

    @abstractmethod
    def _complete(self, work: CompletionTask) -> list[list[Completion]]: ...

    def close(self) -> None:
        """Release the weights."""
        self.model = None

    def describe_for_manifest(self, broken_off: str = "") -> dict[str, Any]:
        """Return what a manifest states of the engine next to its name, and why sampling stopped early, if it did."""
        return {"engine": self.description, **self.facts} | ({"broken_off": broken_off} if broken_off else {})


@contextmanager
def without_plans() -> Generator[None]:
    """Have attention on a GPU computed without cuDNN while this lasts.

    cuDNN plans anew for every length of the keys, and each token makes them longer: on an H200 a step of 16 layers took
    54 to 101 ms instead of 15 to 19 (decision 92).
    """
    import torch

    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


class BatchedEngine(CompletionEngine):
    """Transformers in this process: prompts sorted by length, finished rows replaced by those of the next prompts.

    With ``share``, a batch's common beginning is read once for all prompts; sums are then taken in another order.
    """

    name = "batched"
    description = "transformers, batched"
    at_once = 4

    def __init__(self, model: Any, tokenizer: Any, batch_size: int, *, share: bool = True) -> None:
        self.model, self.tokenizer, self.batch_size = model, tokenizer, batch_size
        self.device, self.dtype = device_of(model)
        self._share = share

    def _complete(self, work: CompletionTask) -> list[list[Completion]]:
        import torch

        ends = ends_in(self.model.generation_config, self.tokenizer)

        def complete(task: CompletionTask) -> list[Completion]:
            with torch.inference_mode(), without_plans():
                return write(Batch(self.model, self._share), task, ends, self.batch_size)

        return in_batches(work, len(work.prompts) * work.samples, complete)


def cut_at_end(ids: Sequence[int], ends: frozenset[int], work: CompletionTask) -> Completion:
    """Return an answer up to its first end token, stop string or the limit, by one rule for every engine.

    Some engines write a few tokens more, which are cut. Raises NotWhole if nothing ended a shorter answer.
    """
    written: list[int] = []
    limit = work.sampling.max_new_tokens
    for id in ids[:limit]:
        if id in ends:
            return output_of(written, "eos", work.watch)
        written.append(id)
        if work.watch.has_stopped(written):
            return output_of(written, "stop", work.watch)
    if len(written) < limit:
        raise IncompleteCompletion(f"an answer has {len(written)} of {limit} tokens and no end")
    return output_of(written, "length", work.watch)


def ends_of(folder: Path, tokenizer: Any) -> frozenset[int]:
    """Return the ids that end an answer of a checkpoint: the generation config's and the tokenizer's."""
    from transformers import AutoConfig, GenerationConfig

    try:
        config = GenerationConfig.from_pretrained(folder, local_files_only=True)
    except OSError:
        config = GenerationConfig.from_model_config(AutoConfig.from_pretrained(folder, local_files_only=True))
    return ends_in(config, tokenizer)
