"""How far logits may differ where two ways compute the same: merged or not, packed or alone, cached or read whole."""

from __future__ import annotations

_MOST_DIFFERENCE = {"float32": 1e-3, "bfloat16": 0.1}


def most_difference(dtype: str) -> float:
    """Return the largest difference of logits, as a share of the largest one, that another order of sums makes.

    It refuses a job and is no threshold of a gate; what was measured is a fact of the manifest.

    Args:
        dtype: of the weights, as torch names it; for others than float32 the bound is that of bfloat16.
    """
    return _MOST_DIFFERENCE.get(dtype, _MOST_DIFFERENCE["bfloat16"])
