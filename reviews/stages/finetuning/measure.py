"""Metrics of training, from the steps a job logged and the pairs it kept out.

They are defined in ``specs/stages``: the catalog, and ``finetuning/metrics.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from reviews.evidence.evidence import Evidence
from reviews.evidence.measured_value import Measured, share
from reviews.evidence.row_reader import read_rows
from specs.errors import EvidenceMissing
from specs.stages.finetuning.rows import PairScore, PreferenceStep, TrainingRow


def steps_of(evidence: Evidence) -> tuple[TrainingRow, ...] | tuple[PreferenceStep, ...]:
    """Return the optimizer steps as they were logged.

    Raises:
        EvidenceMissing: they are absent or unreadable; a loss or gradient that is no number is unreadable.
    """
    path = evidence.outputs.get("rows")
    if evidence.stage.kind == "dpo":
        return read_rows(path, PreferenceStep, "training rows")
    return read_rows(path, TrainingRow, "training rows")


def kept_out(evidence: Evidence) -> tuple[PairScore, ...]:
    """Return the scores of the pairs that were kept out of training; there may be none.

    Raises:
        EvidenceMissing: they are absent or unreadable.
    """
    return read_rows(evidence.outputs.get("pairs"), PairScore, "scores of pairs", may_be_empty=True)


def measure_sft(evidence: Evidence) -> dict[str, Measured]:
    """Compute the metrics of a supervised stage.

    Raises:
        EvidenceMissing: steps are absent, unreadable or not 1, 2, 3, ...
    """
    return _steps(evidence)


def measure_dpo(evidence: Evidence) -> dict[str, Measured]:
    """Compute the metrics of a stage that trained on preferences; those of pairs only where pairs were kept out.

    Raises:
        EvidenceMissing: steps or scores are absent or unreadable, or steps are not 1, 2, 3, ...
    """
    names = {"steps": "dpo_steps", "train_tokens": "dpo_train_tokens", "max_grad_norm": "dpo_max_grad_norm"}
    names |= {name: f"dpo_{name}" for name in ("first_loss", "last_loss", "loss_drop")}
    found = {names[name]: value for name, value in _steps(evidence).items()}
    pairs = kept_out(evidence)
    found["validation_pairs"] = Measured(len(pairs), len(pairs))
    return found | (_validation(pairs) if pairs else {})


def _steps(evidence: Evidence) -> dict[str, Measured]:
    rows = steps_of(evidence)
    n = len(rows)
    if [row.step for row in rows] != list(range(1, n + 1)):
        raise EvidenceMissing("the steps are not 1, 2, 3, ... without a gap", where="training rows")
    fifth = max(1, n // 5)
    first = sum(row.loss for row in rows[:fifth]) / fifth
    last = sum(row.loss for row in rows[-fifth:]) / fifth
    return {
        "steps": Measured(n, n),
        "train_tokens": Measured(sum(row.tokens for row in rows), n),
        "first_loss": Measured(first, fifth),
        "last_loss": Measured(last, fifth),
        "loss_drop": Measured(first - last, n),
        "max_grad_norm": Measured(max(row.grad_norm for row in rows), n),
    }


def _validation(pairs: Sequence[PairScore]) -> dict[str, Measured]:
    n = len(pairs)
    margins = [_gain(pair) for pair in pairs]
    before = [pair.chosen_before / pair.chosen_tokens > pair.rejected_before / pair.rejected_tokens for pair in pairs]
    after = [pair.chosen_after / pair.chosen_tokens > pair.rejected_after / pair.rejected_tokens for pair in pairs]
    change = [(pair.chosen_after - pair.chosen_before) / pair.chosen_tokens for pair in pairs]
    return {
        "validation_margin": Measured(sum(margins) / n, n),
        "validation_accuracy": share(sum(margin > 0 for margin in margins), n),
        "validation_ranked_before": share(sum(before), n),
        "validation_ranked_after": share(sum(after), n),
        "validation_chosen_change": Measured(sum(change) / n, n),
    }


def _gain(pair: PairScore) -> float:
    return (pair.chosen_after - pair.chosen_before) - (pair.rejected_after - pair.rejected_before)
