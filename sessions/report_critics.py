"""What a report says of critics in words: does what they accept count, and what would help where it does not.

Numbers are those of the metric set, limits those of the registered thresholds; nothing is judged here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specs.exact import holds
from specs.metrics import Metric
from specs.metrics_critics import CRITIC_PREFIX
from specs.thresholds import Thresholds

_COIN = 0.5
"""The share of verdicts that turn when a coin gives them."""


def critic_in_words(kind: str, metrics: Mapping[str, Any], limits: Thresholds) -> dict[str, Any] | None:
    """Return the table on a critic and what follows from it; None for other stages, or where it was not measured.

    Args:
        kind: of the stage.
        metrics: of the attempt, by id, as the report holds them.
        limits: the registered thresholds.

    Returns:
        ``rows`` (metric, what was asked, what it says), ``follows`` and ``helps``, each a list of sentences.
    """
    prefix = CRITIC_PREFIX.get(kind)
    names = [f"{prefix}_{name}" for name in ("agreement", "kappa", "swap_inconsistency")]
    if prefix is None or any(name not in metrics for name in names):
        return None
    agreement, kappa, swap = (metrics[name] for name in names)
    rows = [
        _row(agreement, "", "labelled items on which critic and person agree; some of it is luck"),
        _row(kappa, f">= {limits.critic_kappa:g}", "the same beyond luck: 0 is what luck gives, 1 is full agreement"),
        _row(
            swap,
            f"<= {limits.swap_inconsistency:g}",
            "rows with another verdict when A and B change places; a coin gives 0.5",
        ),
    ]
    low = kappa["interval"][0] if kappa["interval"] else 0.0
    enough = holds(Metric.model_validate(kappa).exact(), ">=", limits.critic_kappa)
    agrees = enough and low > 0
    stays = holds(Metric.model_validate(swap).exact(), "<=", limits.swap_inconsistency)
    follows: list[str] = []
    if not agrees:
        reached = "is too low" if not enough else "is high enough, on too few items"
        luck = " and may be luck altogether: its interval reaches down to 0" if low <= 0 else ""
        follows.append(f"The agreement with the person {reached}{luck}. What the critic accepts is no evidence.")
    if not stays:
        how = "It answers with a label, whatever the label stands for" if swap["value"] > _COIN else "It is unsure"
        follows.append(f"{how}: too many of its verdicts turn when the labels change places.")
    if agrees and stays:
        follows.append("The critic agrees with the person beyond luck, and its verdicts stay.")
    helps = (
        []
        if agrees and stays
        else [
            "a larger model as the critic: this one may rank well and still decide badly",
            "another rubric (`parameters.rubric`), with worked examples that are nearer to what is judged",
            *([] if low > 0 else ["more labelled items, where the critic is good and the interval is wide"]),
        ]
    )
    return {"rows": rows, "follows": follows, "helps": helps}


def _row(metric: Mapping[str, Any], asked: str, says: str) -> dict[str, Any]:
    return {"metric": metric, "asked": asked, "says": says}
