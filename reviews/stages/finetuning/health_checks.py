"""Is it the schedule, the machine or the tokenizer? What a granted training can still do wrong, and why a loss stays.

The other detectors of a diagnosis are the checks next to this file; ``sessions/pages/diagnosis/causes.py`` lists all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, linear_regression, median, stdev
from typing import Any

from reviews.checks.definition import CheckLimit, CheckOutcome, CheckRegistry, manifest_of
from reviews.evidence.evidence import Evidence
from reviews.stages.finetuning.checks import ONLINE, TRAINED, require_parameter
from reviews.stages.finetuning.measure import steps_of
from reviews.stages.finetuning.optimizer_checks import granted_curve
from reviews.stages.finetuning.weights import weights_are_here
from specs.stages.base.metric import MetricSet
from specs.stages.finetuning.rows import TrainingRow
from specs.system.errors import EvidenceMissing
from specs.system.exact import holds
from training.rules.finetuning.schedules import expected_step_s, warmup_of
from training.rules.tokenizer_files import differences

CHECKS = CheckRegistry(TRAINED)

HIGH_END = 0.5
"""Share of the peak: a rate that ends above it has not decayed."""
LOW = 0.05
"""Share of the peak: steps below it hardly move the weights. A linear schedule has 0.05 of them, a cosine 0.14."""
FALLING = -2.0
"""Slope of the loss, in standard errors: above it a loss is flat."""
ERRORS = 4.0
"""Standard errors by which two means have to differ: the lower one was chosen as the lowest of many."""
FEWEST, FEWEST_OF_RISE = 10, 20
"""Steps: fewer show no plateau, or no rise."""


def slope_of(losses: Sequence[float]) -> float:
    """Return the slope of a loss by ordinary least squares, in its standard errors; 0 for a constant loss."""
    steps = list(range(len(losses)))
    slope, intercept = linear_regression(steps, losses)
    remaining = math.fsum((loss - intercept - slope * step) ** 2 for step, loss in zip(steps, losses, strict=True))
    spread = math.fsum((step - fmean(steps)) ** 2 for step in steps)
    error = math.sqrt(remaining / (len(losses) - 2) / spread)
    return slope / error if error else 0.0 if not slope else math.copysign(math.inf, slope)


@CHECKS.add(
    "training.decay",
    "The learning rate reaches its peak, and decays",
    kinds=(*TRAINED, *ONLINE),
    source="a warm-up longer than the run; a rate that never decayed; Hägele et al. 2024, arXiv:2405.18392",
    blocking=False,
    limits=(CheckLimit("<=", "thresholds.warmup_share"),),
)
def _check_decay(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the granted schedule with the planned steps: how much of it is warm-up, and where it ends."""
    rows, arguments = steps_of(evidence), evidence.require_parameters()
    peak, steps = require_parameter(evidence, "learning_rate"), len(rows)
    if peak == 0:
        return CheckOutcome("NOT_APPLICABLE", "a learning rate of 0 has no schedule")
    rates, warmup = granted_curve(evidence, steps), warmup_of(steps, arguments)
    share = warmup / steps
    if warmup >= steps:
        message = f"the warm-up takes {warmup} steps of {steps}: the rate reached {max(rates[:-1]):.3g} of {peak:g}"
        return CheckOutcome("WARN", message, share, _describe_steps(rows, range(steps)))
    if not holds(share, "<=", evidence.resolved.spec.thresholds.warmup_share):
        return CheckOutcome(
            "WARN", f"the warm-up takes {warmup} of {steps} steps", share, _describe_steps(rows, range(warmup))
        )
    if rates[-1] > HIGH_END * peak:
        message = f"the rate ends at {rates[-1]:.3g}, its peak is {peak:g}: it never decayed"
        return CheckOutcome("WARN", message, share, _describe_steps(rows, [steps - 1]))
    return CheckOutcome("PASS", f"{warmup} of {steps} steps are warm-up, and the rate decays to {rates[-1]:.3g}", share)


@CHECKS.add(
    "training.plateau",
    "The schedule causes no plateau",
    source="a plateau taken for the limit of the data although the rate had decayed: it moved when the rate rose again",
    blocking=False,
    limits=(CheckLimit("<", "thresholds.idle_steps"),),
)
def _check_plateau(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Look whether the loss is flat in the last half of the steps, and how many steps had next to no rate."""
    rows = steps_of(evidence)
    peak = require_parameter(evidence, "learning_rate")
    if peak == 0 or len(rows) < FEWEST:
        return CheckOutcome("NOT_APPLICABLE", f"{len(rows)} steps at a learning rate of {peak:g} show no plateau")
    low = [place for place, row in enumerate(rows) if row.learning_rate < LOW * peak]
    share, slope = len(low) / len(rows), slope_of([row.loss for row in rows[len(rows) // 2 :]])
    message = f"{share:.0%} of the steps had less than {LOW:.0%} of the peak rate"
    course = f"the loss of the last half has a slope of {slope:.1f} standard errors"
    idle = not holds(share, "<", evidence.resolved.spec.thresholds.idle_steps)
    if idle and slope > FALLING:
        return CheckOutcome(
            "WARN", f"{course}, and {message}: the schedule explains the plateau", share, _describe_steps(rows, low)
        )
    return CheckOutcome("PASS", f"{message}; {course}", share)


@CHECKS.add(
    "training.rise",
    "The loss did not rise again",
    source="a run that diverged late, of which the last checkpoint was taken for the best",
    blocking=False,
    limits=(CheckLimit("<=", "thresholds.loss_rise"),),
)
def _check_rise(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the last fifth of the steps with the fifth whose mean loss is lowest."""
    rows = steps_of(evidence)
    size = len(rows) // 5
    if len(rows) < FEWEST_OF_RISE or require_parameter(evidence, "learning_rate") == 0:
        return CheckOutcome("NOT_APPLICABLE", f"{len(rows)} steps show no rise")
    losses = [row.loss for row in rows]
    begin = min(range(len(losses) - size + 1), key=lambda at: math.fsum(losses[at : at + size]))
    best, last = fmean(losses[begin : begin + size]), fmean(losses[-size:])
    # Between neighbours a course hardly moves: what they differ by is the noise of batches.
    noise = stdev(after - before for before, after in pairwise(losses)) / math.sqrt(2)
    share = (last - best) / abs(best) if best else 0.0
    detail = f"the lowest mean loss is {best:.4g} (steps {begin + 1} to {begin + size}), the last {last:.4g}"
    if holds(share, "<=", evidence.resolved.spec.thresholds.loss_rise):
        return CheckOutcome("PASS", detail, share)
    if last - best > ERRORS * noise * math.sqrt(2 / size):
        visible = _describe_steps(rows, range(begin + size, len(rows)))
        return CheckOutcome("WARN", f"{detail}: the saved weights are not the best of the run", share, visible)
    return CheckOutcome("PASS", f"{detail}: batches differ by more")


@CHECKS.add(
    "training.device",
    "A granted GPU was used, with its fused attention",
    kinds=(*TRAINED, *ONLINE),
    source="a GPU that was paid for while the CPU trained; attention that fell back to the slow one",
)
def _check_device(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the device with the granted resources, and the attention that was built with what the model has."""
    manifest = manifest_of(evidence)
    resources = evidence.grant.resources if evidence.grant is not None else None
    if resources is not None and (resources.gpus or resources.gpu) and not manifest.device.startswith("cuda"):
        what = f"{resources.gpus or 1} GPU{'' if (resources.gpus or 1) == 1 else 's'}"
        return CheckOutcome("FAIL", f"{what} were granted and paid for; it trained on {manifest.device}")
    attention: Any = manifest.facts.get("attention")
    if not isinstance(attention, dict):
        return CheckOutcome("PASS", f"it trained on {manifest.device}; the attention is not recorded")
    used = attention.get("used")
    if used == "eager" and attention.get("fused") is True:
        return CheckOutcome(
            "WARN", f"it trained on {manifest.device} with attention 'eager'; the model has a fused one"
        )
    return CheckOutcome("PASS", f"it trained on {manifest.device} with attention '{used}'")


@CHECKS.add(
    "training.speed",
    "Steps took the time they should",
    source="a job on a machine that swaps, or shares its GPU; a slow data loader",
    blocking=False,
    limits=(CheckLimit(">=", "thresholds.training_speed"),),
)
def _check_speed(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the median time of a step with its operations at the speed that forecasts take.

    The first step, which loads and compiles, does not count.
    """
    manifest, rows = manifest_of(evidence), steps_of(evidence)
    times = seconds_of(evidence)
    if not times:
        return CheckOutcome("NOT_APPLICABLE", "no times of steps are recorded")
    trained, share = (manifest.effective.get(name) for name in ("trained_parameters", "trained_share"))
    if not isinstance(trained, int) or not isinstance(share, int | float) or share <= 0:
        return CheckOutcome("NOT_APPLICABLE", "the number of parameters is not recorded")
    masked = manifest.facts.get("masked_tokens")
    tokens = sum(row.tokens for row in rows) + (masked if isinstance(masked, int) else 0)
    counted = times[1:] or times
    expected = expected_step_s(trained / share, tokens / len(rows), manifest.device)
    ratio = expected / max(median(counted), 1e-9)
    detail = f"a step of {tokens / len(rows):.0f} tokens took {median(counted):.3g} s in the median, "
    detail += f"expected were {expected:.3g}"
    if not holds(ratio, ">=", evidence.resolved.spec.thresholds.training_speed):
        first = len(rows) - len(times)
        slow = [first + at for at, time in enumerate(times) if time >= median(counted)]
        visible = tuple({"step": rows[at].step, "seconds": times[at - first]} for at in slow)
        return CheckOutcome("WARN", f"{detail}: {ratio:.2g} of the expected speed", ratio, visible)
    return CheckOutcome("PASS", detail, ratio)


def seconds_of(evidence: Evidence) -> list[float]:
    """Return the seconds of the last steps, as many as the job that ended timed; empty where it recorded none."""
    seconds: Any = manifest_of(evidence).facts.get("step_seconds")
    if not isinstance(seconds, list) or len(seconds) > len(steps_of(evidence)):
        return []
    times = [float(second) for second in seconds if isinstance(second, int | float) and 0 <= second < math.inf]
    return times if len(times) == len(seconds) else []


@CHECKS.add(
    "training.tokenizer",
    "Tokenizer and chat template equal those of the granted model",
    kinds=(*TRAINED, *ONLINE),
    source="a checkpoint with another tokenizer: every later stage reads other tokens than were trained on",
    reads_weights=True,
)
def _check_tokenizer(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare vocabulary, merges, added tokens, end token and chat template of the two folders."""
    if "checkpoint" not in evidence.outputs:
        raise EvidenceMissing("no checkpoint was left")
    if not weights_are_here(evidence):
        return CheckOutcome("NOT_APPLICABLE", "the folders of model and checkpoint are not on this machine")
    base, folder = evidence.inputs["model"], evidence.outputs["checkpoint"]
    try:
        wrong = differences(base, folder)
    except (OSError, ValueError) as error:
        raise EvidenceMissing(f"the tokenizer cannot be read: {error}", where="checkpoint") from error
    if wrong is None:
        return CheckOutcome("NOT_APPLICABLE", "the granted model has no tokenizer")
    if wrong:
        visible = tuple({"file": difference.file, "what": difference.what} for difference in wrong)
        message = "; ".join(f"{difference.what} ({difference.file})" for difference in wrong)
        return CheckOutcome("FAIL", f"not those of the granted model: {message}", float(len(wrong)), visible)
    return CheckOutcome(
        "PASS", "vocabulary, merges, added tokens, end token and chat template are the granted model's", 0.0
    )


def _describe_steps(rows: Sequence[TrainingRow], places: Sequence[int]) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"step": rows[place].step, "loss": rows[place].loss, "learning_rate": rows[place].learning_rate}
        for place in places
    )
