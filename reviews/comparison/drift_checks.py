"""Can the trained model still do what the untrained one could? A non-inferiority test over the same items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from reviews.checks.definition import Check, Found
from reviews.evidence.evidence import Evidence
from reviews.stages.evaluation.judged_answers import judged_rows
from reviews.stages.evaluation.measure import chosen_right, held, ratio_interval, surprises
from reviews.statistics import mcnemar as statistics
from reviews.statistics.paired_binary import is_non_inferior
from specs.errors import EvidenceMissing
from specs.stages.metric import MetricSet

SOURCE = "training on a narrow task that takes others away; non-inferiority, ICH E9 section 3.3.2"


class Change(NamedTuple):
    """After minus before, turned so that more is better, with its 95 % interval."""

    value: float
    interval: tuple[float, float]
    told: str


def _drift(evidence: Evidence, _: MetricSet | None) -> Found:
    plan = evidence.resolved.spec.evaluation
    registered = [one for one in (plan.drift if plan else ()) if one.after == evidence.stage.name]
    if not registered:
        return Found("NOT_APPLICABLE", "nothing is registered that must not fall here")
    told: list[str] = []
    fallen: list[str] = []
    worst = 1.0
    for one in registered:
        require_alike(evidence, one.before)
        change = _change(evidence, one.before)
        worst = min(worst, change.value)
        low, high = change.interval
        told.append(f"against '{one.before}': {change.told} [{low:+.3f}, {high:+.3f}], margin {one.margin:g}")
        if not is_non_inferior(change.interval, one.margin):
            fallen.append(one.before)
    detail = "; ".join(told)
    if fallen:
        return Found("FAIL", f"{detail}: it may have lost more than the margin", worst)
    return Found("PASS", detail, worst)


def require_alike(evidence: Evidence, before: str) -> None:
    """Refuse to compare stages that did not do the same: other items, settings, code or packages.

    Raises:
        EvidenceMissing: they did not, or one of them left no manifest.
    """
    arm, ours = evidence.arms.get(before), evidence.manifest
    if arm is None or arm.manifest is None:
        raise EvidenceMissing(f"'{before}' has no accepted attempt with a manifest")
    if ours is None:
        raise EvidenceMissing("the job left no manifest")
    compared = (
        ("items", ours.inputs.get("items"), arm.manifest.inputs.get("items")),
        ("parameters", evidence.parameters, arm.parameters),
        ("settings", ours.effective, arm.manifest.effective),
        ("code", ours.code, arm.manifest.code),
        ("packages", ours.packages, arm.manifest.packages),
    )
    differing = [what for what, one, other in compared if one != other]
    if differing:
        raise EvidenceMissing(f"'{before}' had other {', '.join(differing)}: it cannot be compared")


def _change(evidence: Evidence, before: str) -> Change:
    now, then = evidence.outputs.get("rows"), evidence.arms[before].rows
    if evidence.stage.kind == "perplexity":
        ours, theirs = surprises(evidence, now), surprises(evidence, then)
        saved = [was.nats - is_.nats for (_, is_), (_, was) in zip(ours, theirs, strict=True)]
        size = [float(row.bytes) for _, row in ours]
        value = sum(saved) / sum(size)
        interval = ratio_interval(saved, size)
        if interval is None:
            raise EvidenceMissing("one text alone says nothing of others")
        return Change(value, interval, f"{-value:+.4f} nats per byte on {len(size)} texts (less is better)")
    passed: tuple[Sequence[bool], Sequence[bool]]
    if evidence.stage.kind == "converse":
        passed = [one.passed for one in held(evidence, then)], [one.passed for one in held(evidence, now)]
    elif evidence.stage.kind == "choose":
        passed = chosen_right(evidence, then), chosen_right(evidence, now)
    else:
        earlier = judged_rows(evidence, then, "rows before")
        passed = [one.passed for one in earlier], [one.passed for one in judged_rows(evidence, now)]
    pairs = list(zip(*passed, strict=True))
    gained = sum(after and not was for was, after in pairs)
    lost = sum(was and not after for was, after in pairs)
    interval = statistics.paired_difference_interval(gained, lost, len(pairs))
    value = (gained - lost) / len(pairs)
    return Change(value, interval, f"{value:+.3f} on {len(pairs)} items, {gained} gained, {lost} lost")


CHECKS = (
    Check(
        "drift.kept",
        "What must not fall did not fall",
        ("evaluate", "perplexity", "choose", "converse"),
        _drift,
        SOURCE,
    ),
)
