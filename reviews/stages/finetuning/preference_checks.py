"""Did training on preferences do what it is for: groups apart, the right reference, pairs it did not see?"""

from __future__ import annotations

import math
from statistics import stdev

from reviews.checks.definition import CheckOutcome, CheckRegistry, join_names, manifest_of, need
from reviews.checks.leakage_checks import (
    NEAREST_SOURCE,
    SIMILARITY,
    SOURCE,
    groups_of,
    nearest_pairs,
    overlap_of,
    texts_of_pairs,
)
from reviews.evidence.evidence import Evidence
from reviews.stages.finetuning.checks import count_shared_rows, fact, require_parameter, split_pairs
from reviews.stages.finetuning.measure import kept_out
from reviews.statistics import mcnemar
from specs.stages.base.metric import MetricSet
from specs.stages.finetuning.parameters import REFERENCE_FREE
from specs.system.errors import EvidenceMissing
from specs.system.text import plural
from training.rules.finetuning.losses import most_difference

CHECKS = CheckRegistry(("dpo",))
_ERRORS = 2.0
"""Standard errors over pairs: a smaller loss of chosen responses is noise."""


@CHECKS.add("dpo.overlap", "No held-out prompt is trained on", source=SOURCE, limits=SIMILARITY)
def _check_overlap(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    chosen = [pair.chosen for pair in split_pairs(evidence)[2]]
    return overlap_of(_texts(evidence), evidence.reserved_items, evidence.resolved.spec.thresholds, chosen)


def _texts(evidence: Evidence) -> list[tuple[str, str]]:
    return list(texts_of_pairs(split_pairs(evidence)[2]))


@CHECKS.add(
    "dpo.nearest",
    "No text of a pair stands out as near to a held-out prompt",
    source=NEAREST_SOURCE,
    blocking=False,
)
def _check_nearest(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    return nearest_pairs(_texts(evidence), evidence.reserved_items)


@CHECKS.add("dpo.groups", "Pairs and held-out items share no group", source="leakage through topics")
def _check_groups(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Look for groups of the held-out split among the pairs."""
    return groups_of(split_pairs(evidence)[2], evidence.reserved_items)


@CHECKS.add("dpo.split", "Pairs that were kept out are of other groups", source="pairs of one prompt in both splits")
def _check_split(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Divide the pairs again and compare: the job trained on all of one side and scored all of the other."""
    train, validation, pairs = split_pairs(evidence)
    facts = manifest_of(evidence).facts
    count = count_shared_rows(evidence, len(train))
    if facts.get("pairs") != count:
        return CheckOutcome("FAIL", f"trained on {facts.get('pairs')} pairs, the granted data gives {count}")
    scored = kept_out(evidence)
    if [pair_score.pair for pair_score in scored] != list(validation):
        return CheckOutcome(
            "FAIL", f"{len(scored)} scored pairs are not the {len(validation)} pairs that were kept out"
        )
    renamed = [pair_score.pair for pair_score in scored if pair_score.group != pairs[pair_score.pair].group]
    if renamed:
        return CheckOutcome(
            "FAIL",
            f"{plural(len(renamed), 'pair has', 'pairs have')} another group than the line, first {renamed[0]}",
        )
    both = {pairs[place].group for place in train} & {pairs[place].group for place in validation}
    if both:
        return CheckOutcome(
            "FAIL",
            f"{plural(len(both), 'group is', 'groups are')} on both sides: {join_names(sorted(both))}",
            float(len(both)),
        )
    if not validation:
        return CheckOutcome("WARN", "no pair was kept out: nothing shows what was learnt", 0.0)
    return CheckOutcome("PASS", f"{count} pairs were trained on, {len(validation)} of other groups kept out", 0.0)


@CHECKS.add(
    "dpo.reference",
    "The reference is the model training began from",
    source="a reference that moved, or of other responses",
    threshold="<= 0.0001 in float32, <= 0.02 in bfloat16",
)
def _check_reference(evidence: Evidence, _: MetricSet | None) -> CheckOutcome:
    """Compare the reference log-probabilities of the trainer with those computed without it."""
    loss = require_parameter(evidence, "loss")
    if loss in REFERENCE_FREE:
        return CheckOutcome("NOT_APPLICABLE", f"{loss} has no reference")
    manifest = manifest_of(evidence)
    difference = fact(evidence, "reference_difference")
    detail = f"reference log-probabilities of {manifest.facts.get('reference_responses')} responses differ"
    status = "PASS" if difference <= most_difference(str(manifest.effective.get("precision"))) else "FAIL"
    return CheckOutcome(status, f"{detail} by {difference:.2g} from those computed without the trainer", difference)


@CHECKS.add(
    "dpo.learnt",
    "The order holds on pairs that were kept out",
    source="chosen responses that get rarer with the rejected ones; Pal et al. 2024, arXiv:2402.13228",
    blocking=False,
)
def _check_learnt(evidence: Evidence, metrics: MetricSet | None) -> CheckOutcome:
    """Look at the pairs that were kept out: the order should hold there, and chosen responses not get rarer."""
    if require_parameter(evidence, "learning_rate") == 0:
        return CheckOutcome("NOT_APPLICABLE", "with a learning rate of 0 nothing can be learnt")
    count = round(need(metrics, "validation_pairs"))
    if not count:
        raise EvidenceMissing("no pair was kept out")
    accuracy, change = need(metrics, "validation_accuracy"), need(metrics, "validation_chosen_change")
    low, _ = mcnemar.wilson(round(accuracy * count), count)
    detail = f"in {accuracy:.3f} of {count} pairs the chosen response gained more (interval from {low:.3f})"
    if low <= 0.5:
        return CheckOutcome("WARN", f"{detail}: no more than chance would give", accuracy)
    changes = [
        (pair_score.chosen_after - pair_score.chosen_before) / pair_score.chosen_tokens
        for pair_score in kept_out(evidence)
    ]
    noise = _ERRORS * stdev(changes) / math.sqrt(count) if count > 1 else 0.0
    if change < -noise:
        return CheckOutcome("WARN", f"{detail}, but chosen responses lost {-change:.3g} nats a token", accuracy)
    moved = f"gained {change:.3g}" if change >= 0 else f"lost no more than pairs differ, {-change:.3g}"
    return CheckOutcome("PASS", f"{detail}; chosen responses {moved} nats a token", accuracy)
