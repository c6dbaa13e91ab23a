"""Did the training train: data seen, loss on the right tokens, gradients alive, schedule carried out, weights moved?"""

from __future__ import annotations

from collections import Counter
from statistics import median

from reviews.checks.check import Check, Found
from reviews.checks.jobs import manifest_of
from reviews.evidence import Evidence
from reviews.rows import read_rows
from specs.errors import EvidenceMissing
from specs.evidence import Example, TrainingRow
from specs.metrics import MetricSet

_SFT = ("sft",)
_MOST_EPOCHS = 10
_SPIKE = 20.0


def _rows(evidence: Evidence) -> tuple[TrainingRow, ...]:
    return read_rows(evidence.outputs.get("rows"), TrainingRow, "training rows")


def _fact(evidence: Evidence, name: str) -> float:
    value = manifest_of(evidence).facts.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise EvidenceMissing(f"the manifest has no number '{name}'")
    return value


def _data(evidence: Evidence, _: MetricSet | None) -> Found:
    """Count again what should have been trained on: every accepted example, or the granted number of each kind."""
    limit = evidence.parameters.get("max_examples_per_kind")
    available = Counter(one.kind for one in read_rows(evidence.inputs.get("examples"), Example, "training examples"))
    expected = {kind: min(count, limit or count) for kind, count in sorted(available.items())}
    used = manifest_of(evidence).facts.get("examples_by_kind")
    total = sum(expected.values())
    if used != expected:
        return Found("FAIL", f"trained on {used}, the granted data gives {expected}", float(total))
    return Found("PASS", f"trained on all {total} granted examples", float(total))


def _steps(evidence: Evidence, _: MetricSet | None) -> Found:
    rows, effective = _rows(evidence), manifest_of(evidence).effective
    planned, done = effective.get("planned_steps"), effective.get("steps")
    if not len(rows) == planned == done:
        return Found("FAIL", f"{planned} steps were planned, {done} done, {len(rows)} have a row", float(len(rows)))
    return Found("PASS", f"all {planned} planned steps were done and logged", float(len(rows)))


def _gradient(evidence: Evidence, _: MetricSet | None) -> Found:
    norms = [row.grad_norm for row in _rows(evidence)]
    dead = sum(norm == 0 for norm in norms)
    if dead:
        return Found(
            "FAIL",
            f"the gradient is zero in {dead} of {len(norms)} steps: the loss does not reach the weights",
            float(dead),
        )
    spike = max(norms) / median(norms)
    if spike > _SPIKE:
        return Found("WARN", f"the largest gradient norm is {spike:.1f} times the median", spike)
    return Found("PASS", f"gradient norms from {min(norms):.3g} to {max(norms):.3g}", spike)


def _schedule(evidence: Evidence, _: MetricSet | None) -> Found:
    rates = [row.learning_rate for row in _rows(evidence)]
    granted = evidence.parameters.get("learning_rate")
    if granted is None:
        raise EvidenceMissing("the order of the attempt is not on record")
    if granted == 0:
        return Found("WARN", "the learning rate is 0: this is a control, nothing can be learnt", 0.0)
    peak = max(rates)
    if peak == 0:
        return Found("FAIL", f"the learning rate never left 0, granted was {granted:g}", 0.0)
    if peak > granted * (1 + 1e-6):
        return Found("FAIL", f"the learning rate reached {peak:g}, granted was {granted:g}", peak)
    decays = evidence.parameters.get("scheduler") != "constant"
    if decays and len(rates) > 2 and rates[-1] >= peak:
        return Found("FAIL", f"the learning rate was to decay and ended at its peak {peak:g}", rates[-1])
    return Found("PASS", f"the learning rate peaked at {peak:.3g} and ended at {rates[-1]:.3g}", peak)


def _mask(evidence: Evidence, _: MetricSet | None) -> Found:
    masked = _fact(evidence, "masked_tokens")
    carried = sum(row.tokens for row in _rows(evidence))
    if masked == 0:
        return Found("FAIL", "no token was masked: the prompts carried loss too", 0.0)
    if carried == 0:
        return Found("FAIL", "no token carried loss", 0.0)
    share = carried / (carried + masked)
    return Found("PASS", f"{carried} completion tokens carried loss, {masked:.0f} prompt tokens did not", share)


def _batches(evidence: Evidence, _: MetricSet | None) -> Found:
    count, distinct = _fact(evidence, "batches"), _fact(evidence, "distinct_batches")
    epochs = evidence.parameters.get("epochs", 1)
    if count > 1 and distinct < count / epochs:
        return Found(
            "FAIL", f"{distinct:.0f} of {count:.0f} batches are distinct: the same rows came again and again", distinct
        )
    if epochs > _MOST_EPOCHS:
        return Found("WARN", f"{epochs} passes over {_fact(evidence, 'examples'):.0f} examples", float(epochs))
    return Found("PASS", f"{distinct:.0f} distinct batches of {count:.0f}", distinct)


def _moved(evidence: Evidence, _: MetricSet | None) -> Found:
    manifest = manifest_of(evidence)
    share = manifest.effective.get("trained_share")
    if share != 1.0:
        return Found("FAIL", f"{share} of the weights were trained, full fine-tuning was granted")
    if evidence.parameters.get("learning_rate") == 0:
        return Found("NOT_APPLICABLE", "with a learning rate of 0 the weights are meant to stay")
    if evidence.output_digests.get("checkpoint") is None:
        raise EvidenceMissing("no checkpoint was left")
    if evidence.output_digests["checkpoint"] == manifest.inputs.get("model"):
        return Found("FAIL", "the checkpoint is the one training began from")
    return Found("PASS", "all weights were trained and the checkpoint is a new one", 1.0)


CHECKS = (
    Check("training.data", "All of the granted data was used", _SFT, _data, "silently smaller data set"),
    Check("training.steps", "Every planned step was done", _SFT, _steps, "early stop; corpus exhausted"),
    Check(
        "training.gradient", "Gradients are alive", _SFT, _gradient, "a channel that is zero all the time and 'works'"
    ),
    Check("training.schedule", "The learning rate followed its schedule", _SFT, _schedule, "a rate that never decayed"),
    Check("training.mask", "Loss is on the completion only", _SFT, _mask, "loss on prompt tokens"),
    Check("training.batches", "Batches differ", _SFT, _batches, "one batch memorised; data starvation"),
    Check("training.moved", "The weights moved", _SFT, _moved, "LoRA instead of full; checkpoint not the one claimed"),
)
