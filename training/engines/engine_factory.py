"""Load the granted engine."""

from __future__ import annotations

from pathlib import Path

from specs.stages.base.sampling import EngineName
from training.engines.checkpoint import load_for_inference
from training.engines.continuous import Continuous
from training.engines.engine import BatchedEngine, CompletionEngine, ends_of
from training.engines.llama import Llama
from training.engines.vllm import Vllm


def make_engine(
    name: EngineName, folder: Path, batch_size: int, *, scratch: Path, share: bool = True
) -> CompletionEngine:
    """Load a checkpoint into the engine of that name, which decodes at most ``batch_size`` rows together.

    ``scratch`` is a folder for temporary files; only :class:`BatchedEngine` needs ``share``. Raises EngineMissing.
    """
    engine: CompletionEngine
    if name == "continuous":
        engine = Continuous(folder, batch_size)
    elif name == "llama":
        engine = Llama(folder, batch_size, scratch)
    elif name == "vllm":
        engine = Vllm(folder, batch_size)
    else:
        engine = BatchedEngine(*load_for_inference(folder), batch_size, share=share)
    engine.facts = {**engine.facts, "stop_ids": sorted(ends_of(folder, engine.tokenizer))}
    return engine
