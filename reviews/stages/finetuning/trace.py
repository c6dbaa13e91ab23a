"""The lines that metrics of training are computed from: optimizer steps, and pairs that were kept out."""

from __future__ import annotations

from collections.abc import Callable

from reviews.evidence.evidence import Evidence
from reviews.evidence.row_lines import ROWS, Part, every, part
from reviews.stages.finetuning.measure import kept_out, steps_of
from specs.stages.finetuning.rows import PairScore

PAIRS = "pairs"


def supervised_training(evidence: Evidence, metric: str) -> tuple[Part, ...]:
    """Return the optimizer steps of a metric of ``sft``; of ``dpo``, without the beginning of its name.

    Raises:
        EvidenceMissing: the steps are absent or unreadable.
    """
    rows = steps_of(evidence)
    n = len(rows)
    fifth = max(1, n // 5)
    first = Part("the first fifth of the steps", ROWS, tuple(range(1, fifth + 1)), n)
    last = Part("the last fifth of the steps", ROWS, tuple(range(n - fifth + 1, n + 1)), n)
    largest = max(row.grad_norm for row in rows)
    of_metric = {
        "first_loss": (first,),
        "last_loss": (last,),
        "loss_drop": (first, last),
        "max_grad_norm": (part("have the largest gradient norm", rows, lambda row: row.grad_norm == largest),),
    }
    return of_metric.get(metric) or (every("every step", rows),)


def preference_training(evidence: Evidence, metric: str) -> tuple[Part, ...]:
    """Return the optimizer steps of a metric of ``dpo``, or the pairs that were kept out of training.

    Raises:
        EvidenceMissing: steps or scores are absent or unreadable.
    """
    if not metric.startswith("validation_"):
        return supervised_training(evidence, metric.removeprefix("dpo_"))
    rows = kept_out(evidence)
    of_metric: dict[str, tuple[str, Callable[[PairScore], bool]]] = {
        "validation_accuracy": (
            "the chosen response gained more than the rejected one",
            lambda row: row.chosen_after - row.chosen_before > row.rejected_after - row.rejected_before,
        ),
        "validation_ranked_before": (
            "the chosen response had more log-probability a token before",
            lambda row: row.chosen_before / row.chosen_tokens > row.rejected_before / row.rejected_tokens,
        ),
        "validation_ranked_after": (
            "the chosen response has more log-probability a token after",
            lambda row: row.chosen_after / row.chosen_tokens > row.rejected_after / row.rejected_tokens,
        ),
    }
    if metric in of_metric:
        what, fits = of_metric[metric]
        return (part(what, rows, fits, PAIRS),)
    return (every("every pair that was kept out", rows, PAIRS),)
