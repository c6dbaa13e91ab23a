from __future__ import annotations

import random

import pytest

from reviews.leakage import find_overlaps, jaccard, normalise

WORDS = [f"{first}{second}" for first in "bdfgklmnprst" for second in ("ada", "obo", "ulu", "imi", "eke")]


def text(generator: random.Random, words: int = 40) -> str:
    return " ".join(generator.choice(WORDS) for _ in range(words))


def ways(train: str, heldout: str) -> list[str]:
    return [one.how for one in find_overlaps([("t", train)], [("h", heldout)])]


@pytest.mark.parametrize(
    ("train", "how"),
    [
        ("Write one sentence about tea.", ["exact"]),
        ("write ONE sentence -- about  tea", ["normalised"]),
        ("Ｗrite one sentence about tea!", ["normalised"]),
        ("Write one sentence about salt.", []),
        ("", []),
    ],
)
def test_the_strongest_way_is_told(train: str, how: list[str]) -> None:
    assert ways(train, "Write one sentence about tea.") == how


def test_empty_texts_match_only_exactly() -> None:
    assert ways("!!!", "???") == []
    assert ways("!!!", "!!!") == ["exact"]


def test_planted_near_duplicates_are_found_and_disjoint_texts_are_not() -> None:
    generator = random.Random(3)
    heldout = [(f"h{n}", text(generator)) for n in range(60)]
    train: list[tuple[str, str]] = []
    for id, original in heldout[:30]:
        words = original.split()
        words[generator.randrange(40)] = "changed"
        train.append((f"copy of {id}", " ".join(words)))
    train += [(f"t{n}", text(generator)) for n in range(60)]
    found = find_overlaps(train, heldout)
    assert {(one.train, one.heldout, one.how) for one in found} == {
        (f"copy of {id}", id, "near") for id, _ in heldout[:30]
    }


def test_near_is_the_true_jaccard_index_at_the_threshold() -> None:
    # Ten words have eight shingles; one word more at the end adds one: 8 of 9.
    original = "one two three four five six seven eight nine ten"
    assert jaccard(original, f"{original} eleven") == pytest.approx(8 / 9)
    assert ways(f"{original} eleven", original) == ["near"]
    assert [one.how for one in find_overlaps([("t", f"{original} eleven")], [("h", original)], threshold=0.9)] == []


def test_the_order_does_not_depend_on_hashing() -> None:
    generator = random.Random(4)
    heldout = [(f"h{n}", text(generator, 6)) for n in range(20)]
    train = [(f"t{n}", heldout[n % 20][1]) for n in range(40)]
    found = find_overlaps(train, heldout)
    assert [one.train for one in found] == [f"t{n}" for n in range(40)]


def test_normalising_is_idempotent() -> None:
    raw = "  Ａ  Tale -- of\tTWO 'cities'! "
    assert normalise(raw) == "a tale of two cities" == normalise(normalise(raw))
