"""The judge of ``reward_model`` stages: two checks. Its metrics are declared over rows, so nothing is measured here."""

from __future__ import annotations

import math

from acme_reward.contract import Step
from reviews.checks.definition import Check, Found, need
from reviews.evidence.evidence import Evidence
from reviews.evidence.row_reader import read_rows
from specs.stages.metric import MetricSet


def _steps(evidence: Evidence, _: MetricSet | None) -> Found:
    """Compare the steps with those that follow from the granted parameters."""
    rows = read_rows(evidence.outputs.get("rows"), Step, "steps")
    if [row.step for row in rows] != list(range(1, len(rows) + 1)):
        return Found("FAIL", "the steps are not 1, 2, 3, ... without a gap", float(len(rows)))
    return Found("PASS", f"{len(rows)} steps without a gap", float(len(rows)))


def _loss(evidence: Evidence, metrics: MetricSet | None) -> Found:
    """Recompute each loss from its margin."""
    rows = read_rows(evidence.outputs.get("rows"), Step, "steps")
    wrong = [row for row in rows if not math.isclose(row.loss, math.log1p(math.exp(-row.margin)), abs_tol=1e-4)]
    shown = tuple({"step": row.step, "loss": row.loss, "margin": row.margin} for row in wrong)
    if wrong:
        return Found("FAIL", f"{len(wrong)} losses do not follow from their margins", float(len(wrong)), shown)
    return Found("PASS", f"every loss follows from its margin; their mean is {need(metrics, 'reward_loss'):.3f}", 0.0)


CHECKS = (
    Check("reward.steps", "Every pair was trained on, in order", ("reward_model",), _steps, "steps left out of a log"),
    Check("reward.loss", "The losses are those of the margins", ("reward_model",), _loss, "a loss that was edited"),
)
