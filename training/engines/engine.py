"""What completes prompts. A stage asks :func:`make_engine` for the one it was granted; all of them give the same rows.

The others are beside it; their promises are in ``specs/stages/engine_choice.py``, their differences in
docs/how-to/engines.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from specs.stages.engine_choice import EngineName
from training.engines.batched import Output, complete
from training.engines.checkpoint import device_of, load
from training.engines.token_sampling import Sampling

if TYPE_CHECKING:
    import torch


class Engine(Protocol):
    """Completes token ids. What it promises of repeating itself: ``specs.stages.engine_choice.ENGINES``."""

    name: EngineName
    told: str
    """What it is, for the manifest."""
    tokenizer: Any
    device: str
    dtype: str
    """Of the weights, as torch calls it."""
    at_once: int
    """Batches that are worth handing over together: more than one where a row that ends makes room for another."""
    facts: dict[str, Any]
    """What the manifest states of it beside that."""

    def complete(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        *,
        samples: int = 1,
        seed: int = 0,
        on_batch: Callable[[int], None] = lambda _: None,
    ) -> list[list[Output]]:
        """Return one list of ``samples`` outputs per prompt, in their order; tell how many prompts are done."""
        ...

    def close(self) -> None:
        """Give the memory of the weights back."""
        ...


def stated(engine: Engine) -> dict[str, Any]:
    """Return what a manifest states of the engine, beside its name."""
    return {"engine": engine.told} | engine.facts


def make_engine(name: EngineName, folder: Path, batch_size: int, *, scratch: Path, share: bool = True) -> Engine:
    """Load a checkpoint into the engine of that name.

    Args:
        name: as registered.
        folder: of the checkpoint.
        batch_size: rows decoded together, at most.
        scratch: a folder for files that are gone when this returns.
        share: as in :class:`Batched`; the other engines decide that by themselves.

    Raises:
        EngineMissing: it cannot run here, or not with these weights. No other takes its place.
    """
    if name == "continuous":
        from training.engines.continuous import Continuous

        return Continuous(folder, batch_size)
    if name == "llama":
        from training.engines.llama import Llama

        return Llama(folder, batch_size, scratch)
    if name == "vllm":
        from training.engines.vllm import Vllm

        return Vllm(folder, batch_size)
    return Batched(*load(folder), batch_size, share=share)


class Batched:
    """Transformers in this process: batches sorted by length, finished rows dropped.

    With ``share``, the beginning that the prompts of a batch have in common is read once for all of them; sums are then
    taken in another order.
    """

    name: EngineName = "batched"
    told = "transformers, batched"
    at_once = 1

    def __init__(self, model: Any, tokenizer: Any, batch_size: int, *, share: bool = True) -> None:
        self.model, self.tokenizer, self.batch_size = model, tokenizer, batch_size
        self.device, self.dtype = device_of(model)
        self.facts: dict[str, Any] = {}
        self._share = share

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
        generator: torch.Generator | None = None,
    ) -> list[list[Output]]:
        """Return one list of ``samples`` outputs per prompt, in their order.

        ``generator`` draws the samples, where one is given, instead of one made of the seed.
        """
        return complete(
            self.model,
            self.tokenizer,
            prompts,
            sampling,
            batch_size=self.batch_size,
            samples=samples,
            seed=seed,
            generator=generator,
            share=self._share,
            on_batch=on_batch,
        )
