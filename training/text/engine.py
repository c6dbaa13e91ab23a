"""What completes prompts. Another engine has this form and gives the same rows; only this one runs here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from training.decoding import Output, complete
from training.text.sampling import Sampling


class Engine(Protocol):
    """Completes token ids. Equal prompts, sampling and seed give equal outputs."""

    name: str

    def complete(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        *,
        samples: int = 1,
        seed: int = 0,
        on_batch: Callable[[int], None] = lambda _: None,
    ) -> list[list[Output]]:
        """Return one list of ``samples`` outputs per prompt, in their order."""
        ...


class Batched:
    """Transformers in this process: batches sorted by length, a common beginning read once, finished rows dropped."""

    name = "transformers, batched"

    def __init__(self, model: Any, tokenizer: Any, batch_size: int) -> None:
        self.model, self.tokenizer, self.batch_size = model, tokenizer, batch_size

    def complete(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        *,
        samples: int = 1,
        seed: int = 0,
        on_batch: Callable[[int], None] = lambda _: None,
    ) -> list[list[Output]]:
        """Return one list of ``samples`` outputs per prompt, in their order."""
        return complete(
            self.model,
            self.tokenizer,
            prompts,
            sampling,
            batch_size=self.batch_size,
            samples=samples,
            seed=seed,
            share=True,
            on_batch=on_batch,
        )
