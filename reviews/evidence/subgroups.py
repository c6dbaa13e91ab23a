"""The comparison by parts: constraint kinds one at a time, all but one, groups of items, and beyond controls.

Pure functions of pairs. The kinds are those of the registered split; nothing here chooses them after the fact.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from reviews.evidence.measured_value import MeasuredValue
from reviews.statistics import mcnemar
from reviews.statistics.paired_binary import is_non_inferior, lift
from reviews.statistics.paired_continuous import sign_test
from specs.session.evaluation_plan import KindRule
from specs.stages.base.artifacts import Item
from specs.system.errors import EvidenceMissing
from specs.system.exact import Number, holds
from training.rules.similarity import cluster_groups


class ArmPair(NamedTuple):
    """One held-out item that both arms answered."""

    kind: str
    group: str
    before: Number
    """Whether it is right; of several answers, the share that is."""
    after: Number


class PairCounts(NamedTuple):
    """Some of the pairs, counted."""

    kind: str
    """The kind of the pairs, or the kind that they exclude."""
    n: int
    gained: int
    lost: int
    changes: tuple[Fraction, ...] = ()
    """What each item changed by, where items are answered several times and may change in part."""

    @property
    def gain(self) -> Fraction:
        """Treatment accuracy minus baseline accuracy."""
        return Fraction(sum(self.changes) if self.changes else self.gained - self.lost) / self.n

    @property
    def p(self) -> float:
        """Exact McNemar; of several answers the test that turns the signs of items' changes."""
        return mcnemar.exact_sign_flip(self.changes) if self.changes else mcnemar.exact_mcnemar(self.gained, self.lost)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the gain, over items (Bonett and Price 2012)."""
        if self.changes:
            return mcnemar.mean_change_interval(self.changes)
        return mcnemar.paired_difference_interval(self.gained, self.lost, self.n)


class KindTest(NamedTuple):
    """A kind with its exact McNemar test; ``adjusted`` takes into account how many kinds were tested."""

    part: PairCounts
    p: float
    adjusted: float


def each_kind(pairs: Iterable[ArmPair]) -> tuple[KindTest, ...]:
    """Test every kind separately, adjusted over the kinds (Benjamini and Hochberg 1995), in the order of the split."""
    parts = [count_pairs(kind_pairs, kind) for kind, kind_pairs in _by_kind(pairs).items()]
    p_values = [part.p for part in parts]
    adjusted = mcnemar.benjamini_hochberg(p_values)
    return tuple(map(KindTest, parts, p_values, adjusted))


def without_each_kind(pairs: Iterable[ArmPair]) -> tuple[PairCounts, ...]:
    """Count the pairs that remain when one kind is left out, for every kind; none when there is only one."""
    by_kind = _by_kind(pairs)
    if len(by_kind) < 2:
        return ()
    return tuple(
        count_pairs((pair for kind, kind_pairs in by_kind.items() if kind != left_out for pair in kind_pairs), left_out)
        for left_out in by_kind
    )


def gain_over_kinds(pairs: Iterable[ArmPair]) -> Fraction:
    """Return the mean of the gains of all kinds, however many items each has; ZeroDivisionError without pairs."""
    gains = [count_pairs(kind_pairs).gain for kind_pairs in _by_kind(pairs).values()]
    return sum(gains, Fraction(0)) / len(gains)


def interval_over_groups(pairs: Iterable[ArmPair]) -> tuple[float, float] | None:
    """Return the 95 % interval of the gain that comes from drawing groups; None with one group."""
    gains: defaultdict[str, Number] = defaultdict(int)
    sizes: defaultdict[str, int] = defaultdict(int)
    for pair in pairs:
        gains[pair.group] += pair.after - pair.before
        sizes[pair.group] += 1
    return mcnemar.grouped_difference_interval(list(gains.values()), list(sizes.values()))


def clusters_of(heldout: Sequence[Item]) -> dict[str, int]:
    """Return the cluster of each group of held-out items by what they ask, whatever the groups are called.

    What a constraint asks for is left out: "End with: That is all" makes no topic.
    """
    texts = [_ask_without_values(item) for item in heldout]
    return cluster_groups(texts, [item.kind for item in heldout], [item.group for item in heldout])


def _ask_without_values(item: Item) -> str:
    text = "\n".join([*(turn.content for turn in item.before if turn.role == "user"), item.prompt])
    for value in item.constraint.values():
        text = text.replace(str(value), " ") if isinstance(value, str) else text
    return text


def sign_flip_p(pairs: Sequence[ArmPair], clusters: Mapping[str, int] | None = None) -> float:
    """Return p of the exact test whose units are the groups of pairs, or clusters of groups (:func:`clusters_of`)."""
    gains: defaultdict[str | int, Number] = defaultdict(int)
    for pair in pairs:
        gains[clusters[pair.group] if clusters else pair.group] += pair.after - pair.before
    return mcnemar.exact_sign_flip(list(gains.values()))


def gains_by_value(pairs: Sequence[ArmPair], heldout: Sequence[Item]) -> dict[str, list[PairCounts]]:
    """Return the counts of each kind by the values of its constraint, where a kind has several that repeat.

    Values of single items, such as right answers, divide nothing.
    """
    parts: defaultdict[str, defaultdict[str, list[ArmPair]]] = defaultdict(lambda: defaultdict(list))
    for pair, item in zip(pairs, heldout, strict=True):
        parts[pair.kind][", ".join(f"{name} {value}" for name, value in sorted(item.constraint.items()))].append(pair)
    return {
        kind: [count_pairs(value_pairs, value) for value, value_pairs in by_value.items()]
        for kind, by_value in parts.items()
        if len(by_value) > 1 and min(map(len, by_value.values())) > 1
    }


def _by_kind(pairs: Iterable[ArmPair]) -> dict[str, list[ArmPair]]:
    matching_pairs: defaultdict[str, list[ArmPair]] = defaultdict(list)
    for pair in pairs:
        matching_pairs[pair.kind].append(pair)
    return dict(matching_pairs)


def count_pairs(pairs: Iterable[ArmPair], kind: str = "") -> PairCounts:
    """Count pairs that were gained and lost."""
    pairs = list(pairs)
    gained, lost = sum(pair.after > pair.before for pair in pairs), sum(pair.after < pair.before for pair in pairs)
    changes = tuple(Fraction(pair.after) - Fraction(pair.before) for pair in pairs)
    whole = all(change.denominator == 1 for change in changes)
    return PairCounts(kind, len(pairs), gained, lost, () if whole else changes)


def pair_items(answers: Iterable[tuple[Item, bool, bool]]) -> tuple[ArmPair, ...]:
    """Return one pair an item of answers before and after, with the shares that are right where it has several."""
    by_item: defaultdict[str, list[tuple[Item, bool, bool]]] = defaultdict(list)
    for answer in answers:
        by_item[answer[0].id].append(answer)
    return tuple(
        ArmPair(
            item_answers[0][0].kind,
            item_answers[0][0].group,
            *(_share(side) for side in list(zip(*item_answers, strict=True))[1:]),
        )
        for item_answers in by_item.values()
    )


def count_right(shares: Iterable[Number]) -> int | float:
    """Return how many items are right: a whole number, or with parts of items three decimals."""
    total = sum((Fraction(share) for share in shares), Fraction(0))
    return int(total) if total.denominator == 1 else round(float(total), 3)


def _share(passed: Sequence[bool]) -> Number:
    return Fraction(sum(passed), len(passed)) if len(passed) > 1 else passed[0]


def apply_kind_rule(rule: KindRule, kinds: Sequence[KindTest]) -> dict[str, MeasuredValue]:
    """Compute what a rule on kinds is judged by.

    Raises:
        EvidenceMissing: no item is of the primary kind.
    """
    risen = sum(kind.part.gain > 0 and holds(kind.adjusted, "<", rule.false_discovery) for kind in kinds)
    count = sum(is_non_inferior(kind.part.interval, rule.margin) for kind in kinds)
    results = {"kinds_risen": MeasuredValue(risen, len(kinds)), "kinds_kept": MeasuredValue(count, len(kinds))}
    if rule.primary is None:
        return results
    primary = next((kind for kind in kinds if kind.part.kind == rule.primary), None)
    if primary is None:
        raise EvidenceMissing(f"no held-out item is of the primary kind '{rule.primary}'")
    gain = MeasuredValue(primary.part.gain, primary.part.n, primary.part.interval)
    return results | {"primary_kind_gain": gain, "primary_kind_p": MeasuredValue(primary.adjusted, primary.part.n)}


def beyond(pairs: Sequence[ArmPair], controls: Sequence[Sequence[ArmPair]]) -> dict[str, MeasuredValue]:
    """Compute by how much the gain of the arms is larger than under each control; the worst control counts.

    Of each item, the change between the models under the control is taken from the change with the whole history. The
    mean of that has a resampled 95 % interval, and its sign is tested exactly (Dixon and Mood 1946).

    Raises:
        EvidenceMissing: there are fewer than two items.
        ValueError: a control has another number of items.
    """
    if len(pairs) < 2:
        raise EvidenceMissing("one item alone gives no interval")
    changed = [float(pair.after - pair.before) for pair in pairs]
    under = [[float(pair.after - pair.before) for pair in control] for control in controls]
    excess = [lift(control_changes, changed) for control_changes in under]
    least = min(excess, key=lambda lift: lift.difference)
    return {
        "control_excess": MeasuredValue(least.difference, least.n, least.interval),
        "control_excess_p": MeasuredValue(
            max(sign_test(control_changes, changed).p for control_changes in under), least.n
        ),
    }
