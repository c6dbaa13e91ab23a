"""Which checks are detectors of a training's faults, and which class of cause each of them shows.

A fault of one class looks like one of the next: a job on the wrong tokens seems to have too few data. So infrastructure
is looked at first, then the optimisation, and data are named last, when nothing else was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from reviews.checks.job_endings import ending_of_check
from specs.trail.verdict import CheckResult

Cause = Literal["infrastructure", "optimisation", "data"]
CAUSES: tuple[Cause, ...] = ("infrastructure", "optimisation", "data")
"""In the order in which they are looked at."""
IN_WORDS: dict[Cause, str] = {
    "infrastructure": "infrastructure masks the result",
    "optimisation": "the optimisation did not work",
    "data": "there are too few data",
}
Depth = Literal["symptom", "course", "cause"]
DEPTHS: tuple[Depth, ...] = ("symptom", "course", "cause")


class Detector(NamedTuple):
    """What a check says about a training when it does not pass."""

    cause: Cause
    depth: Depth
    """A symptom says that the result is bad, a course how it came to be, a cause what to change."""
    parameters: tuple[str, ...] = ()
    """What was granted that explains it."""


_RATES = ("learning_rate", "scheduler", "warmup_ratio", "warmup_steps")
DETECTORS: dict[str, Detector] = {
    "jobs.exit": Detector("infrastructure", "course"),
    "jobs.effective": Detector("infrastructure", "cause"),
    "jobs.device": Detector("infrastructure", "cause", ("device", "precision")),
    "jobs.measured": Detector("infrastructure", "symptom"),
    "training.device": Detector("infrastructure", "cause", ("device",)),
    "training.speed": Detector("infrastructure", "cause", ("device", "precision")),
    "training.tokenizer": Detector("infrastructure", "cause"),
    "training.mask": Detector("infrastructure", "cause", ("prompt_format", "response_start")),
    "training.objective": Detector("infrastructure", "cause", ("loss",)),
    "training.steps": Detector("infrastructure", "cause", ("epochs", "batch_size", "gradient_accumulation")),
    "training.data": Detector("infrastructure", "cause", ("max_examples_per_kind",)),
    "training.stop": Detector("infrastructure", "cause", ("early_stopping",)),
    "training.validation": Detector("infrastructure", "cause", ("validation_share",)),
    "dpo.reference": Detector("infrastructure", "cause", ("loss",)),
    "dpo.split": Detector("infrastructure", "cause", ("validation_share",)),
    "witness.training": Detector("infrastructure", "cause"),
    "witness.rollouts": Detector("infrastructure", "cause"),
    "rollouts.complete": Detector("infrastructure", "cause", ("epochs", "batch_size", "generations")),
    "rollouts.rewards": Detector("infrastructure", "cause", ("rewards",)),
    "rollouts.channels": Detector("infrastructure", "cause", ("channels",)),
    "rollouts.pairs": Detector("data", "cause", ("replayed_pairs",)),
    "rollouts.kl": Detector("optimisation", "course", ("kl_weight", "learning_rate")),
    "rollouts.entropy": Detector("optimisation", "course", ("temperature", "learning_rate")),
    "rollouts.clipped": Detector("optimisation", "course", ("updates", "clip", "learning_rate")),
    "rollouts.length": Detector("data", "course", ("rewards", "max_new_tokens")),
    "rollouts.ties": Detector("data", "cause", ("generations", "temperature")),
    "rollouts.hacking": Detector("data", "cause", ("rewards", "kl_weight")),
    "witness.weights": Detector("infrastructure", "cause"),
    "training.gradient": Detector("optimisation", "cause", ("learning_rate", "max_grad_norm", "precision")),
    "training.schedule": Detector("optimisation", "cause", _RATES),
    "training.decay": Detector("optimisation", "cause", _RATES),
    "training.plateau": Detector("optimisation", "course", _RATES),
    "training.rise": Detector("optimisation", "course", ("learning_rate", "epochs", "max_grad_norm")),
    "training.moved": Detector("optimisation", "course", ("learning_rate", "method")),
    "training.path": Detector("optimisation", "course", ("learning_rate", "method")),
    "training.loss": Detector("optimisation", "symptom", ("learning_rate", "epochs")),
    "training.starvation": Detector("data", "cause", ("epochs", "method", "max_examples_per_kind")),
    "training.scaling": Detector("data", "cause", ("epochs", "scaling")),
    "training.overfit": Detector("data", "course", ("epochs", "learning_rate", "method")),
    "training.batches": Detector("data", "cause", ("batch_size",)),
    "training.length": Detector("data", "cause", ("max_length",)),
    "leakage.duplicates": Detector("data", "cause"),
    "dpo.learnt": Detector("data", "symptom", ("learning_rate", "epochs", "beta")),
}
"""The detectors by check."""

_LOST = ("jobs.exit", "witness.")


def has_fired(check_result: CheckResult) -> bool:
    """Return whether a check found something.

    Without evidence it found nothing, except that a job or witness was lost.
    """
    return check_result.status in ("FAIL", "WARN", "ERROR") or (
        check_result.status == "BLOCKED" and check_result.id.startswith(_LOST)
    )


def detector_of(check_result: CheckResult) -> Detector:
    """Return the detector of a check, which has to be one; of a job that broke, by the end of its log."""
    detector = DETECTORS[check_result.id]
    if check_result.status == "BLOCKED" and check_result.id != "jobs.exit":
        # What a witness lacked may be what its job did not leave.
        return detector._replace(depth="symptom")
    if check_result.id != "jobs.exit":
        return detector
    ending = ending_of_check(check_result)
    if ending.name == "diverged":
        return detector._replace(cause="optimisation", parameters=_RATES)
    return detector._replace(parameters=ending.parameters)


def binding(check_results: Sequence[CheckResult]) -> CheckResult | None:
    """Return the check that names the cause to fix first; None where nothing was found.

    Certain faults go before warnings. Within them infrastructure goes before the optimisation, and that before data; a
    cause goes before the course that it explains, and that before its symptom.
    """

    def rank(check_result: CheckResult) -> tuple[bool, int, int]:
        detector = detector_of(check_result)
        return check_result.status == "WARN", CAUSES.index(detector.cause), -DEPTHS.index(detector.depth)

    return min(
        (check_result for check_result in check_results if check_result.id in DETECTORS and has_fired(check_result)),
        key=rank,
        default=None,
    )


def steps_in(check_result: CheckResult) -> tuple[int, ...]:
    """Return the optimizer steps that a check shows, which are lines of the rows; the first of many."""
    return tuple(row["step"] for row in check_result.rows if isinstance(row.get("step"), int))


def rows_in_words(lines: Sequence[int]) -> str:
    """Return lines of the rows in words; empty without any."""
    every = sorted(set(lines))
    if not every:
        return ""
    if len(every) > 2 and every[-1] - every[0] == len(every) - 1:
        return f"rows {every[0]} to {every[-1]}"
    return f"row{'s' if len(every) > 1 else ''} {', '.join(map(str, every))}"
