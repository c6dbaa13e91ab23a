"""Flaws of evaluations as a whole: scorers, the gap before training, what must not fall."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from reviews.evidence.evidence import ArmEvidence, Evidence
from specs.session.evaluation_plan import Drift, EvaluationPlan, Gap, PairedTest
from specs.stages.base.artifacts import Item
from specs.system.digests import digest_bytes
from testing.factories.evidence_on_disk import N, answers, write_rows
from testing.factories.more_arms import with_arm, with_curve
from testing.factories.transfer_evidence import with_transfer

ELSEWHERE = {
    "pairwise_judge.judge",
    "pairwise_judge.order",
    "pairwise_judge.length",
    "multi_turn.kinds",
    "items.ceiling",
    "items.answered",
    "scorer.repeats",
}
"""Checks of kinds that the small spec has no stage of, and those of items and labels; their flaws are in
test_evaluation_checks.py, test_item_checks.py and test_label_checks.py."""


def with_plan(evidence: Evidence, plan: EvaluationPlan) -> Evidence:
    """Return the evidence under a spec that registers more of its evaluations."""
    spec = evidence.resolved.spec.model_copy(update={"evaluation": plan})
    return replace(evidence, resolved=evidence.resolved.model_copy(update={"spec": spec}))


def labelled_items(right: Callable[[str], bool], count: int = 24) -> tuple[Item, ...]:
    """Return labelled answers to one instruction, short and long ones of both letters; ``right`` labels a text."""
    backlog_items: list[Item] = []
    for number in range(count):
        text = f"tea number {number} is a drink made from leaves." + " it is good." * (number % 8 * 4)
        text = text if number % 2 else text.replace("tea", "Tea")
        constraint = {"labelled_output": text, "label": int(right(text))}
        backlog_items.append(
            Item(id=f"l{number}", group="tea", kind="lowercase", prompt=f"Tea {number}.", constraint=constraint)
        )
    return tuple(backlog_items)


def labelled(evidence: Evidence, items: tuple[Item, ...]) -> Evidence:
    """Return the evidence with a registered sample of labelled answers."""
    return replace(with_plan(evidence, EvaluationPlan(labelled="labels")), data=evidence.data | {"labels": items})


def _longer(evidence: Evidence) -> Evidence:
    rows = answers([True] * 10 + [False] * 2)
    write_rows(evidence.outputs["rows"], [row | {"output": f"{row['output']} {'and so on ' * 9}"} for row in rows])
    return evidence


def drifted(evidence: Evidence, before: list[bool], after: list[bool], margin: float = 0.05) -> Evidence:
    """Return the treatment held against the base with other answers, as something that must not fall."""
    assert evidence.baseline_rows is not None
    write_rows(evidence.baseline_rows, answers(before))
    write_rows(evidence.outputs["rows"], answers(after))
    arm = ArmEvidence(evidence.baseline_rows, evidence.baseline_manifest, evidence.baseline_parameters)
    plan = EvaluationPlan(drift=(Drift(before="base", after="tuned", margin=margin),))
    return replace(with_plan(evidence, plan), arms={"base": arm})


def unshown(evidence: Evidence) -> Evidence:
    """Return the treatment with a registered test against the base that shows nothing, and decides."""
    assert evidence.baseline_rows is not None
    write_rows(evidence.baseline_rows, answers([True] * N))
    arm = ArmEvidence(evidence.baseline_rows, evidence.baseline_manifest, evidence.baseline_parameters)
    test = PairedTest(
        before="base", after="tuned", outcome="binary", test="exact_mcnemar", minimum_effect=0.2, decides=True
    )
    return replace(with_plan(evidence, EvaluationPlan(paired=(test,))), arms={"base": arm})


def _other_code(evidence: Evidence) -> Evidence:
    armed = with_arm(evidence, [False] * N)
    arm = armed.arms["own_drafts"]
    assert arm.manifest is not None
    manifest = arm.manifest.model_copy(update={"code": digest_bytes(b"other code")})
    return replace(armed, arms={"own_drafts": arm._replace(manifest=manifest)})


def _other_settings(evidence: Evidence) -> Evidence:
    both = with_transfer(evidence, [False] * N, [True] * N)
    side = both.arms["other_tuned"]
    other = side._replace(parameters=side.parameters | {"max_new_tokens": 64})
    return replace(both, arms={**both.arms, "other_tuned": other})


EVALUATION_FLAWS: dict[str, Callable[[Evidence], Evidence]] = {
    "a gain where only the length changed": _longer,
    "a scorer that people contradict": lambda evidence: labelled(evidence, labelled_items(lambda text: "Tea" in text)),
    "a scorer with ten labels": lambda evidence: labelled(evidence, labelled_items(str.islower, 10)),
    "a base model that can do it already": lambda evidence: with_plan(
        evidence, EvaluationPlan(gap=Gap(base=("base",)))
    ),
    "a registered gain that is not there": unshown,
    "an arm with other code": _other_code,
    "a second split that was answered otherwise": _other_settings,
    "a gain on the first split alone": lambda evidence: with_transfer(evidence, [False] * N, [False] * N),
    "an arm that is as good": lambda evidence: with_arm(evidence, [True] * N),
    "a learning curve that is flat": lambda evidence: with_curve(evidence, dict.fromkeys((100, 300, 1000), [True] * N)),
    "a capability that fell": lambda evidence: drifted(evidence, [True] * N, [True] * 6 + [False] * 6),
}
EVALUATION_CASES = [
    ("tuned", "a gain where only the length changed", "scorer.length", "WARN"),
    ("base", "a scorer that people contradict", "scorer.admitted", "FAIL"),
    ("base", "a scorer with ten labels", "scorer.admitted", "BLOCKED"),
    ("base", "a base model that can do it already", "gap.before_training", "FAIL"),
    ("tuned", "a capability that fell", "drift.kept", "FAIL"),
    ("tuned", "an arm with other code", "arms.alike", "FAIL"),
    ("tuned", "an arm that is as good", "arms.compared", "WARN"),
    ("tuned", "a second split that was answered otherwise", "transfer.alike", "FAIL"),
    ("tuned", "a gain on the first split alone", "transfer.shown", "WARN"),
    ("tuned", "a learning curve that is flat", "curve.forecast", "WARN"),
    ("tuned", "a registered gain that is not there", "paired.registered", "FAIL"),
]
