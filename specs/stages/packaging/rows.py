"""Raw rows of the kind that packages a checkpoint."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from specs.system.digests import Contract, Count, Positive, Quantity


class PackageRow(Contract):
    """One probe: the token ids from the checkpoint and from the package in a fresh process."""

    unique_by = ("item",)

    item: str
    expected: tuple[Count, ...]
    reloaded: tuple[Count, ...]


class ExportRow(Contract):
    """One probe: the checkpoint's greedy answer, and what llama.cpp finds most likely after each of its tokens.

    Where llama.cpp was not asked, there is the answer alone.
    """

    unique_by = ("item",)

    item: str
    expected: tuple[Count, ...]
    read: tuple[Count, ...] | None = None
    """The most likely token at each place of ``expected``, after the checkpoint's own tokens before it."""
    largest: Quantity | None = None
    """The largest difference of two logits."""
    divergence: Quantity | None = None
    """The mean divergence, in nats, of llama.cpp's next token from the checkpoint's, over the answer's places."""


class ExportTextRow(Contract):
    """One text as the checkpoint's tokenizer and the exported one read it."""

    unique_by = ("text",)

    text: str
    expected: tuple[Count, ...]
    read: tuple[Count, ...]


class BenchRow(Contract):
    """One timed round. The time is the job's word: no other machine can repeat it."""

    unique_by = ("round", "run")

    round: Positive
    run: Literal["engine", "plain"]
    tokens: Positive
    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)]

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return self.tokens / self.seconds
