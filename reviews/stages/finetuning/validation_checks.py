"""Examples that were kept out of training: are they apart, and did the training memorise the others?"""

from __future__ import annotations

import math

from reviews.checks.definition import CheckLimit, CheckOutcome, CheckRegistry
from reviews.evidence.evidence import Evidence
from reviews.stages.finetuning.checks import examples_split
from reviews.stages.finetuning.health_checks import ERRORS
from reviews.stages.finetuning.measure import due_readings, saved_step, steps_of, validation_of
from specs.stages.base.artifacts import Example
from specs.stages.base.metric import MetricSet
from specs.stages.finetuning.rows import TrainingRow, ValidationRow
from specs.system.errors import EvidenceMissing
from specs.system.exact import holds
from training.rules.finetuning.early_stopping import by_step, loss_of

CHECKS = CheckRegistry(("sft",))
_NONE = CheckOutcome("NOT_APPLICABLE", "the spec keeps no example out of training (`validation_share`)")


@CHECKS.add(
    "training.validation",
    "Examples that were kept out are of other groups",
    source="examples of one prompt in both splits: a loss on rows that were trained on shows no overfitting",
)
def _validation(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
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
def _overfit(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
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
    some = rows[:size] if step < size else rows[step - size : step]
    return math.fsum(row.loss for row in some) / len(some)


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
