"""The granted schedule as the check computes it is the one transformers runs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from testing.factories.flaws import with_thresholds
from testing.factories.judged_evidence import results_of
from tests.stages.finetuning.test_training_checks import PEAK, scheduled

pytestmark = pytest.mark.integration


def rates_of(scheduler: str, warmup: int, steps: int = 10) -> list[float]:
    """Return the learning rate of every step, read from the optimizer before the step is made."""
    torch: Any = pytest.importorskip("torch")
    from transformers.optimization import get_scheduler

    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=PEAK)
    running: Any = get_scheduler(scheduler, optimizer, num_warmup_steps=warmup, num_training_steps=steps)
    results: list[float] = []
    for _ in range(steps):
        results.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        running.step()
    return results


@pytest.mark.parametrize("scheduler", ["linear", "cosine", "constant"])
@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.25, 0.5])
def test_the_schedule_is_that_of_transformers(tmp_path: Path, scheduler: str, ratio: float) -> None:
    rates = [rate / PEAK for rate in rates_of(scheduler, math.ceil(10 * ratio))]
    evidence = with_thresholds(scheduled(tmp_path, rates, ratio=ratio, scheduler=scheduler), schedule_deviation=1e-9)
    assert results_of(evidence)["training.schedule"].status == "PASS"
