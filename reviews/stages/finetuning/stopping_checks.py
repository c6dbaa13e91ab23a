"""Did a training end where its registered rule says, with the weights that the rule saves, and what did that spare?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean

from reviews.checks.definition import CheckOutcome, CheckRegistry, manifest_of
from reviews.evidence.evidence import Evidence
from reviews.stages.finetuning.checks import split_pairs
from reviews.stages.finetuning.measure import StopRecord, due_readings, kept_out, readings_of, steps_of, stop_of
from specs.stages.base.metric import MetricSet
from specs.stages.base.witness import PAIR_APART
from specs.system.resources import usd_per_hour
from training.rules.finetuning.early_stopping import by_step

CHECKS = CheckRegistry(("sft", "dpo"))


@CHECKS.add(
    "training.stop",
    "The training ended, and saved the weights, as its registered rule says",
    source="a checkpoint chosen after a look at the results; Prechelt 1998, doi:10.1007/3-540-49430-8_3",
)
def _stop(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Decide again by the recorded readings of what was kept out of training, and say what was not spent."""
    stop = stop_of(evidence)
    if stop is None:
        return CheckOutcome("NOT_APPLICABLE", "the spec registers no rule (`early_stopping`): the last step is saved")
    done, stated = len(steps_of(evidence)), manifest_of(evidence).effective.get("saved_step")
    if done != stop.last:
        return CheckOutcome("FAIL", f"{done} steps were done, the rule ends the training after step {stop.last}")
    if stated != stop.saved:
        return CheckOutcome("FAIL", f"the weights of step {stated} were saved, the rule saves step {stop.saved}")
    if evidence.stage.kind == "dpo" and (wrong := next(_wrong_readings(evidence, stop), "")):
        return CheckOutcome("FAIL", wrong)
    value, share = stop.values[stop.saved], 1 - done / stop.planned
    detail = f"{stop.rule.metric} is best after step {stop.saved}, {value:.4g}, whose weights are saved"
    if stop.last == stop.planned:
        return CheckOutcome("PASS", f"{detail}; the rule left none of the {stop.planned} planned steps out", share)
    return CheckOutcome("PASS", f"{detail}; {_describe_savings(evidence, stop)}", share)


def _wrong_readings(evidence: Evidence, stop: StopRecord) -> Iterator[str]:
    """Yield where readings of pairs are incomplete, or differ from the scores before and after training."""
    points, lines = by_step(readings_of(evidence)), split_pairs(evidence)[1]
    if tuple(points) != due_readings(evidence):
        yield f"pairs were read after steps {', '.join(map(str, points))}"
    for step, rows in points.items():
        if [row.pair for row in rows] != list(lines):
            yield f"{len(rows)} pairs were read after step {step}, but not the {len(lines)} that were kept out"
    most = PAIR_APART["float32" if manifest_of(evidence).dtype == "float32" else "bfloat16"]
    for score in kept_out(evidence):
        for step, theirs in (
            (0, (score.chosen_before, score.rejected_before)),
            (stop.saved, (score.chosen_after, score.rejected_after)),
        ):
            row = next(row for row in points[step] if row.pair == score.pair)
            if any(
                not math.isclose(*two, rel_tol=most, abs_tol=most)
                for two in zip((row.chosen, row.rejected), theirs, strict=True)
            ):
                yield f"pair {score.pair} was read otherwise after step {step} than it was scored"


def _describe_savings(evidence: Evidence, stop: StopRecord) -> str:
    """Return what the steps that were left out would have taken and cost, at the mean pace of this run."""
    seconds = manifest_of(evidence).facts.get("step_seconds")
    text = f"ended after step {stop.last}: {stop.planned - stop.last} of {stop.planned} planned steps were not taken"
    if not isinstance(seconds, list) or not seconds:
        return text
    saved = (stop.planned - stop.last) * fmean(float(second) for second in seconds)
    usd = saved / 3600 * usd_per_hour(evidence.resolved.spec.budget, evidence.stage.resources)
    return f"{text}, about {saved / 60:.3g} minutes and {usd:.2g} USD of the forecast at this run's pace"
