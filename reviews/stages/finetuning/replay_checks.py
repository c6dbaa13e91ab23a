"""Does a witness that trains some steps again come to what the job wrote, and are the saved weights those it trained?

Training that is repeated from the same weights, data and random state gives the same course (proof of learning: Jia et
al. 2021, arXiv:2103.05633; verified training data: Choi, Shavit and Duvenaud 2023, arXiv:2307.00682).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from reviews.checks.definition import CheckOutcome, CheckRegistry, manifest_of
from reviews.checks.witness_checks import witness_of
from reviews.evidence.evidence import Evidence
from reviews.evidence.row_reader import read_rows
from reviews.stages.finetuning.checks import ONLINE, TRAINED
from reviews.stages.finetuning.measure import kept_out, saved_step, steps_of, validation_of
from specs.stages.base.metric import MetricSet
from specs.stages.base.witness import (
    LOSS_FACTOR,
    LOSS_SPARE,
    MERGED_APART,
    PAIR_APART,
    REPLAYED,
    SAVED_APART,
    ReplayTolerance,
)
from specs.stages.finetuning.rows import ReplayedStep, TrainingRow
from specs.stages.registry import Stage, kind_of
from specs.system.errors import EvidenceMissing

CHECKS = CheckRegistry(kinds=lambda kind: kind.replay_job)


@CHECKS.add(
    "witness.training",
    "Replayed steps give the same results",
    kinds=lambda kind: kind.makes_weights(),
    source="a made-up loss curve, other data or another seed, believed by the gate",
    threshold="; ".join(
        f"{dtype}: loss within {most.loss:g}, gradient norm within {most.gradient:g}, weights' steps within "
        f"{most.update:g} of the replayed, as shares"
        for dtype, most in REPLAYED.items()
    ),
)
def _check_training(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare batches, loss, gradient and the weights' movement of each replayed step with the job's row of it."""
    if not kind_of(evidence.stage).replay_job:
        return _not_replayed(evidence.stage)
    witness = witness_of(evidence)
    rows, replayed = steps_of(evidence), read_rows(witness.rows, ReplayedStep, "witness rows", which=_is_step)
    if {replayed_step.step for replayed_step in replayed} != {place + 1 for place in witness.challenge.rows}:
        raise EvidenceMissing("the witness did not replay the steps of its challenge")
    most = REPLAYED["float32" if _precision(evidence) == "float32" else "bfloat16"]
    counts = {segment.after + 1 for segment in witness.challenge.segments}
    wrong = [
        {"step": replayed_step.step, "why": why}
        for replayed_step in replayed
        if (why := differs(rows, replayed_step, most, begins=replayed_step.step in counts))
    ]
    message = f"{len(replayed)} of {witness.challenge.of} steps trained again from the granted data"
    if wrong:
        return CheckOutcome(
            "FAIL", f"{message}: {len(wrong)} differ", float(len(wrong)), tuple(wrong), repairable=False
        )
    worst = max(_apart(replayed_step.loss, rows[replayed_step.step - 1].loss) for replayed_step in replayed)
    return CheckOutcome("PASS", f"{message}: batches are equal, losses within {worst:.1e}", 0.0)


def _is_step(line: Any) -> bool:
    """Return whether a line of a witness is of a step, and not of an answer that it read."""
    return isinstance(line, dict) and "sketch" in line


def _not_replayed(stage: Stage) -> CheckOutcome:
    if not kind_of(stage).makes_weights(stage.parameters):
        return CheckOutcome("NOT_APPLICABLE", "the stage trains nothing")
    if stage.witness != "weights_only":
        raise EvidenceMissing(f"no witness can repeat the training of a {stage.kind} stage, and the spec accepts none")
    return CheckOutcome("WARN", "training not replayed, as registered: its curve and its data are claims of the job")


@CHECKS.add(
    "witness.weights",
    "The saved weights are the trained weights",
    source="another checkpoint saved than the trained one; adapters merged with another scale",
    threshold=f"saved as after the last step, their norm within {SAVED_APART:g}; merged within "
    + ", ".join(f"{most:g} ({dtype})" for dtype, most in MERGED_APART.items()),
)
def _check_weights(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the saved weights with the last step's, the merged with base and adapters, and what they read."""
    witness, rows = witness_of(evidence), steps_of(evidence)
    assert witness.manifest is not None
    facts = witness.manifest.facts
    wrong = [{"why": why} for why in _wrong_weights(evidence, facts, rows)]
    if wrong:
        return CheckOutcome("FAIL", wrong[0]["why"], float(len(wrong)), tuple(wrong), repairable=False)
    return CheckOutcome(
        "PASS", f"the saved weights are those after step {saved_step(evidence)}{_describe_scores(facts)}", 0.0
    )


def _precision(evidence: Evidence) -> str:
    """Return what was computed in: weights of float32 are not reason for the finer tolerance under autocast."""
    return "mixed" if evidence.parameters.get("precision") == "mixed" else manifest_of(evidence).dtype


def differs(
    rows: Sequence[TrainingRow], replayed_step: ReplayedStep, most: ReplayTolerance, *, begins: bool = False
) -> str:
    """Return how a replayed step differs from the job's row of it; empty if it does not.

    One that begins with a snapshot begins with the very weights that the job states; later ones may differ by rounding.
    """
    row = rows[replayed_step.step - 1]
    before = rows[replayed_step.step - 2].sketch if replayed_step.step > 1 else replayed_step.before
    if not row.sketch or not row.batches or not before:
        return "its row states no batches or no weights"
    if row.batches != replayed_step.batches:
        return "it read other batches than the granted data gives"
    if row.tokens != replayed_step.tokens:
        return f"its loss is over {row.tokens} tokens, replayed {replayed_step.tokens}"
    if not math.isclose(row.learning_rate, replayed_step.learning_rate, rel_tol=1e-9):
        return f"its learning rate is {row.learning_rate:g}, replayed {replayed_step.learning_rate:g}"
    loss, gradient, update = distances(rows, replayed_step)
    if not loss <= most.loss:
        return f"its loss is {row.loss:.6g}, replayed {replayed_step.loss:.6g}"
    if not gradient <= most.gradient:
        return f"its gradient norm is {row.grad_norm:.6g}, replayed {replayed_step.grad_norm:.6g}"
    if begins and replayed_step.step > 1 and not same_weights(before, replayed_step.before):
        return "it begins with other weights than its snapshot"
    if not update <= most.update:
        return f"its weights moved otherwise than in the witness: {update:.2g} of their movement apart"
    return ""


def distances(rows: Sequence[TrainingRow], replayed_step: ReplayedStep) -> tuple[float, float, float]:
    """Return how far loss, gradient norm and movement of the weights are from the job's row, as shares of our own."""
    row = rows[replayed_step.step - 1]
    before = rows[replayed_step.step - 2].sketch if replayed_step.step > 1 else replayed_step.before
    theirs, ours = _compute_movement(before, row.sketch), _compute_movement(replayed_step.before, replayed_step.sketch)
    update = _distance(theirs, ours) / max(_norm(ours), _ROUNDING * _norm(replayed_step.before))
    return _apart(replayed_step.loss, row.loss), _apart(replayed_step.grad_norm, row.grad_norm), update


def same_weights(values: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether two sketches are of the same weights: single ones are copied bit by bit, their norm is a sum."""
    if not values or len(values) != len(other):
        return False
    norm, *points = zip(values, other, strict=True)
    return math.isclose(*norm, rel_tol=SAVED_APART) and all(math.isclose(*two, rel_tol=_DIGITS) for two in points)


_DIGITS = 1e-8
"""The precision of a weight in a sketch, which has nine digits."""
_ROUNDING = 1e-7
"""The rounding of a sketch: nine digits of float32 weights show no smaller movement."""


def _compute_movement(before: Sequence[float], after: Sequence[float]) -> list[float]:
    """Return how far the weights of a sketch moved; the norm of all, which is first, moves in another measure."""
    return [now - then for then, now in zip(before[1:], after[1:], strict=True)]


def _apart(ours: float, theirs: float) -> float:
    """Return a difference as a share of ours; infinite if one is not a number."""
    difference = abs(ours - theirs) / max(abs(ours), 1e-12)
    return difference if math.isfinite(difference) else math.inf


def _distance(values: Sequence[float], other: Sequence[float]) -> float:
    return math.dist(values, other) if len(values) == len(other) else math.inf


def _norm(values: Sequence[float]) -> float:
    return math.hypot(*values)


def _wrong_weights(evidence: Evidence, facts: dict[str, Any], rows: Sequence[TrainingRow]) -> Iterator[str]:
    """Yield what is wrong with the saved weights; raises EvidenceMissing if the witness does not say."""
    try:
        saved = [float(value) for value in facts["saved"]]
        step = saved_step(evidence)
        if not same_weights(rows[step - 1].sketch, saved):
            yield f"the saved weights are not those after step {step}"
        if any(segment.after < step <= segment.until for segment in witness_of(evidence).challenge.segments):
            yield from _wrong_end(evidence, float(facts["end_apart"]))
        if evidence.parameters.get("method", "full") != "full":
            yield from _wrong_merge(evidence, facts)
        if evidence.stage.kind in (*TRAINED, *ONLINE):
            yield from (f"the saved {name} is not that of the granted model" for name in map(str, facts["files"]))
        if evidence.stage.kind == "sft":
            yield from _wrong_loss(float(facts["read_loss"]), rows[:step])
            if evidence.parameters.get("validation_share"):
                yield from _wrong_kept(evidence, facts["kept"])
        if evidence.stage.kind == "dpo":
            yield from _wrong_pairs(evidence, facts["pairs"])
    except (KeyError, TypeError, ValueError) as error:
        raise EvidenceMissing(f"the witness does not say what it read of the saved weights: {error}") from error


def _wrong_end(evidence: Evidence, apart: float) -> Iterator[str]:
    """Compare all saved weights with the weights that the witness reaches: a sketch holds a few of them."""
    most = REPLAYED["float32" if _precision(evidence) == "float32" else "bfloat16"].update
    if not apart <= most:
        yield f"the saved weights are {apart:.2g} of their movement from the result of the last steps"


def _wrong_merge(evidence: Evidence, facts: dict[str, Any]) -> Iterator[str]:
    most = MERGED_APART["float32" if _precision(evidence) == "float32" else "bfloat16"]
    granted = sorted(target_module.rsplit(".", 1)[-1] for target_module in evidence.parameters["target_modules"])
    if facts["merged_modules"] != sorted(set(granted)):
        yield f"adapters are merged into {', '.join(facts['merged_modules'])}, expected {', '.join(granted)}"
    if not float(facts["merged_apart"]) <= most:
        yield f"merged weights are {facts['merged_apart']:.2g} from base and adapters, as a share"
    if not float(facts["frozen_apart"]) <= most:
        yield f"weights without adapters are {facts['frozen_apart']:.2g} from the base, as a share"


def _wrong_loss(read: float, rows: Sequence[TrainingRow]) -> Iterator[str]:
    """Compare the loss that the saved weights have on their own examples with the end of the curve.

    They may read them far better: the curve's losses are of examples that were not trained on yet.
    """
    tail = rows[-max(1, len(rows) // 5) :]
    end = math.fsum(row.loss for row in tail) / len(tail)
    if not read <= LOSS_FACTOR * max(end, 0.0) + LOSS_SPARE:
        yield f"the curve ends at {end:.3g}, the saved weights have a loss of {read:.3g} on the granted examples"


def _wrong_pairs(evidence: Evidence, values: list[list[float]]) -> Iterator[str]:
    """Compare scores of pairs kept out of training with those of the granted and of the saved weights."""
    most = PAIR_APART["float32" if _precision(evidence) == "float32" else "bfloat16"]
    rows = {row.pair: row for row in kept_out(evidence)}
    for pair, *scores in values:
        row = rows.get(int(pair))
        if row is None:
            yield f"pair {int(pair)} was kept out of training and has no scores"
            continue
        theirs = (row.chosen_before, row.rejected_before, row.chosen_after, row.rejected_after)
        if any(
            not abs(ours - log_probability) <= most * max(1.0, abs(ours))
            for ours, log_probability in zip(scores, theirs, strict=True)
        ):
            yield f"the scores of pair {int(pair)} are not those of the granted and the saved weights"


RANKED_APART = 0.02
"""The fraction of a response's tokens, beyond one, that rounding may rank first or not."""


def _wrong_kept(evidence: Evidence, values: list[list[float]]) -> Iterator[str]:
    """Compare scores of examples kept out of training with those of the granted and of the saved weights."""
    most = PAIR_APART["float32" if _precision(evidence) == "float32" else "bfloat16"]
    stated = {(row.step, row.example): row for row in validation_of(evidence)}
    saved = saved_step(evidence)
    for line, *scores, correct in values:
        theirs = [stated.get((step, int(line))) for step in (0, saved)]
        if any(
            row is None or not abs(score - row.log_probability) <= most * max(1.0, abs(score))
            for score, row in zip(scores, theirs, strict=True)
        ) or (theirs[1] is not None and not abs(correct - theirs[1].correct) <= 1 + RANKED_APART * theirs[1].tokens):
            yield f"the scores of example {int(line)} are not those of the granted and the saved weights"


def _describe_scores(facts: dict[str, Any]) -> str:
    if "pairs" in facts:
        return f"; the scores of {len(facts['pairs'])} pairs kept out are theirs"
    if "read" not in facts:
        return ""
    text = f", the scores of {len(facts['kept'])} kept out are theirs" if "kept" in facts else ""
    return f"; their loss on {facts['read']} of the examples is {facts['read_loss']:.3g}{text}"
