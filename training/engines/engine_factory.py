"""Load the granted engine."""

from __future__ import annotations

from pathlib import Path

from specs.stages.base.sampling import EngineName
from training.engines.checkpoint import load
from training.engines.continuous import Continuous
from training.engines.engine import BatchedEngine, CompletionEngine
from training.engines.llama import Llama
from training.engines.vllm import Vllm


def make_engine(
    name: EngineName, folder: Path, batch_size: int, *, scratch: Path, share: bool = True
) -> CompletionEngine:
    """Load a checkpoint into the engine of that name, which decodes at most ``batch_size`` rows together.

    ``scratch`` is a folder for temporary files; only :class:`BatchedEngine` needs ``share``. Raises EngineMissing.
    """
    if name == "continuous":
        return Continuous(folder, batch_size)
    if name == "llama":
        return Llama(folder, batch_size, scratch)
    if name == "vllm":
        return Vllm(folder, batch_size)
    return BatchedEngine(*load(folder), batch_size, share=share)
