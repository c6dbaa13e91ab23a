"""Checks of the design, before anything is spent."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reviews.checks import leakage, power
from reviews.checks.check import Found, guarded, result
from specs.evidence import Item
from specs.session import ResolvedSpec
from specs.verdicts import CheckResult


def design_checks(
    resolved: ResolvedSpec, heldout: tuple[Item, ...], data: Mapping[str, tuple[Item, ...]]
) -> tuple[CheckResult, ...]:
    """Judge power, overlap of the splits, independence and cost of a registered design."""
    spec = resolved.spec
    trained = [(f"{name}:{item.id}", item.prompt) for name, items in sorted(data.items()) for item in items]
    every = [item for items in data.values() for item in items]
    checks: tuple[tuple[str, str, bool, str | None, Callable[[], Found]], ...] = (
        (
            "design.power",
            "The registered test can find the registered effect",
            True,
            f">= {spec.analysis.power:g}",
            lambda: power.design_power(spec.analysis),
        ),
        (
            "design.overlap",
            "No held-out prompt stands in the training data",
            True,
            leakage.THRESHOLD,
            lambda: leakage.overlap_of(trained, heldout),
        ),
        (
            "design.groups",
            "Training and held-out share no group",
            True,
            None,
            lambda: leakage.groups_of(every, heldout),
        ),
        (
            "design.duplicates",
            "Training prompts do not repeat",
            False,
            None,
            lambda: leakage.duplicates_of((item.prompt,) for item in every),
        ),
        (
            "design.independence",
            "Builder and reviewer are of different vendors",
            True,
            None,
            lambda: _independence(resolved),
        ),
        ("design.cost", "One attempt of each stage can be paid for", True, None, lambda: _cost(resolved)),
        ("design.seeds", "Variation between seeds is measured", False, None, lambda: _seeds(resolved)),
    )
    digests = tuple(sorted(resolved.data_digests.values()))
    return tuple(
        result(id, title, guarded(run), blocking=blocking, threshold=threshold, evidence=digests)
        for id, title, blocking, threshold, run in checks
    )


def _independence(resolved: ResolvedSpec) -> Found:
    builder, reviewer = resolved.spec.builder.vendor, resolved.spec.reviewer.vendor
    if builder == reviewer:
        return Found("FAIL", f"builder and reviewer are both '{builder}'", repairable=False)
    return Found("PASS", f"builder {builder}, reviewer {reviewer}")


def _cost(resolved: ResolvedSpec) -> Found:
    budget = resolved.spec.budget
    total = sum(stage.max_minutes for stage in resolved.spec.stages) / 60 * budget.machine_usd_per_hour
    told = f"one attempt of each stage costs at most {total:.4f} USD of {budget.max_cost_usd:g} USD"
    if total > budget.max_cost_usd:
        return Found("FAIL", told, total, repairable=False)
    return Found("PASS", told, total)


def _seeds(resolved: ResolvedSpec) -> Found:
    count = len(resolved.spec.analysis.seeds)
    if count < 2:
        detail = "one seed: luck of the seed is not part of the interval; repeat the session with other seeds"
        return Found("WARN", detail, float(count))
    return Found("PASS", f"{count} seeds", float(count))
