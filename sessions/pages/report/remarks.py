"""Remarks of a report: the meaning of critics' figures, and the scripts that trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reviews.evidence.weight_lineage import LineageCheckpoint, lineages
from reviews.history.history import History
from specs.jobs.job_records import JobOrder
from specs.session.session_spec import ResolvedSpec
from specs.session.thresholds import Thresholds
from specs.stages.base.metric import Metric
from specs.stages.critique.metrics import CRITIC_PREFIX
from specs.stages.recipes.script_file import digest_of, path_of
from specs.system.exact import holds
from specs.trail.session_bodies import LaunchEntry
from specs.trainers.trainer_file import notes_of

_COIN = 0.5
"""The share of verdicts that turn when a coin gives them."""


def critic_in_words(kind: str, metrics: Mapping[str, Any], limits: Thresholds) -> dict[str, Any] | None:
    """Return a critic's table and its meaning; None for other stages, or without measurements.

    ``rows`` hold metric, threshold and meaning; ``follows`` and ``helps`` are sentences.
    """
    prefix = CRITIC_PREFIX.get(kind)
    names = [f"{prefix}_{name}" for name in ("agreement", "kappa", "swap_inconsistency")]
    if prefix is None or any(name not in metrics for name in names):
        return None
    agreement, kappa, swap = (metrics[name] for name in names)
    table = (
        (agreement, "", "labelled items on which critic and person agree, partly by chance"),
        (kappa, f">= {limits.critic_kappa:g}", "agreement beyond chance: 0 is chance, 1 is full agreement"),
        (
            swap,
            f"<= {limits.swap_inconsistency:g}",
            "rows whose verdict changes when A and B are swapped; a coin gives 0.5",
        ),
    )
    rows = [{"metric": metric, "required": text, "says": says} for metric, text, says in table]
    low = kappa["interval"][0] if kappa["interval"] else 0.0
    enough = holds(Metric.model_validate(kappa).exact(), ">=", limits.critic_kappa)
    agrees = enough and low > 0
    stays = holds(Metric.model_validate(swap).exact(), "<=", limits.swap_inconsistency)
    follows: list[str] = []
    if not agrees:
        reached = "is too low" if not enough else "is high enough, on too few items"
        luck = " and may be chance: its interval reaches down to 0" if low <= 0 else ""
        follows.append(f"The agreement with the person {reached}{luck}. What the critic accepts is not evidence.")
    if not stays:
        how = "It prefers a label, whatever the label means" if swap["value"] > _COIN else "It is unsure"
        follows.append(f"{how}: too many of its verdicts change when the labels are swapped.")
    if agrees and stays:
        follows.append("The critic agrees with the person beyond chance, and its verdicts are stable.")
    helps = (
        []
        if agrees and stays
        else [
            "a larger model as the critic: this one may rank well and still decide badly",
            "another rubric (`parameters.rubric`), with worked examples that are closer to the judged texts",
            *([] if low > 0 else ["more labelled items, if the critic is good and the interval is wide"]),
        ]
    )
    return {"rows": rows, "follows": follows, "helps": helps}


def trained_by_scripts(history: History) -> list[dict[str, Any]]:
    """Return each checkpoint of a script that a later job read, itself or through a checkpoint made from it.

    Raises:
        EvidenceMissing: an order is not in the store.
        AuditDamage: it has other bytes than its name.
    """
    results: dict[str, dict[str, Any]] = {}
    for launch in history.of(LaunchEntry):
        order = JobOrder.model_validate_json(history.store.get(launch.body.order))
        for way in lineages(history.before(launch), history.resolved.spec, order).values():
            for place, made in enumerate(way):
                if made.script is None:
                    continue
                base = way[place + 1] if place + 1 < len(way) else None
                facts = results.setdefault(
                    made.digest, _describe_checkpoint(made, base) | _named(made.script, history.resolved)
                )
                if launch.body.stage not in facts["read_by"]:
                    facts["read_by"].append(launch.body.stage)
    return list(results.values())


def _named(script: str, resolved: ResolvedSpec) -> dict[str, Any]:
    """Return the file of a registered script, and what was replaced in it; no file where a builder wrote it."""
    named = (stage.script for stage in resolved.spec.stages if stage.script and digest_of(stage.script) == script)
    file = next(named, None)
    return {"file": file and path_of(file), "replaced": notes_of(resolved.scripts[script]) if file else []}


def _describe_checkpoint(made: LineageCheckpoint, base: LineageCheckpoint | None) -> dict[str, Any]:
    return {
        "checkpoint": made.reference,
        "attempt": made.attempt,
        "digest": made.digest,
        "script": made.script,
        "from": base.reference if base else None,
        "from_digest": base.digest if base else None,
        "read_by": [],
    }
