"""How did the optimisation go: gradients, learning rate against the granted schedule, loss, and enough data for it?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby
from statistics import median

from reviews.checks.definition import CheckLimit, CheckOutcome, CheckRegistry, manifest_of, need
from reviews.evidence.evidence import Evidence
from reviews.stages.finetuning.checks import ONLINE, TRAINED, examples_split, require_parameter, split_pairs
from reviews.stages.finetuning.measure import count_passes, steps_of, stop_of
from reviews.stages.finetuning.weights import adapter_parameters, parameters_of
from specs.stages.base.metric import MetricSet
from specs.stages.finetuning.rows import TrainingRow
from specs.system.exact import holds
from training.rules.finetuning.schedules import curve

CHECKS = CheckRegistry(TRAINED)

DEAD = 1e-5
"""Share of the loss: two passes that differ by less went over the same rows with the same weights."""
NEAR = 9
"""Steps before a step that say which gradient norms are usual there."""
LEVEL = 6
"""Steps in a row whose stated losses may not be equal: a rate of almost nothing moves the last digits too."""
_NOTHING = 0.01
"""Smaller losses are of examples that are known by heart."""
_SURE = 10
"""How many times that a live optimiser has to be able to lower the loss by, at the most, to be called dead."""


@CHECKS.add(
    "training.gradient",
    "Gradients are alive",
    source="a channel that is zero all the time and 'works'",
    limits=(CheckLimit("<=", "thresholds.gradient_spike"),),
)
def _check_gradient(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Look for steps whose gradient is zero, and compare each norm with the steps before it."""
    rows = steps_of(evidence)
    norms = [row.grad_norm for row in rows]
    dead = sum(norm == 0 for norm in norms)
    if dead:
        return CheckOutcome(
            "FAIL",
            f"the gradient is zero in {dead} of {len(norms)} steps: the loss does not reach the weights",
            float(dead),
            tuple({"step": row.step, "grad_norm": row.grad_norm} for row in rows if row.grad_norm == 0),
        )
    ratios, most = _ratios(norms), evidence.resolved.spec.thresholds.gradient_spike
    spike = max(ratios)
    if not holds(spike, "<=", most):
        high = (row for row, ratio in zip(rows, ratios, strict=True) if not holds(ratio, "<=", most))
        visible = tuple({"step": row.step, "grad_norm": row.grad_norm} for row in high)
        return CheckOutcome(
            "WARN", f"a gradient norm is {spike:.1f} times the median of the steps before it", spike, visible
        )
    return CheckOutcome("PASS", f"gradient norms from {min(norms):.3g} to {max(norms):.3g}", spike)


def _ratios(norms: list[float]) -> list[float]:
    """Return each norm by the median of the steps before it; the first by that of the three after it.

    Not by the median of all: gradients of a run that learns fall, a hundredfold in a small model, and its first steps
    are not spikes.
    """
    around = [norms[max(0, at - NEAR) : at] or norms[1:4] or norms for at in range(len(norms))]
    return [norm / median(window) for norm, window in zip(norms, around, strict=True)]


@CHECKS.add(
    "training.schedule",
    "The learning rate followed its schedule",
    kinds=(*TRAINED, *ONLINE),
    source="a rate that never decayed; a rate that reached zero early; a scheduler other than the approved one",
    limits=(CheckLimit("<=", "thresholds.schedule_deviation"),),
)
def _check_schedule(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare every step's learning rate with the granted peak, warm-up and scheduler.

    Some trainers log the rate of the step, others the rate of the next step; either is accepted.
    """
    rows, peak = steps_of(evidence), require_parameter(evidence, "learning_rate")
    rates = [row.learning_rate for row in rows]
    if peak == 0:
        if any(rates):
            return CheckOutcome("FAIL", f"the learning rate reached {max(rates):g}, 0 was granted", max(rates))
        return CheckOutcome("WARN", "the learning rate is 0: this is a control, nothing can be learnt", 0.0)
    if not any(rates):
        return CheckOutcome("FAIL", f"the learning rate never left 0, {peak:g} was granted", 0.0)
    if max(rates) > peak * (1 + 1e-6):
        return CheckOutcome("FAIL", f"the learning rate reached {max(rates):g}, {peak:g} was granted", max(rates))
    values, most = granted_curve(evidence, len(rates)), evidence.resolved.spec.thresholds.schedule_deviation * peak
    # The kind of logging under which the run looks best.
    distances, shift = min(
        ((_distances(rates, values, shift), shift) for shift in (0, 1)), key=lambda pair: max(pair[0])
    )
    farthest = max(distances)
    detail = f"the learning rate peaked at {max(rates):.3g} and ended at {rates[-1]:.3g}"
    if farthest <= most:
        return CheckOutcome("PASS", f"{detail}, as the granted schedule does", farthest / peak)
    visible = tuple(
        {"step": row.step, "learning_rate": row.learning_rate, "granted": float(f"{values[place + shift]:.6g}")}
        for place, row in enumerate(rows)
        if distances[place] > most
    )
    worst = distances.index(farthest)
    message = f"{detail}; at step {rows[worst].step} it was {rates[worst]:.3g}, expected {values[worst + shift]:.3g}"
    return CheckOutcome("FAIL", message, farthest / peak, visible)


def _distances(rates: list[float], values: list[float], shift: int) -> list[float]:
    return [abs(rate - values[place + shift]) for place, rate in enumerate(rates)]


def granted_curve(evidence: Evidence, steps: int) -> list[float]:
    """Return the granted learning rate before each step and after the last."""
    planned = manifest_of(evidence).effective.get("planned_steps")
    total = planned if isinstance(planned, int) and planned >= steps else steps
    return curve(steps, total, evidence.require_parameters())


@CHECKS.add(
    "training.loss",
    "The loss went down",
    source="a plateau, or a loss that rose; an optimiser that is dead, with a loss that moves as batches do",
    limits=(CheckLimit(">=", "thresholds.loss_drop"),),
)
def _check_loss(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    """Compare the loss of the last fifth of the steps with that of the first, and of the last pass with the first.

    A pass is over the same rows as any other: its mean, weighted by tokens, has no noise of batches, and stays to the
    last digit where no update reaches the weights. Of a single pass only the fifths are known, and ``training.moved``
    compares the weights themselves with the rates. Rates so small that no optimiser could lower the loss by more make
    no treatment whose effect could be measured; a control has a rate of 0.
    """
    names = ("first_loss", "last_loss", "steps")
    first, last, steps = (need(metrics, f"dpo_{name}" if evidence.stage.kind == "dpo" else name) for name in names)
    if require_parameter(evidence, "learning_rate") == 0:
        return CheckOutcome("NOT_APPLICABLE", "with a learning rate of 0 the loss should not change")
    if steps < 2 or first <= 0:
        return CheckOutcome("NOT_APPLICABLE", f"{steps:.0f} steps that begin at a loss of {first:.4g} show no trend")
    drop = (first - last) / first
    detail = f"the loss went from {first:.4g} to {last:.4g}, a drop of {drop:.3f}"
    passes = _passes(evidence)
    possible, least = _possible_drop(evidence), DEAD * first
    if possible < _SURE * least:
        message = f"steps at the logged rates can lower it by {possible:.2g} at most, so nothing can be learnt"
        return CheckOutcome("FAIL", f"{detail}; {message}: the learning rate is too small", possible / first)
    if passes is not None:
        detail += f"; on the same rows from {passes[0]:.6g} in the first pass to {passes[1]:.6g} in the last"
        if abs(passes[0] - passes[1]) <= DEAD * abs(passes[0]):
            return CheckOutcome("FAIL", f"{detail}: no update reached the weights", (passes[0] - passes[1]) / passes[0])
    # Sixteen bits hold few digits, which batches may share.
    if manifest_of(evidence).dtype == "float32" and (level := _level_steps(steps_of(evidence))):
        message = f"steps {level[0]} to {level[-1]} state one loss to the last digit, which no trained batches have"
        return CheckOutcome("FAIL", message, float(len(level)), repairable=False)
    if holds(drop, ">=", evidence.resolved.spec.thresholds.loss_drop):
        return CheckOutcome("PASS", detail, drop)
    return CheckOutcome("WARN", f"{detail}: {'it rose' if last > first else 'a plateau'}", drop)


def _level_steps(rows: Sequence[TrainingRow]) -> list[int]:
    """Return the first steps in a row that state the same loss; none where fewer than :data:`LEVEL` do."""
    for _, group in groupby(rows, key=lambda row: row.loss):
        same = [row.step for row in group if row.loss > _NOTHING and row.learning_rate > 0]
        if len(same) >= LEVEL:
            return same
    return []


def _passes(evidence: Evidence) -> tuple[float, float] | None:
    """Return the mean loss of the first and of the last pass over the data; None without a second pass.

    Supervised losses are means over the tokens of a step. Those of pairs are means over pairs, of which every step but
    the last of a pass has as many.
    """
    rows, epochs = steps_of(evidence), require_parameter(evidence, "epochs")
    steps_per_pass, rest = divmod(len(rows), epochs)
    if epochs < 2 or rest or (stop := stop_of(evidence)) is not None and stop.last < stop.planned:
        return None
    means: list[float] = []
    for pass_rows in (rows[:steps_per_pass], rows[-steps_per_pass:]):
        weights = [row.tokens if evidence.stage.kind == "sft" else 1 for row in pass_rows]
        if not sum(weights):
            return None
        means.append(
            math.fsum(row.loss * weight for row, weight in zip(pass_rows, weights, strict=True)) / sum(weights)
        )
    return means[0], means[1]


def _possible_drop(evidence: Evidence) -> float:
    """Return how far steps at the logged rates can lower the loss, to first order; infinity if no one knows.

    No weight moves by more than about the rate in a step of Adam (Kingma & Ba 2015, section 2.1), so the loss falls by
    at most the rate times the sum of the gradient's sizes, which is at most its norm times the root of their number.
    """
    rows, trained = steps_of(evidence), manifest_of(evidence).effective.get("trained_parameters")
    if not isinstance(trained, int) or trained < 1:
        return math.inf
    return math.sqrt(trained) * math.fsum(row.learning_rate * row.grad_norm for row in rows)


@CHECKS.add(
    "training.starvation",
    "The data has enough distinct tokens",
    source="data starvation; Zhou et al. 2023, arXiv:2305.11206; Muennighoff et al. 2023, arXiv:2305.16264",
    blocking=False,
    limits=(CheckLimit("<=", "thresholds.passes"), CheckLimit("<=", "thresholds.parameters_per_token")),
    reads_weights=True,
)
def _check_starvation(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare passes over the data, and trained parameters for each distinct token that carries loss, with limits.

    The default of the second is what the largest known model did with few examples: LIMA tuned 6.5e10 parameters on
    about 7.5e5 tokens (Zhou et al. 2023, arXiv:2305.11206). Beyond about 4 passes repeated data give less and less
    (Muennighoff et al. 2023, arXiv:2305.16264).
    """
    thresholds = evidence.resolved.spec.thresholds
    epochs = require_parameter(evidence, "epochs")
    if require_parameter(evidence, "learning_rate") == 0:
        return CheckOutcome("NOT_APPLICABLE", "with a learning rate of 0 nothing can be learnt from any data")
    carried = sum(row.tokens for row in steps_of(evidence))
    tokens = carried / count_passes(evidence) * distinct_share(evidence)
    if tokens == 0:
        return CheckOutcome("WARN", "no token carried loss", 0.0)
    if evidence.parameters.get("method", "full") == "full":
        parameters = parameters_of(evidence.outputs.get("checkpoint"))
    else:
        modules, rank = require_parameter(evidence, "target_modules"), require_parameter(evidence, "lora_rank")
        parameters = adapter_parameters(evidence.outputs.get("checkpoint"), modules, rank)
    ratio = parameters / tokens
    detail = f"{epochs} passes over about {tokens:.0f} distinct tokens, {ratio:.3g} trained parameters a token"
    wrong: list[str] = []
    if epochs > thresholds.passes:
        wrong.append(f"more than {thresholds.passes} passes")
    if not holds(ratio, "<=", thresholds.parameters_per_token):
        wrong.append(f"more than {thresholds.parameters_per_token:g} parameters a token")
    return CheckOutcome("WARN" if wrong else "PASS", f"{detail}: {', '.join(wrong)}" if wrong else detail, ratio)


def distinct_share(evidence: Evidence) -> float:
    """Return the share of the rows that are trained on and differ from all others."""
    if evidence.stage.kind == "sft":
        split, every = examples_split(evidence)
        rows = [every[place] for place in split.train]
        return len({(example.prompt, example.completion) for example in rows}) / len(rows)
    train, _, pairs = split_pairs(evidence)
    return len({(pairs[at].prompt, pairs[at].chosen, pairs[at].rejected) for at in train}) / max(1, len(train))
