"""Did the training train: all of the data seen, every step done, loss on the right tokens, weights moved?

How the optimisation went stands in ``optimisation.py``. Not checked, because no row or manifest says it: how long a
step took, and from which step the saved weights are.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from reviews.checks.check import Check, Found
from reviews.checks.jobs import manifest_of
from reviews.evidence import Evidence
from reviews.rows import read_rows
from specs.errors import EvidenceMissing
from specs.evidence import Example, TrainingRow
from specs.metrics import MetricSet

_SFT = ("sft",)


def steps_of(evidence: Evidence) -> tuple[TrainingRow, ...]:
    """Return the optimizer steps as they were logged.

    Raises:
        EvidenceMissing: they are absent or unreadable; a loss or gradient that is no number is unreadable.
    """
    return read_rows(evidence.outputs.get("rows"), TrainingRow, "training rows")


def granted(evidence: Evidence, name: str) -> Any:
    """Return a granted parameter.

    Raises:
        EvidenceMissing: the order of the attempt is not on record.
    """
    if name not in evidence.parameters:
        raise EvidenceMissing("the order of the attempt is not on record")
    return evidence.parameters[name]


def _fact(evidence: Evidence, name: str) -> float:
    value = manifest_of(evidence).facts.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise EvidenceMissing(f"the manifest has no number '{name}'")
    return value


def _data(evidence: Evidence, _: MetricSet | None) -> Found:
    """Count again what should have been trained on: every accepted example, or the granted number of each kind."""
    expected = _expected(evidence)
    used = manifest_of(evidence).facts.get("examples_by_kind")
    total = sum(expected.values())
    if used != expected:
        return Found("FAIL", f"trained on {used}, the granted data gives {expected}", float(total))
    return Found("PASS", f"trained on all {total} granted examples", float(total))


def _expected(evidence: Evidence) -> dict[str, int]:
    limit = evidence.parameters.get("max_examples_per_kind")
    available = Counter(one.kind for one in read_rows(evidence.inputs.get("examples"), Example, "training examples"))
    return {kind: min(count, limit or count) for kind, count in sorted(available.items())}


def _steps(evidence: Evidence, _: MetricSet | None) -> Found:
    """Compare the logged steps with the planned ones, and those with what data, batch size and epochs imply."""
    rows, effective = steps_of(evidence), manifest_of(evidence).effective
    planned, done = effective.get("planned_steps"), effective.get("steps")
    if not len(rows) == planned == done:
        return Found("FAIL", f"{planned} steps were planned, {done} done, {len(rows)} have a row", float(len(rows)))
    examples = sum(_expected(evidence).values())
    size, epochs = granted(evidence, "batch_size"), granted(evidence, "epochs")
    batches = math.ceil(examples / size)
    implied = math.ceil(batches / granted(evidence, "gradient_accumulation")) * epochs
    if planned != implied:
        detail = f"{planned} steps were done; {examples} examples in batches of {size}, {epochs} times, take {implied}"
        return Found("FAIL", detail, float(len(rows)))
    return Found("PASS", f"all {planned} steps that the data imply were done and logged", float(len(rows)))


def _mask(evidence: Evidence, _: MetricSet | None) -> Found:
    masked = _fact(evidence, "masked_tokens")
    carried = sum(row.tokens for row in steps_of(evidence))
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
    Check("training.mask", "Loss is on the completion only", _SFT, _mask, "loss on prompt tokens"),
    Check("training.batches", "Batches differ", _SFT, _batches, "one batch memorised"),
    Check("training.moved", "The weights moved", _SFT, _moved, "LoRA instead of full; checkpoint not the one claimed"),
)
