"""How often answers keep to each principle of the constitution: before, after, and in every arm."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from reviews.checks.definition import CheckOutcome, CheckRegistry, join_names
from reviews.evidence.evidence import Evidence
from reviews.evidence.items import task_of
from reviews.evidence.subgroups import each_kind, pair_items
from reviews.stages.evaluation.judged_answers import Answered, both_arms, read_judged_items
from specs.session.constitution import Constitution, Principle
from specs.stages.base.artifacts import Item
from specs.stages.base.metric import MetricSet
from specs.system.errors import EvidenceMissing
from specs.system.yaml.yaml_positions import UnreadableError, read_yaml
from training.rules.tasks.instruction_following import follows_each, instructions_of

CHECKS = CheckRegistry(lambda kind: kind.arm, only_treatment=True)
LEVEL = 0.05
"""Adjusted p of a principle, below which its adherence changed."""
SOURCE = "Bai et al. 2022, arXiv:2212.08073: an overall gain that one principle carries, or that costs another"


def counted_principles(text: str) -> list[Principle]:
    """Return the principles of a constitution that name instructions; raises EvidenceMissing if it cannot be read."""
    if not text:
        return []
    try:
        constitution = Constitution.model_validate_json(json.dumps(read_yaml(text.encode()).data), strict=True)
    except (ValueError, UnreadableError) as error:
        raise EvidenceMissing(f"the constitution cannot be read: {error}") from error
    return [principle for principle in constitution.principles if principle.instructions]


def unknown_instructions(principles: Sequence[Principle], items: Sequence[Item]) -> list[dict[str, Any]]:
    """Return the instructions of principles that no item holds."""
    known_types = {type_ for item in items for type_, _ in instructions_of(item)}
    return [
        {"principle": principle.id, "instruction": type_}
        for principle in principles
        for type_ in principle.instructions
        if type_ not in known_types
    ]


def list_kept(principle: Principle, answers: Sequence[Answered]) -> list[bool | None]:
    """Return whether each answer keeps to a principle; None where the item holds none of its instructions."""
    results: list[bool | None] = []
    for answer in answers:
        follows = [right for type_, right in follows_each(answer.item, answer.text) if type_ in principle.instructions]
        results.append(all(follows) if follows else None)
    return results


@CHECKS.add("strata.principles", "Each principle is kept more often than before", source=SOURCE, blocking=False)
def _check_principles(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Count the answers that keep to each principle of the constitution that names instructions, in every arm.

    The least and the greatest gain show the balance over principles. An arm that is trained without one of them shows
    what that one adds.
    """
    principles = counted_principles(evidence.constitution) if task_of(evidence) == "instruction_following" else []
    if not principles:
        return CheckOutcome("NOT_APPLICABLE", "no principle names instructions of held-out items")
    pairs = both_arms(evidence)
    arms: dict[str, Sequence[Answered]] = {
        "baseline": [before for before, _ in pairs],
        "treatment": [after for _, after in pairs],
    }
    for arm in evidence.resolved.spec.analysis.arms:
        if arm.stage in evidence.arms:
            arms[arm.name] = read_judged_items(evidence, evidence.arms[arm.stage].rows, f"arm '{arm.name}'")
    adherence = {name: {rule.id: list_kept(rule, answers) for rule in principles} for name, answers in arms.items()}
    tests = each_kind(
        pair._replace(kind=rule.id)
        for rule in principles
        for pair in pair_items(
            (now.item, was, is_now)
            for (_, now), was, is_now in zip(
                pairs, adherence["baseline"][rule.id], adherence["treatment"][rule.id], strict=True
            )
            if was is not None and is_now is not None
        )
    )
    rows = tuple(
        {
            "arm": name,
            "kept": {id: values.count(True) for id, values in by_rule.items()},
            "answers": {id: len(values) - values.count(None) for id, values in by_rule.items()},
        }
        for name, by_rule in adherence.items()
    )
    gains = sorted(tests, key=lambda test: test.part.gain)
    detail = ", ".join(f"{test.part.kind} {float(test.part.gain):+.3f}" for test in gains)
    if weak := [test.part.kind for test in gains if test.part.gain <= 0 or test.adjusted >= LEVEL]:
        return CheckOutcome("WARN", f"{detail}; not kept more often: {join_names(weak)}", float(len(weak)), rows)
    return CheckOutcome("PASS", f"gain of each principle: {detail}", 0.0, rows)
