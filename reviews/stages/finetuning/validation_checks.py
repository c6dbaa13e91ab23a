"""What was kept out of training: is it apart, did the training memorise the rest, and end by it as registered?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean

from reviews.checks.definition import CheckLimit, CheckOutcome, CheckRegistry, manifest_of
from reviews.evidence.evidence import Evidence
from reviews.stages.finetuning.checks import examples_split, split_pairs
from reviews.stages.finetuning.health_checks import ERRORS
from reviews.stages.finetuning.measure import (
    StopRecord,
    due_readings,
    kept_out,
    readings_of,
    saved_step,
    steps_of,
    stop_of,
    validation_of,
)
from specs.stages.base.artifacts import Example
from specs.stages.base.metric import MetricSet
from specs.stages.base.witness import PAIR_APART
from specs.stages.finetuning.rows import TrainingRow, ValidationRow
from specs.system.errors import EvidenceMissing
from specs.system.exact import holds
from specs.system.resources import usd_per_hour
from training.rules.finetuning.validation_split import by_step, loss_of

CHECKS = CheckRegistry(("sft",))
_NONE = CheckOutcome("NOT_APPLICABLE", "the spec keeps no example out of training (`validation_share`)")


@CHECKS.add(
    "training.validation",
    "Examples that were kept out are of other groups",
    source="examples of one prompt in both splits: a loss on rows that were trained on shows no overfitting",
)
def _check_validation(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Divide the examples again and compare: all of one side were read at every step that is due, none of the other."""
    if not evidence.parameters.get("validation_share"):
        return _NONE
    split, examples = examples_split(evidence)
    if not split.validation:
        return CheckOutcome("WARN", "no example was kept out: all are of one group", 0.0)
    points, counts = by_step(validation_of(evidence)), due_readings(evidence)
    if tuple(points) != counts:
        read, text = (", ".join(map(str, steps)) for steps in (list(points)[: len(counts)], counts))
        return CheckOutcome("FAIL", f"examples were read after steps {read}, expected {text}")
    for step, rows in points.items():
        if [row.example for row in rows] != list(split.validation):
            message = f"{len(rows)} examples were read after step {step}"
            return CheckOutcome("FAIL", f"{message}, but not the {len(split.validation)} that were kept out")
        if renamed := [row.example for row in rows if row.group != examples[row.example].group]:
            return CheckOutcome("FAIL", f"example {renamed[0]} has another group than its line")
    trained = {_text(examples[place]) for place in split.train}
    twice = [place for place in split.validation if _text(examples[place]) in trained]
    groups = {examples[place].group for place in split.validation}
    detail = f"{len(split.validation)} examples of {len(groups)} groups were kept out"
    if twice:
        visible = tuple({"line": place + 1, "group": examples[place].group} for place in twice)
        return CheckOutcome(
            "WARN", f"{detail}; {len(twice)} are trained on in other groups", float(len(twice)), visible
        )
    return CheckOutcome("PASS", detail, 0.0)


def _text(example: Example) -> tuple[str, str]:
    return example.prompt, example.completion


@CHECKS.add(
    "training.overfit",
    "The loss on examples that were kept out did not rise while the training loss fell",
    source="a memorised corpus: a training loss near 0, taken for a good model",
    blocking=False,
    limits=(CheckLimit("<=", "thresholds.loss_rise"),),
)
def _check_overfit(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the loss of the saved weights over the kept examples with the lowest one, paired by group."""
    if not evidence.parameters.get("validation_share"):
        return _NONE
    points = by_step(validation_of(evidence))
    if not points or evidence.parameters.get("learning_rate") == 0:
        return CheckOutcome("NOT_APPLICABLE", "no example was kept out, or the learning rate is 0")
    losses = {step: loss_of(rows) for step, rows in points.items()}
    best, last = min(losses, key=lambda step: losses[step]), saved_step(evidence)
    if last not in points:
        raise EvidenceMissing(f"examples were not read after step {last}", where="scores of examples")
    rise, error = losses[last] - losses[best], _error(points[best], points[last])
    share = rise / losses[best] if losses[best] else 0.0
    before, after = _compute_training_loss(steps_of(evidence), best), _compute_training_loss(steps_of(evidence), last)
    detail = (
        f"on {len(points[last])} examples kept out the loss is lowest after step {best}, {losses[best]:.4g}, and "
        f"{losses[last]:.4g} in the end; the training loss went from {before:.4g} to {after:.4g}"
    )
    clear = rise > ERRORS * error and not holds(share, "<=", evidence.resolved.spec.thresholds.loss_rise)
    if not clear or after >= before:
        return CheckOutcome("PASS", detail, share)
    visible = [{"step": step, "validation_loss": losses[step]} for step in losses if step > best]
    return CheckOutcome("WARN", f"{detail}: it memorised its examples", share, tuple(visible))


def _compute_training_loss(rows: tuple[TrainingRow, ...], step: int) -> float:
    """Return the mean training loss of the fifth of the steps that ends with a step; of the first fifth for 0."""
    size = max(1, len(rows) // 5)
    window = rows[:size] if step < size else rows[step - size : step]
    return math.fsum(row.loss for row in window) / len(window)


def _error(before: list[ValidationRow], after: list[ValidationRow]) -> float:
    """Return the standard error of the difference of two losses over the same examples, by groups; infinite for one.

    Examples of a group rise together, so groups are what varies: the ratio estimator over clusters (Cochran 1977,
    section 6.3).
    """
    groups: dict[str, tuple[float, int]] = {}
    for validation_row, two in zip(before, after, strict=True):
        risen, tokens = groups.get(validation_row.group, (0.0, 0))
        groups[validation_row.group] = (
            risen + validation_row.log_probability - two.log_probability,
            tokens + validation_row.tokens,
        )
    if len(groups) < 2:
        return math.inf
    tokens = sum(count for _, count in groups.values())
    rise = math.fsum(risen for risen, _ in groups.values()) / tokens
    remaining = math.fsum((risen - rise * count) ** 2 for risen, count in groups.values())
    return math.sqrt(len(groups) / (len(groups) - 1) * remaining) / tokens


@CHECKS.add(
    "training.stop",
    "The training ended, and saved the weights, as its registered rule says",
    kinds=("sft", "dpo"),
    source="a checkpoint chosen after a look at the results; Prechelt 1998, doi:10.1007/3-540-49430-8_3",
)
def _check_stop(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
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
