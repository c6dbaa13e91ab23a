"""Registered paired tests: what two stages say of the same items, and the test their spec chose for that outcome.

Every outcome is turned so that more is better, and every difference is ``after - before``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from reviews.evidence.evidence import Evidence
from reviews.stages.judge import judge_of
from reviews.statistics.mcnemar import (
    cohens_h,
    exact_mcnemar,
    mcnemar_power,
    minimum_detectable_effect,
    paired_difference_interval,
    required_n,
)
from reviews.statistics.paired_binary import effect_word, lift, log_exact_mcnemar
from reviews.statistics.paired_continuous import (
    bowker,
    detectable_dz,
    paired_means,
    paired_t_power,
    required_pairs,
    sign_test,
)
from specs.session.evaluation_plan import Outcome, PairedTest
from specs.stages.registry import kind_of
from specs.system.errors import EvidenceMissing
from specs.system.exact import Number, exact, holds

WILCOXON_SHARE = 0.955
"""Items of which a t-test is worth one of Wilcoxon's, for normal differences: 3 / pi (Hodges and Lehmann 1956)."""


class PairedTestResult(NamedTuple):
    """One registered test as it came out."""

    test: PairedTest
    n: int
    effect: Number
    """In the unit of ``minimum_effect``."""
    p: float
    description: str


class Power(NamedTuple):
    """Whether a registered test can find what it is registered to find."""

    power: float
    enough: bool
    description: str


def outcomes(evidence: Evidence, path: Path | None, outcome: Outcome) -> list[float]:
    """Return one number an item, in the order of the items, more being better; errors as its judge's ``outcomes``."""
    judge = judge_of(kind_of(evidence.stage))
    if judge.outcomes is None:
        message = f"rows of a {evidence.stage.kind} stage are not compared item by item"
        raise EvidenceMissing(message, where=evidence.stage.name)
    return judge.outcomes(evidence, path, outcome)


def carried_out(test: PairedTest, before: Sequence[float], after: Sequence[float]) -> PairedTestResult:
    """Carry out a registered test; the same outcome's other statistics are reported next to it and decide nothing.

    Raises:
        ValueError: the two are not of one length, there are fewer than two items, or a value is not finite.
    """
    if test.outcome == "binary":
        return _binary(test, before, after)
    return _ordinal(test, before, after) if test.outcome == "ordinal" else _continuous(test, before, after)


def is_shown(value: PairedTestResult, p: float) -> bool:
    """Return whether a gain of the registered size is shown: adjusted p below alpha, effect not below its least."""
    return holds(p, "<", value.test.alpha) and holds(value.effect, ">=", value.test.minimum_effect)


def power_of(test: PairedTest, n: int, together: int = 1) -> Power:
    """Return the power of a registered test on ``n`` items at its minimum effect.

    Args:
        test: as registered.
        n: items both stages answer.
        together: how many tests are adjusted together; each is given ``alpha / together``, the least that the
            adjustment leaves it.

    Raises:
        ValueError: there are fewer than two items.
    """
    alpha, least = float(exact(test.alpha) / together), test.minimum_effect
    if test.outcome == "continuous":
        worth = n if test.test == "paired_t" else max(2, int(n * WILCOXON_SHARE))
        power = paired_t_power(worth, least, alpha)
        smallest, enough = detectable_dz(worth, alpha, test.power), required_pairs(least, alpha, test.power)
        more = enough if test.test == "paired_t" else -int(-enough // WILCOXON_SHARE)
        return _power(test, n, power, f"d_z {least:g}", f"{smallest:.3f}", more)
    gained, lost = float(exact(least) + exact(test.expected_lost)), test.expected_lost
    power = mcnemar_power(n, gained, lost, alpha)
    value = minimum_detectable_effect(n, lost, alpha, test.power)
    more = None if power >= test.power else required_n(gained, lost, alpha, test.power)
    return _power(test, n, power, f"a gain of {least:g}", "none" if value is None else f"{value:.3f}", more)


def _power(test: PairedTest, n: int, power: float, effect: str, smallest: str, more: int | None) -> Power:
    message = (
        f"'{test.before}' and '{test.after}', {test.test} on {n} items: {effect} is found with probability "
        f"{power:.3f}, the smallest found with {test.power:g} is {smallest}"
    )
    if power >= test.power:
        return Power(power, True, message)
    enough = f"{more} items would do" if more else "no reasonable number of items would do"
    return Power(power, False, f"{message}; {enough}")


def _binary(test: PairedTest, before: Sequence[float], after: Sequence[float]) -> PairedTestResult:
    gained = sum(now > was for was, now in zip(before, after, strict=True))
    lost = sum(now < was for was, now in zip(before, after, strict=True))
    n = len(before)
    p, log10_p = exact_mcnemar(gained, lost), log_exact_mcnemar(gained, lost) / math.log(10)
    low, high = paired_difference_interval(gained, lost, n)
    h = cohens_h(treatment=sum(after) / n, baseline=sum(before) / n)
    message = (
        f"exact McNemar: {gained} gained, {lost} lost of {n}, difference {(gained - lost) / n:+.3f} "
        f"[{low:+.3f}, {high:+.3f}], h = {h:+.2f} ({effect_word(h)}), p = {_p(p, log10_p)}"
    )
    return PairedTestResult(test, n, Fraction(gained - lost, n), p, message)


def _continuous(test: PairedTest, before: Sequence[float], after: Sequence[float]) -> PairedTestResult:
    means = paired_means(before, after)
    names = {
        "paired_t": f"t = {means.t:.3g}, p = {_p(means.p, means.log10_p)}",
        "wilcoxon": f"p = {means.wilcoxon_p:.3g}",
    }
    other = "wilcoxon" if test.test == "paired_t" else "paired_t"
    message = (
        f"{test.test}: {names[test.test]}, mean difference {means.difference:+.4g} "
        f"[{means.interval[0]:+.4g}, {means.interval[1]:+.4g}] (resampled [{means.bootstrap[0]:+.4g}, "
        f"{means.bootstrap[1]:+.4g}]) on {means.n} items, d_z = {means.dz:+.2f}, d = {means.d:+.2f}; "
        f"next to it {other}: {names[other]}"
    )
    return PairedTestResult(test, means.n, means.dz, means.p if test.test == "paired_t" else means.wilcoxon_p, message)


def _ordinal(test: PairedTest, before: Sequence[float], after: Sequence[float]) -> PairedTestResult:
    tally = sign_test(before, after)
    n = len(before)
    signs = [float((now > was) - (now < was)) for was, now in zip(before, after, strict=True)]
    low, high = lift([0.0] * n, signs).interval
    scores = sorted({*before, *after})
    table = Counter(zip(before, after, strict=True))
    symmetry = ""
    if len(scores) > 1:
        of_table = bowker([[table[was, now] for now in scores] for was in scores])
        symmetry = f"; Bowker: chi-square {of_table.chi2:.3g} on {of_table.df}, p = {of_table.p:.3g}"
    effect = Fraction(tally.rose - tally.fell, n)
    message = (
        f"sign test: {tally.rose} rose, {tally.fell} fell, {tally.tied} stayed of {n}, difference {float(effect):+.3f} "
        f"[{low:+.3f}, {high:+.3f}], p = {tally.p:.3g}{symmetry}"
    )
    return PairedTestResult(test, n, effect, tally.p, message)


def _p(p: float, log10_p: float) -> str:
    return f"{p:.3g}" if p > 0 else f"10^{log10_p:.1f}"
