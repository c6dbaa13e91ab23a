"""The judge of ``reward_model`` stages: the metric that needs more than rows, and two checks."""

from __future__ import annotations

import math

from acme_reward.contract import Step
from reviews.checks.definition import CheckOutcome, CheckRegistry, need
from reviews.evidence.evidence import Evidence
from reviews.evidence.measured_value import MeasuredValue, share
from reviews.evidence.row_reader import read_rows
from specs.stages.base.artifacts import Item
from specs.stages.base.metric import MetricSet

CHECKS = CheckRegistry(("reward_model",))


def measure(evidence: Evidence) -> dict[str, MeasuredValue]:
    """Return the metrics that are declared as ``judged``, by their ids."""
    pairs = read_rows(evidence.inputs.get("pairs"), Item, "pairs")
    trained = {row.item for row in read_rows(evidence.outputs.get("rows"), Step, "steps")}
    return {"reward_pairs": share(sum(item.id in trained for item in pairs), len(pairs))}


@CHECKS.add("reward.steps", "Every pair was trained on, in order", source="steps left out of a log")
def _check_steps(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the steps with those that follow from the granted parameters."""
    rows = read_rows(evidence.outputs.get("rows"), Step, "steps")
    if [row.step for row in rows] != list(range(1, len(rows) + 1)):
        return CheckOutcome("FAIL", "the steps are not 1, 2, 3, ... without a gap", float(len(rows)))
    return CheckOutcome("PASS", f"{len(rows)} steps without a gap", float(len(rows)))


@CHECKS.add("reward.loss", "The losses are those of the margins", source="a loss that was edited")
def _check_loss(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    """Recompute each loss from its margin."""
    rows = read_rows(evidence.outputs.get("rows"), Step, "steps")
    wrong = [row for row in rows if not math.isclose(row.loss, math.log1p(math.exp(-row.margin)), abs_tol=1e-4)]
    wrong_rows = tuple({"step": row.step, "loss": row.loss, "margin": row.margin} for row in wrong)
    if wrong:
        return CheckOutcome(
            "FAIL", f"{len(wrong)} losses do not follow from their margins", float(len(wrong)), wrong_rows
        )
    return CheckOutcome(
        "PASS", f"every loss follows from its margin; their mean is {need(metrics, 'reward_loss'):.3f}", 0.0
    )
