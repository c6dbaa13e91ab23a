"""What an analysis registers beside its test: the rule on kinds and the gain beyond controls, from pairs alone."""

from __future__ import annotations

from collections.abc import Sequence

from reviews.comparison.subgroups import Pair, Part, Tested
from reviews.evidence.measured_value import Measured
from reviews.statistics import mcnemar
from reviews.statistics.paired_binary import is_non_inferior, lift
from reviews.statistics.paired_continuous import sign_test
from specs.errors import EvidenceMissing
from specs.exact import holds
from specs.session.evaluation_plan import KindRule


def interval_of(part: Part) -> tuple[float, float]:
    """Return the 95 % interval of a part's gain (Bonett and Price 2012)."""
    return mcnemar.paired_difference_interval(part.gained, part.lost, part.n)


def has_risen(kind: Tested, rule: KindRule) -> bool:
    """Say whether a kind gained: more gained than lost, and its adjusted p below the registered rate."""
    return kind.part.gain > 0 and holds(kind.adjusted, "<", rule.false_discovery)


def is_kept(kind: Tested, rule: KindRule) -> bool:
    """Say whether a kind certainly did not fall by the registered margin or more."""
    return is_non_inferior(interval_of(kind.part), rule.margin)


def ruled(rule: KindRule, kinds: Sequence[Tested]) -> dict[str, Measured]:
    """Compute what a rule on kinds is judged by.

    Raises:
        EvidenceMissing: no item is of the primary kind.
    """
    found = {
        "kinds_risen": Measured(sum(has_risen(kind, rule) for kind in kinds), len(kinds)),
        "kinds_kept": Measured(sum(is_kept(kind, rule) for kind in kinds), len(kinds)),
    }
    if rule.primary is None:
        return found
    primary = next((kind for kind in kinds if kind.part.kind == rule.primary), None)
    if primary is None:
        raise EvidenceMissing(f"no held-out item is of the primary kind '{rule.primary}'")
    gain = Measured(primary.part.gain, primary.part.n, interval_of(primary.part))
    return found | {"primary_kind_gain": gain, "primary_kind_p": Measured(primary.adjusted, primary.part.n)}


def beyond(pairs: Sequence[Pair], controls: Sequence[Sequence[Pair]]) -> dict[str, Measured]:
    """Compute by how much the gain of the arms is larger than under each control; the worst control counts.

    Of each item, the change between the models under the control is taken from the change with the whole history. The
    mean of that has a resampled 95 % interval, and its sign is tested exactly (Dixon and Mood 1946).

    Raises:
        EvidenceMissing: there are fewer than two items.
        ValueError: a control has another number of items.
    """
    if len(pairs) < 2:
        raise EvidenceMissing("one item alone says nothing of others")
    changed = [float(pair.after - pair.before) for pair in pairs]
    under = [[float(pair.after - pair.before) for pair in some] for some in controls]
    excess = [lift(some, changed) for some in under]
    least = min(excess, key=lambda one: one.difference)
    return {
        "control_excess": Measured(least.difference, least.n, least.interval),
        "control_excess_p": Measured(max(sign_test(some, changed).p for some in under), least.n),
    }
