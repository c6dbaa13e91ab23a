"""How many parameters a checkpoint holds, from the headers of its weight files; the weights are not read."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from specs.errors import EvidenceMissing

_MOST_HEADER_BYTES = 100_000_000
"""The format's own limit."""


def parameters_of(folder: Path | None) -> int:
    """Count the parameters of a checkpoint.

    Raises:
        EvidenceMissing: there are no weight files, or one has no header that can be read.
    """
    return sum(math.prod(shape) for _, shape in _tensors(folder))


def adapter_parameters(folder: Path | None, modules: Sequence[str], rank: int) -> int:
    """Count what low-rank adapters have: ``rank`` times (inputs + outputs) a layer; errors as :func:`parameters_of`."""
    ends = tuple(f".{module}.weight" for module in modules)
    every = [shape for name, shape in _tensors(folder) if name.endswith(ends) and len(shape) == 2]
    return sum(rank * sum(shape) for shape in every)


def _tensors(folder: Path | None) -> Iterator[tuple[str, list[int]]]:
    files = sorted(folder.glob("*.safetensors")) if folder is not None else []
    if not files:
        raise EvidenceMissing("no checkpoint with weight files was left")
    for file in files:
        try:
            with file.open("rb") as handle:
                size = int.from_bytes(handle.read(8), "little")
                header: Any = json.loads(handle.read(size)) if size <= _MOST_HEADER_BYTES else None
            found = [(name, entry["shape"]) for name, entry in header.items() if name != "__metadata__"]
            # A malformed shape breaks here and not in the sum.
            [math.prod(shape) for _, shape in found]
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise EvidenceMissing(f"{file.name} has no header of a weight file") from error
        yield from found
