"""What can complete prompts, and what each of them promises. A stage names one; the code is ``training/engines``."""

from __future__ import annotations

from typing import Literal, NamedTuple, Self

from pydantic import model_validator

from specs.stages.base.stage import DeviceParameters
from specs.system.digests import omit_default

EngineName = Literal["batched", "continuous", "llama", "vllm"]


class Promise(NamedTuple):
    """What an engine holds to."""

    repeatable: bool
    """Whether the same prompts, sampling, seed, batch size and machine give the same answers again."""
    penalty: bool
    """Whether it has the repetition penalty of transformers, which counts the prompt too."""
    devices: tuple[Literal["auto", "cpu", "cuda"], ...]
    """Where its stage may run."""


_ANYWHERE = ("auto", "cpu", "cuda")
ENGINES: dict[EngineName, Promise] = {
    "batched": Promise(repeatable=True, penalty=True, devices=_ANYWHERE),
    "continuous": Promise(repeatable=True, penalty=False, devices=_ANYWHERE),
    "llama": Promise(repeatable=True, penalty=True, devices=("auto", "cpu")),
    "vllm": Promise(repeatable=False, penalty=True, devices=("cpu", "cuda")),
}


class Writing(DeviceParameters):
    """What all parameters of stages that have a model write text share."""

    engine: EngineName = omit_default("batched")
    """What completes the prompts: ``batched`` (transformers), ``continuous`` (its continuous batching), ``llama``
    (llama.cpp, CPU) or ``vllm`` (``device: cuda``, or ``cpu`` and its build for CPUs). Nothing runs in the place of a
    missing one."""

    @model_validator(mode="after")
    def _engine_fits(self) -> Self:
        """Refuse what the engine would pass over."""
        promise = ENGINES[self.engine]
        if self.device not in promise.devices:
            known = " or ".join(promise.devices)
            raise ValueError(f"engine '{self.engine}' runs on device {known}, device is '{self.device}'")
        require_penalty(self.engine, getattr(self, "repetition_penalty", 1.0))
        return self


def require_penalty(engine: EngineName, repetition_penalty: float) -> None:
    """Raise ValueError for a repetition penalty that the engine would pass over."""
    if repetition_penalty != 1 and not ENGINES[engine].penalty:
        raise ValueError(f"engine '{engine}' has no repetition penalty, repetition_penalty is {repetition_penalty:g}")
