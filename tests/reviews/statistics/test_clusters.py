"""Groups of items as units: the exact sign-flip test, and clusters by what items ask."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import permutation_test

from reviews.comparison.subgroup_checks import independent_groups
from reviews.evidence.subgroups import ArmPair, clusters_of, gains_by_value, sign_flip_p
from reviews.statistics.mcnemar import exact_mcnemar, exact_sign_flip
from specs.stages.base.artifacts import Item
from training.items.format_items import HELDOUT_TOPICS, build_items
from training.rules import similarity
from training.rules.similarity import cluster_groups

RIVERS = ("Danube", "Mekong", "Orinoco", "Volga", "Niger", "Yukon", "Tagus", "Loire")


@pytest.mark.parametrize(
    ("gains", "p"),
    [
        # By hand: of 2**3 signs of 3, 2 and 1, those that add up to 6 in size.
        ([3, 2, 1], 2 / 8),
        # 4 and 2 reach 6 with both signs, 4 - 2 do not; the group without a change counts for nothing.
        ([4, 2, 0], 2 / 4),
        # 5 groups that all gain, whatever their size.
        ([8, 8, 8, 8, 8], 2 / 32),
        # |5 - 1 + 2| = 6: totals of 8, 6, 4 and 2 with both signs, and two of four are as large.
        ([5, -1, 2], 4 / 8),
        ([], 1.0),
        ([0, 0], 1.0),
    ],
)
def test_golden_values_of_sign_flips(gains: list[int], p: float) -> None:
    assert exact_sign_flip(gains) == p


@given(st.lists(st.integers(-4, 4), min_size=2, max_size=9))
def test_sign_flips_are_those_of_scipy(gains: list[int]) -> None:
    def total(values: Any, others: Any, axis: int) -> Any:
        return (values - others).sum(axis=axis)

    again: Any = permutation_test(
        (gains, [0] * len(gains)), total, permutation_type="samples", n_resamples=10_000, vectorized=True
    )
    assert exact_sign_flip(gains) == pytest.approx(float(again.pvalue))


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 9))
def test_groups_of_one_item_have_the_p_of_mcnemar(gained: int, lost: int, tied: int) -> None:
    assert exact_sign_flip([1] * gained + [-1] * lost + [0] * tied) == exact_mcnemar(gained, lost)


def test_many_groups_are_counted_in_time() -> None:
    assert exact_sign_flip([3, -2, 1, 5] * 500) < 1e-9


def items_about(prompts: list[str], groups: list[str] | None = None) -> list[Item]:
    return [
        Item(id=f"i{n}", group=groups[n] if groups else f"g{n}", kind=f"k{n % 2}", prompt=prompt, constraint={})
        for n, prompt in enumerate(prompts)
    ]


def test_groups_that_ask_about_the_same_are_one_cluster() -> None:
    prompts = [f"Tell me about the {RIVERS[n % 4]} in the year {1800 + n}." for n in range(32)]
    clusters = clusters_of(items_about(prompts))
    assert len(set(clusters.values())) == 4 and clusters["g0"] == clusters["g4"] != clusters["g1"]


@pytest.mark.parametrize(
    ("rivers", "alpha", "status"),
    [(3, 0.05, "FAIL"), (5, 0.05, "FAIL"), (6, 0.05, "WARN"), (6, 0.01, "FAIL"), (8, 0.05, "WARN")],
)  # fmt: skip
def test_few_clusters_under_many_names_stop_a_design(rivers: int, alpha: float, status: str) -> None:
    items = items_about([f"Tell me about the {RIVERS[n % rivers]} in the year {1800 + n}." for n in range(40)])
    outcome = independent_groups(items, alpha)
    assert (outcome.status, outcome.figure) == (status, float(rivers))


def test_groups_that_say_so_themselves_pass() -> None:
    prompts = [f"Tell me about the {RIVERS[n % 5]} in the year {1800 + n}." for n in range(40)]
    assert independent_groups(items_about(prompts, [RIVERS[n % 5] for n in range(40)]), 0.05).status == "PASS"
    two = items_about([f"Is {name} {what}?" for name in RIVERS for what in ("long", "wide")])
    assert independent_groups(two, 0.05).status in ("PASS", "WARN"), "two items share a name"


def test_shipped_items_are_as_many_clusters_as_groups() -> None:
    items = build_items("heldout", HELDOUT_TOPICS)
    assert len(set(clusters_of(items).values())) == len(HELDOUT_TOPICS)
    alone = [item.model_copy(update={"group": item.id}) for item in items]
    assert len(set(clusters_of(alone).values())) == len(HELDOUT_TOPICS), "by topics, not by kinds"


def test_numbers_are_values_and_make_no_cluster() -> None:
    assert len(set(clusters_of(items_about([f"{n} + {n + 7} = ?" for n in range(30)])).values())) == 30


def test_a_kind_is_split_by_the_values_of_its_constraint() -> None:
    heldout = [
        Item(id=f"i{n}", group=f"g{n}", kind="bullets", prompt="p", constraint={"count": 2 + n % 2}) for n in range(12)
    ]
    pairs = [ArmPair("bullets", f"g{n}", False, n % 2 == 0) for n in range(12)]
    parts = gains_by_value(pairs, heldout)["bullets"]
    assert [(part.kind, part.n, part.gained) for part in parts] == [("count 2", 6, 6), ("count 3", 6, 0)]
    named = [item.model_copy(update={"constraint": {"answer": item.id}}) for item in heldout]
    assert gains_by_value(pairs, named) == {}, "answers are no values"
    assert sign_flip_p(pairs) == exact_mcnemar(6, 0)
    assert sign_flip_p(pairs, {f"g{n}": n // 6 for n in range(12)}) == 0.5


@pytest.mark.parametrize("seed", range(5))
def test_clusters_are_those_of_the_whole_table(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups are clustered part by part, since a table of all pairs takes gigabytes for a split of 14,000 items."""
    random.seed(seed)
    words = [f"{first}{second}ok" for first in "bcdfgklmnp" for second in "aeiou"]
    topics = [random.sample(words, 4) for _ in range(40)]
    texts = [" ".join([*random.choice(topics), *random.sample(words, place % 3)]) for place in range(200)]
    names = [str(place) for place in range(200)]

    def cluster() -> set[frozenset[str]]:
        clusters = cluster_groups(texts, ["a"] * 200, names)
        return {frozenset(name for name in names if clusters[name] == number) for number in clusters.values()}

    of_pairs = cluster()
    monkeypatch.setattr(similarity, "_FEW_PAIRS", 0)
    by_parts = cluster()

    def take_all(rows: Any) -> list[list[int]]:
        return [list(range(rows.shape[0]))]

    monkeypatch.setattr(similarity, "_split_apart", take_all)
    assert of_pairs == by_parts == cluster() and 20 < len(by_parts) < 150


def test_few_groups_that_are_not_near_are_the_clusters_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"Tell me about the {river}." for river in RIVERS]

    def count(texts: list[str]) -> int:
        return len(set(cluster_groups(texts, ["a"] * len(texts), list(map(str, range(len(texts))))).values()))

    few = count(texts), count([*texts, texts[0]])
    monkeypatch.setattr(similarity, "_FEW_PAIRS", 0)
    assert few == (count(texts), count([*texts, texts[0]])) == (8, 8)
