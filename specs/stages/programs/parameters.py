"""Parameters of the kind that has a model write programs."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from specs.stages.base.sampling import BatchSize, Seed, Writing
from specs.system.digests import omit_default


class CodeEvalParameters(Writing):
    """Have the model write Python functions; Peergate runs each with its problem's tests, in a sandbox.

    An item is a problem: its ``prompt`` is the beginning of a function with a docstring, ``constraint`` holds
    ``entry_point`` (the function's name), ``tests`` (assertions) and, to test the harness itself, ``solution``. Tests
    get copies: arguments and results are numbers, texts and containers of Python's own. HumanEval's file is read too.
    """

    samples: Annotated[int, Field(ge=1, le=256)] = 1
    """Answers to each problem."""
    k: Annotated[int, Field(ge=1, le=256)] = 1
    """The k of ``pass_at_k``: at most ``samples``."""
    temperature: Annotated[float, Field(gt=0, le=2)] | None = None
    """None: greedy, one answer to each problem."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    max_problems: Annotated[int, Field(ge=1)] | None = omit_default()
    """Use only the first this many problems (for a pilot)."""
    seconds: Annotated[int, Field(ge=1, le=60)] = 5
    """Processor time that a program and its tests may take; four times as much by the clock."""
    memory_mb: Annotated[int, Field(ge=64, le=4096)] = 512
    """What they may hold in memory."""
    max_new_tokens: Annotated[int, Field(ge=1, le=4096)] = 256
    batch_size: BatchSize = 16
    seed: Seed = 0

    @model_validator(mode="after")
    def _enough_samples(self) -> Self:
        """Refuse a k that no estimate is known of, and repeated greedy answers."""
        if self.k > self.samples:
            raise ValueError(f"pass_at_k with k = {self.k} needs as many samples of each problem, not {self.samples}")
        if self.temperature is None and self.samples > 1:
            raise ValueError("greedy answers are all the same: state a temperature, or one sample")
        return self
