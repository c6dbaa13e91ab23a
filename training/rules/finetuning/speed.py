"""How fast training is expected to be: for forecasts before it, and for checks after it."""

from __future__ import annotations

SPEED = {"cpu": 6e10, "cuda": 1e14}
"""Operations a second in training: on two cores 29 to 33 % of 216 GFLOP/s; for a GPU an assumption, a third of an
A100's data sheet, a tenth of an H100's."""
STEP_OVERHEAD_S = 0.05
"""Of an optimizer step on the smallest models, where the operations take no time."""


def expected_step_s(parameters: float, tokens: float, device: str) -> float:
    """Return the seconds that a step over so many tokens should take: 6 operations a parameter and token."""
    speed = SPEED["cuda" if device.startswith("cuda") else "cpu"]
    return 6 * parameters * tokens / speed + STEP_OVERHEAD_S
