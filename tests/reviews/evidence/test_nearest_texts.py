"""Which training texts stand out as near to a held-out text; what templates share counts for nothing."""

from __future__ import annotations

import pytest

from training.rules import similarity
from training.rules.similarity import nearest_of

TOPICS = ("elephants", "the sun", "castles", "rivers", "paper", "owls")
FORMS = ("Use only capital letters.", "Use only lowercase letters.", "End with the words: That is all.")
HELDOUT = [f"Write one sentence about {topic}. {form}" for topic in TOPICS for form in FORMS]
GROUPS = [topic for topic in TOPICS for _ in FORMS]
TRAIN = [
    f"Write one sentence about {topic}. {form}"
    for topic in ("ships", "bread", "maps", "rain", "coins")
    for form in FORMS
]


def test_a_template_in_common_does_not_stand_out() -> None:
    assert max(nearest.apart for nearest in nearest_of(TRAIN, HELDOUT, GROUPS)) < 0.1


def test_a_paraphrase_stands_out_and_is_the_first() -> None:
    for place, text in enumerate(
        ("Compose a line on elephants, no capitals anywhere.", "Sunlight: say what the sun is.")
    ):
        first = nearest_of([*TRAIN, text], HELDOUT, GROUPS)[0]
        assert (first.train, GROUPS[first.heldout]) == (len(TRAIN), TOPICS[place])
        assert first.apart > 0.2


def test_two_held_out_texts_of_one_group_are_not_what_is_usual() -> None:
    """Three prompts ask about owls: taken for three groups, their nearness to each other would be usual."""
    texts = [*TRAIN, "Tell me a thing about owls."]
    for groups, stands_out in ((GROUPS, True), ([str(place) for place in range(len(HELDOUT))], False)):
        (own,) = (nearest for nearest in nearest_of(texts, HELDOUT, groups) if nearest.train == len(TRAIN))
        assert (own.apart > 0.2) is stands_out, own


def test_the_cosine_is_that_of_squared_weights_by_hand() -> None:
    # Of two training texts and two groups: "river" is in one of each (ln 2), the others in one of the four (ln 4).
    (nearest, *_) = nearest_of(["river boat", "stone"], ["river bridge", "glass"], ["a", "b"])
    near, far = 0.6931471805599453**4, 1.3862943611198906**4
    assert (nearest.train, nearest.heldout) == (0, 0)
    assert abs(nearest.similarity - near / (near + far)) < 1e-12 and nearest.apart == nearest.similarity


def test_a_training_text_comes_once_and_empty_sides_have_no_pairs() -> None:
    neighbours = nearest_of(TRAIN, HELDOUT, GROUPS)
    assert len({nearest.train for nearest in neighbours}) == len(neighbours)
    assert nearest_of([], HELDOUT, GROUPS) == nearest_of(TRAIN, [], []) == ()
    assert [nearest.similarity for nearest in nearest_of(["..."], ["!"], ["a"])] == [0.0]


def test_more_held_out_texts_than_are_compared_at_once() -> None:
    many = [f"question number {place} of topic{place}" for place in range(150)]
    neighbours = nearest_of(["something else on topic149 entirely"], many, [str(place) for place in range(150)])
    assert [(nearest.train, nearest.heldout) for nearest in neighbours] == [(0, 149)]


def test_few_pairs_are_compared_as_the_table_compares_them(monkeypatch: pytest.MonkeyPatch) -> None:
    train = [*TRAIN, "Tell me a thing about owls.", "Compose a line on elephants."]
    few = nearest_of(train, HELDOUT, GROUPS)
    monkeypatch.setattr(similarity, "_FEW_PAIRS", 0)
    table = nearest_of(train, HELDOUT, GROUPS)
    assert [near.train for near in few[:2]] == [near.train for near in table[:2]] == [len(TRAIN), len(TRAIN) + 1]
    apart = [near.apart for near in few]
    assert apart == pytest.approx([near.apart for near in table], abs=1e-12) and len(set(apart)) > 2
