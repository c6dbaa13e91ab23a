"""Checks of the design, before anything is spent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from reviews.checks import items_per_kind, leakage_checks
from reviews.checks.definition import Found, guarded, result
from reviews.checks.limit import Limit, told
from reviews.comparison import paired_checks, power_checks, subgroup_checks
from reviews.stages.critique import label_check as labels
from reviews.stages.evaluation import item_checks as items
from reviews.stages.evaluation import scorer_checks
from specs.exact import exact, holds
from specs.resources import attempt_usd
from specs.session.lint.party_rules import makers
from specs.session.session_spec import ResolvedSpec
from specs.stages.artifacts import Item
from specs.stages.registry import kind_of
from specs.trail.verdict import CheckResult
from training.rules.tasks import CONVERSATION
from training.rules.tasks.conversation import said_in


class Design(NamedTuple):
    """What a design check may look at."""

    resolved: ResolvedSpec
    heldout: tuple[Item, ...]
    data: Mapping[str, tuple[Item, ...]]


@dataclass(frozen=True)
class DesignCheck:
    """A check of the design with its weight and its source, as :class:`reviews.checks.definition.Check` has."""

    id: str
    title: str
    run: Callable[[Design], Found]
    source: str
    blocking: bool = True
    limits: tuple[Limit, ...] = ()


def design_checks(
    resolved: ResolvedSpec, heldout: tuple[Item, ...], data: Mapping[str, tuple[Item, ...]]
) -> tuple[CheckResult, ...]:
    """Judge power, overlap of the splits, independence and cost of a registered design."""
    design = Design(resolved, heldout, data)
    digests = tuple(sorted(resolved.data_digests.values()))
    return tuple(_apply(check, design, digests) for check in DESIGN_CHECKS)


def _apply(check: DesignCheck, design: Design, digests: tuple[str, ...]) -> CheckResult:
    threshold = told(check.limits, design.resolved.spec)
    found = guarded(lambda: check.run(design))
    return result(check.id, check.title, found, blocking=check.blocking, threshold=threshold, evidence=digests)


def _power(design: Design) -> Found:
    """Compute the power of the registered test at the registered minimum effect and compare it with the asked one."""
    analysis = design.resolved.spec.analysis
    whole, kinds = power_checks.design_power(analysis), power_checks.design_kinds(analysis, design.heldout)
    if analysis.kinds is None or whole.status != "PASS":
        return whole
    return replace(kinds, detail=f"{whole.detail}; by kind: {kinds.detail}", figure=whole.figure)


def _paired(design: Design) -> Found:
    """Compute the power of the paired tests registered beside the analysis."""
    return paired_checks.design_of(design.resolved.spec, len(design.heldout), dict(design.data))


def _overlap(design: Design) -> Found:
    """Compare every training prompt with every held-out prompt: equal, equal but for case and marks, or near."""
    trained = [(f"{name}:{item.id}", item.prompt) for name, items in _trained(design).items() for item in items]
    return leakage_checks.overlap_of(trained, design.heldout, design.resolved.spec.thresholds)


def _unique(design: Design) -> Found:
    """Look for held-out prompts that ask the same thing twice: n counts questions, not rows."""
    prompts = [(item.id, "\n".join(said_in(item))) for item in design.heldout]
    found = leakage_checks.repeats_of(prompts)
    if found:
        shown = tuple({"heldout": one.train, "repeats": one.heldout, "text": one.train_text} for one in found)
        return Found(
            "FAIL", f"{len(found)} held-out prompts repeat another", float(len(found)), shown, repairable=False
        )
    return Found("PASS", f"all {len(prompts)} held-out prompts differ", 0.0)


def _groups(design: Design) -> Found:
    """Compare the groups (topics) of the training data with those of the held-out split."""
    return leakage_checks.groups_of(_every(design), design.heldout)


def _duplicates(design: Design) -> Found:
    """Count training prompts that the data repeat."""
    return leakage_checks.duplicates_of(((item.prompt,) for item in _every(design)), design.resolved.spec.thresholds)


def _strata(design: Design) -> Found:
    """Count the held-out items of each constraint kind: one with a handful of items shows nothing by itself."""
    return items_per_kind.sizes_of(design.heldout, design.resolved.spec.thresholds.items_per_kind)


def _items(design: Design) -> Found:
    """Run each held-out item's verifier on known answers: an item that nothing or everything meets shows nothing."""
    return items.soundness(design.resolved.spec, design.heldout)


def _every(design: Design) -> list[Item]:
    return [item for items in _trained(design).values() for item in items]


def _trained(design: Design) -> dict[str, tuple[Item, ...]]:
    """Return the data files that training may see: not labels, nor files that only measuring stages read."""
    spec = design.resolved.spec
    readers: dict[str, list[bool]] = {}
    for stage in spec.stages:
        for reference in stage.inputs.values():
            readers.setdefault(reference, []).append(kind_of(stage).reads_heldout)
    labels = spec.evaluation.labelled if spec.evaluation else None
    measured = {
        name
        for name in design.data
        if all(readers.get(f"data.{name}", ())) and (f"data.{name}" in readers or name == labels)
    }
    return {name: items for name, items in sorted(design.data.items()) if name not in measured}


def _scorer(design: Design) -> Found:
    """Compare each verifier of answers with known answers, and the task's own with labels of people too."""
    spec = design.resolved.spec
    judged = [(stage, arm) for stage in spec.stages if (arm := kind_of(stage).arm)]
    own = [task for stage, _ in judged if (task := getattr(stage.parameters, "scorer", None))]
    talks = [CONVERSATION] if any(arm.conversations for _, arm in judged) else []
    found = [scorer_checks.admitted(spec, task, design.data) for task in dict.fromkeys((spec.task, *own, *talks))]
    return next((one for one in found if one.status != "PASS"), found[0])


def _labelled(design: Design) -> Found:
    """Look at the labelled samples of the critics: without one, what a critic accepts is no evidence."""
    return labels.samples_of(design.resolved.spec, design.data)


def _independence(design: Design) -> Found:
    """Compare the vendors of builder and reviewer; the same vendor twice would review itself."""
    spec = design.resolved.spec
    reviewers = spec.reviewers()
    if any(makers(spec.builder) & makers(one) for one in reviewers):
        return Found("FAIL", "builder and reviewer are of the same vendor", repairable=False)
    if spec.builder.vendor == "external" and any(one.asks_a_model for one in reviewers):
        if spec.builder.model_vendor is None:
            return Found("FAIL", "nobody states whose model the external builder is", repairable=False)
        return Found("WARN", "the builder is external: whose model it is was stated by its user, nothing shows it")
    # Without their names: the packet goes to the reviewer, who must not learn whose work it is.
    return Found("PASS", f"{len(reviewers)} of {len(reviewers)} reviewers are of another vendor than the builder")


def _cost(design: Design) -> Found:
    """Add up what one attempt of each stage costs at its time limit and compare it with the budget."""
    spec = design.resolved.spec
    exactly = sum(exact(attempt_usd(spec.budget, stage)) for stage in spec.stages)
    total = float(exactly)
    cost = f"one attempt of each stage costs at most {total:.4f} USD of {spec.budget.max_cost_usd:g} USD"
    if not holds(exactly, "<=", spec.budget.max_cost_usd):
        return Found("FAIL", cost, total, repairable=False)
    return Found("PASS", cost, total)


def _seeds(design: Design) -> Found:
    """Count the registered seeds; with one, the luck of the seed stays unknown."""
    count = len(design.resolved.spec.analysis.seeds)
    if count < 2:
        detail = "one seed: luck of the seed is not part of the interval; repeat the session with other seeds"
        return Found("WARN", detail, float(count))
    return Found("PASS", f"{count} seeds", float(count))


DESIGN_CHECKS = (
    DesignCheck(
        "design.power",
        "The registered test can find the registered effect",
        _power,
        "underpowered comparisons; exact McNemar test, McNemar 1947",
        limits=(Limit(">=", "analysis.power"),),
    ),
    DesignCheck(
        "design.paired",
        "The paired tests registered beside it can find theirs",
        _paired,
        "underpowered comparisons",
    ),
    DesignCheck(
        "design.overlap",
        "No held-out prompt is in the training data",
        _overlap,
        leakage_checks.SOURCE,
        limits=leakage_checks.SIMILARITY,
    ),
    DesignCheck(
        "design.unique",
        "No held-out prompt appears twice",
        _unique,
        "a test set of 350 items of which 180 were different",
    ),
    DesignCheck(
        "design.strata",
        "Every constraint kind has enough held-out items",
        _strata,
        subgroup_checks.SOURCE,
        limits=items_per_kind.ITEMS_PER_KIND,
    ),
    DesignCheck("design.items", "Every held-out item can be met and missed", _items, items.SOURCE),
    DesignCheck(
        "design.scorer",
        "The scorers' verdicts may count",
        _scorer,
        scorer_checks.SOURCE,
        limits=scorer_checks.LIMITS,
    ),
    DesignCheck(
        "design.labelled",
        "Critics have labelled samples that are large enough",
        _labelled,
        "a scorer whose label was never validated",
        limits=labels.LIMITS,
    ),
    DesignCheck("design.groups", "Training and held-out share no group", _groups, "leakage through topics"),
    DesignCheck(
        "design.duplicates",
        "Training prompts do not repeat",
        _duplicates,
        "Lee et al. 2022, arXiv:2107.06499",
        blocking=False,
        limits=leakage_checks.REPEATS,
    ),
    DesignCheck(
        "design.independence",
        "Builder and reviewer are of different vendors",
        _independence,
        "reviews of an agent's work by the same agent",
    ),
    DesignCheck(
        "design.cost",
        "One attempt of each stage can be paid for",
        _cost,
        "sessions that end half-way",
        limits=(Limit("<=", "budget.max_cost_usd"),),
    ),
    DesignCheck(
        "design.seeds", "Variation between seeds is measured", _seeds, "results of one lucky seed", blocking=False
    ),
)
