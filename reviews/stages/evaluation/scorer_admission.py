"""Compares a scorer's verdicts with labels before its statistics count.

A scorer has to judge its known answers right and to agree with people beyond chance, among answers of equal length too,
where a ruler is of no help. Nothing shows that the labelled answers resemble the answers to be judged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from reviews.statistics.agreement import Kappa, cohens_kappa
from specs.session.thresholds import Thresholds
from specs.stages.base.artifacts import Item
from specs.system.errors import EvidenceMissing
from specs.system.exact import holds
from training.rules.tasks.verifier_cases import VerifierCase

OUTPUT, LABEL = "labelled_output", "label"
"""Keys of a labelled item's constraint: the answer, and 1 or 0. What is left is the item's own constraint."""
ANSWER = "answer"
MOST_NAMED = 50
"""Items whose own answers a verifier is tested on: the first of them."""
DEFAULTS = Thresholds()
"""For callers without a spec."""


class ScorerVerdict(NamedTuple):
    """A labelled answer as a scorer judged it."""

    name: str
    length: int
    """Characters."""
    label: bool
    passed: bool


class Admission(NamedTuple):
    """What is known of a scorer on labelled answers."""

    n: int
    agreement: Kappa
    length: float
    """Correlation of verdicts with the rank of the length, labels held fixed; -1 to 1, 0 without any."""
    matched: Kappa
    """Agreement among answers that were paired, one of each label, at nearly equal length."""
    covered: Fraction
    """The smallest share of a label's answers on one side of the median length."""
    wrong: tuple[str, ...]
    """Names of the answers that were judged otherwise than labelled."""


def verdicts_on(cases: Iterable[VerifierCase], verify: Callable[[Item, str], Any]) -> tuple[ScorerVerdict, ...]:
    """Judge labelled answers. ``verify`` returns something with ``passed``, as a task's verifier does."""
    return tuple(
        ScorerVerdict(case.item.id, len(case.output), case.good, bool(verify(case.item, case.output).passed))
        for case in cases
    )


def labelled_cases(items: Sequence[Item]) -> tuple[VerifierCase, ...]:
    """Return the labelled answers of a data file.

    Raises:
        EvidenceMissing: an item has no answer, or no label that is 0 or 1.
    """
    cases: list[VerifierCase] = []
    for item in items:
        output, label = item.constraint.get(OUTPUT), item.constraint.get(LABEL)
        if not isinstance(output, str) or label not in (0, 1):
            line = json.dumps({OUTPUT: output, LABEL: label})[:120]
            raise EvidenceMissing(f"item '{item.id}' is not labelled: it has {line}", hint=f"{LABEL} is 0 or 1")
        own = {name: value for name, value in item.constraint.items() if name not in (OUTPUT, LABEL)}
        cases.append(VerifierCase(item.model_copy(update={"constraint": own}), output, label == 1))
    return tuple(cases)


class NamedAnswers(NamedTuple):
    """Answers that items name: right for their own item, and most likely wrong for another."""

    right: tuple[VerifierCase, ...]
    others: tuple[VerifierCase, ...]


def named_answers(items: Sequence[Item]) -> NamedAnswers:
    """Return the answers that items name in ``constraint``, each for its item and for the next with another answer."""
    named = [(item, str(item.constraint[ANSWER])) for item in items if ANSWER in item.constraint][:MOST_NAMED]
    right = tuple(VerifierCase(item, answer, True) for item, answer in named)
    others: list[VerifierCase] = []
    for place, (item, answer) in enumerate(named):
        following = (*named[place + 1 :], *named[:place])
        other = next((text for _, text in following if text != answer), None)
        if other is not None:
            others.append(VerifierCase(item, other, False))
    return NamedAnswers(right, tuple(others))


def admission(verdicts: Sequence[ScorerVerdict], thresholds: Thresholds = DEFAULTS) -> Admission:
    """Compare verdicts with labels.

    Raises:
        EvidenceMissing: there are fewer answers than ``scorer_labelled``, or none of one label.
    """
    labels, least = {verdict.label for verdict in verdicts}, thresholds.scorer_labelled
    if len(verdicts) < least or labels != {True, False}:
        message = f"{len(verdicts)} labelled answers, {sum(verdict.label for verdict in verdicts)} of them good"
        raise EvidenceMissing(message, hint=f"a scorer is admitted on {least} or more, with both labels")
    pairs = matched_pairs(verdicts, thresholds.scorer_matched)
    paired = [verdict for pair in pairs for verdict in pair]
    nothing = Kappa(Fraction(0), (0.0, 0.0), 0.0, 0)
    return Admission(
        len(verdicts),
        _kappa(verdicts),
        length_correlation(verdicts),
        _kappa(paired) if paired else nothing,
        _compute_length_coverage(verdicts),
        tuple(verdict.name for verdict in verdicts if verdict.label != verdict.passed),
    )


def length_correlation(verdicts: Sequence[ScorerVerdict]) -> float:
    """Return how verdicts go with length among answers of the same label.

    The partial correlation of the verdict with the rank of the length, the label held fixed: both have the mean of
    their label taken off, then Pearson's coefficient. A scorer that agrees with every label has nothing left: 0.
    """
    import numpy as np

    labels = np.array([verdict.label for verdict in verdicts])
    # As scipy.stats.rankdata, whose import takes longer than a gate: equal lengths share the mean of their ranks.
    _, place, counts = np.unique([verdict.length for verdict in verdicts], return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    passed = np.array([float(verdict.passed) for verdict in verdicts])
    for label in (True, False):
        of = labels == label
        if of.any():
            ranks[of] -= ranks[of].mean()
            passed[of] -= passed[of].mean()
    size = float(np.sqrt((ranks**2).sum() * (passed**2).sum()))
    return float((ranks * passed).sum()) / size if size > 1e-12 else 0.0


def matched_pairs(
    verdicts: Sequence[ScorerVerdict], ratio: float = DEFAULTS.scorer_matched
) -> tuple[tuple[ScorerVerdict, ScorerVerdict], ...]:
    """Pair good answers with bad ones of nearly equal length, each once: the nearest that is left, shortest first."""
    good = sorted(
        (verdict for verdict in verdicts if verdict.label), key=lambda verdict: (verdict.length, verdict.name)
    )
    bad = sorted(
        (verdict for verdict in verdicts if not verdict.label), key=lambda verdict: (verdict.length, verdict.name)
    )
    pairs: list[tuple[ScorerVerdict, ScorerVerdict]] = []
    for verdict in good:
        near = [other for other in bad if holds(length_ratio(verdict.length, other.length), "<=", ratio)]
        if near:
            nearest = min(near, key=lambda other, to=verdict: length_ratio(to.length, other.length))
            bad.remove(nearest)
            pairs.append((verdict, nearest))
    return tuple(pairs)


def length_ratio(value: int, other: int) -> Fraction:
    """Return how many times as long the longer of two answers is; empty answers have a length too."""
    return Fraction(max(value + 1, other + 1), min(value + 1, other + 1))


def _kappa(verdicts: Sequence[ScorerVerdict]) -> Kappa:
    return cohens_kappa([int(verdict.label) for verdict in verdicts], [int(verdict.passed) for verdict in verdicts])


def _compute_length_coverage(verdicts: Sequence[ScorerVerdict]) -> Fraction:
    """Return the smallest share of a label's answers that lies on one side of the median length of all."""
    import numpy as np

    middle = float(np.median([verdict.length for verdict in verdicts]))
    shares: list[Fraction] = []
    for label in (True, False):
        lengths = [verdict.length for verdict in verdicts if verdict.label == label]
        shares += [Fraction(sum(length > middle for length in lengths), len(lengths))]
        shares += [Fraction(sum(length < middle for length in lengths), len(lengths))]
    return min(shares)
