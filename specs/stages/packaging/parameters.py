"""Parameters of the kind that packages a checkpoint."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field

from specs.stages.base.sampling import Writing
from specs.stages.base.stage import DeviceParameters
from specs.system.digests import Contract

GgufFormat = Literal["f32", "f16", "q8_0"]


class Bar(NamedTuple):
    """What an export has to reach."""

    same_tokens: float
    """Share of the steps at which the most likely token is the same."""
    largest_distance: float
    """The largest distance of two logits."""
    mean_divergence: float
    """Kullback-Leibler divergence of the next token, in nats, on average."""


BARS: dict[GgufFormat, Bar] = {
    "f32": Bar(1.0, 1e-3, 1e-6),
    "f16": Bar(0.97, 0.5, 1e-4),
    "q8_0": Bar(0.9, 10.0, 2e-2),
}


PACKAGE = "cyllama"


def is_installed() -> bool:
    """Return whether the packages that write and read GGUF files are installed here."""
    return find_spec("gguf") is not None and find_spec(PACKAGE) is not None


class PackageParameters(DeviceParameters):
    """Save the model for use, reload it in a fresh process and compare greedy outputs."""

    probe_items: Annotated[int, Field(ge=1, le=1000)] = 10
    max_new_tokens: Annotated[int, Field(ge=1, le=4096)] = 64
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0


class ExportParameters(Contract):
    """Write the model as a GGUF file with its tokenizer, and have llama.cpp read it in another process, on the CPU."""

    format: GgufFormat = "f16"
    """The format of the matrices: ``f32``, ``f16``, or ``q8_0`` with 8 bits and a scale for every 32 values."""
    verify: Literal["if_installed", "llama_cpp", "no", "not_installed"] = "if_installed"
    """Whether llama.cpp reads the file (extra ``gguf``). ``if_installed`` is registered as ``llama_cpp`` or
    ``not_installed``, by what is installed where the session opens. With ``no`` the checks of the reading do not
    apply, nor does a criterion on them; with ``not_installed`` the criterion stays open: nothing has shown it."""
    probe_items: Annotated[int, Field(ge=1, le=1000)] = 8
    max_new_tokens: Annotated[int, Field(ge=1, le=4096)] = 48
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0

    @property
    def is_read(self) -> bool:
        """Return whether llama.cpp reads the file: without that its answers are compared with nothing."""
        return self.verify == "llama_cpp"

    def resolve_registration(self) -> Self:
        """Return what is registered of these."""
        if self.verify != "if_installed":
            return self
        return self.model_copy(update={"verify": "llama_cpp" if is_installed() else "not_installed"})


class BenchParameters(Writing):
    """Measure the tokens a second of an engine, next to a plain ``generate`` of transformers in the same job."""

    rounds: Annotated[int, Field(ge=3, le=100)] = 5
    """Rounds of engine and plain run, by turns, after an uncounted round of each."""
    probe_items: Annotated[int, Field(ge=1, le=1000)] = 4
    """Prompts of a round."""
    max_new_tokens: Annotated[int, Field(ge=1, le=4096)] = 32
    batch_size: Annotated[int, Field(ge=1, le=1024)] = 4
    floor: Annotated[float, Field(gt=0)] = 1.0
    """The fewest tokens a second. It holds for one kind of machine: state your own."""
    least_ratio: Annotated[float, Field(gt=0)] = 0.8
    """The fewest times as fast as the plain run. This holds on any machine."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
