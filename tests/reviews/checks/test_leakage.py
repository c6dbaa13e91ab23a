"""Overlaps between training and held-out texts: what is found, how it is named, and what is left alone."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reviews.evidence.text_overlap import Overlap, find_overlaps
from training.rules.similarity import NearRepeat, ShingleIndex, jaccard, near_repeats, shingles_of, words_of

SENTENCE = "Write a short poem about the sea that ends with a question and names two birds."


def kinds(train: list[str], heldout: list[str], threshold: float = 0.8) -> list[tuple[str, str, str]]:
    overlaps = find_overlaps(
        [(f"t{index}", text) for index, text in enumerate(train)],
        [(f"h{index}", text) for index, text in enumerate(heldout)],
        threshold=threshold,
    )
    return [(overlap.how, overlap.train, overlap.heldout) for overlap in overlaps]


def words(count: int, seed: int, prefix: str = "w") -> list[str]:
    return [f"{prefix}{number}" for number in random.Random(seed).sample(range(5000), count)]


def similarity(text: str, other: str) -> float:
    """Jaccard of word 3-shingles of texts that need no normalising."""
    sets = [{tuple(w[i : i + 3]) for i in range(len(w) - 2)} for w in (text.split(), other.split())]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def test_equal_texts_are_exact_overlaps_with_both_texts_shown() -> None:
    assert find_overlaps([("a", SENTENCE)], [("b", SENTENCE)]) == (
        Overlap(how="exact", train="a", heldout="b", train_text=SENTENCE, heldout_text=SENTENCE, similarity=1.0),
    )


@pytest.mark.parametrize(
    "copy",
    [
        SENTENCE.upper(),
        SENTENCE.replace(" ", "\n  "),
        SENTENCE.rstrip("."),
        SENTENCE.replace("sea", "\uff53\uff45\uff41"),
        SENTENCE.replace("sea", "s\u200bea"),
        f"«{SENTENCE}»!?",
    ],
)
def test_case_punctuation_width_and_white_space_do_not_hide_a_copy(copy: str) -> None:
    assert copy != SENTENCE
    assert kinds([copy], [SENTENCE]) == [("normalised", "t0", "h0")]


def test_an_apostrophe_does_not_part_a_word_and_other_punctuation_does() -> None:
    assert kinds(["don't stop"], ["Dont stop"]) == [("normalised", "t0", "h0")]
    assert kinds(["one,two"], ["one two"]) == [("normalised", "t0", "h0")]
    assert kinds(["one,two"], ["onetwo"]) == []


def test_symbols_are_no_punctuation() -> None:
    assert kinds(["what is 3 + 4 ="], ["what is 3 < 4 ="]) == []


def test_one_changed_word_of_many_is_a_near_overlap_with_its_true_similarity() -> None:
    base = words(40, 1)
    changed = [*base[:20], "other", *base[21:]]
    (overlap,) = find_overlaps([("a", " ".join(changed))], [("b", " ".join(base))])
    assert overlap.how == "near"
    # 38 shingles each, 3 of them hold the word: 35 shared of 41.
    assert overlap.similarity == pytest.approx(35 / 41)


def test_the_threshold_itself_counts_as_near() -> None:
    text, other = "a b c d e f", "a b c d e g"
    assert similarity(text, other) == 3 / 5
    assert kinds([text], [other], 3 / 5) == [("near", "t0", "h0")]
    assert kinds([text], [other], 3 / 5 + 1e-9) == []


def test_texts_that_share_words_but_not_their_order_are_no_overlap() -> None:
    base = words(40, 2)
    assert kinds([" ".join(reversed(base))], [" ".join(base)], 0.1) == []


def test_a_short_text_is_one_shingle() -> None:
    assert kinds(["hello world"], ["Hello, world!"]) == [("normalised", "t0", "h0")]
    assert kinds(["hello world"], ["hello there"], 0.01) == []
    assert kinds(["hello"], ["hello world and all"], 0.01) == []


@pytest.mark.parametrize("empty", ["", "   ", "?!", "\u200b"])
def test_texts_of_which_nothing_is_left_match_only_exactly(empty: str) -> None:
    assert kinds([empty], ["..."], 0.01) == []
    assert kinds([empty], [empty]) == [("exact", "t0", "h0")]


def test_every_pair_comes_once_in_the_order_of_both_sides() -> None:
    near = SENTENCE.replace("two", "three")
    results = kinds(
        [near, "nothing alike here at all", SENTENCE, SENTENCE.upper()], [SENTENCE, "unrelated words", near], 0.6
    )
    assert results == [
        ("near", "t0", "h0"),
        ("exact", "t0", "h2"),
        ("exact", "t2", "h0"),
        ("near", "t2", "h2"),
        ("normalised", "t3", "h0"),
        ("near", "t3", "h2"),
    ]


def test_an_id_with_several_texts_is_reported_once_with_the_strongest() -> None:
    near = SENTENCE.replace("two", "three")
    overlaps = find_overlaps([("t", near), ("t", SENTENCE.upper()), ("t", SENTENCE)], [("h", SENTENCE)], threshold=0.6)
    assert [(overlap.how, overlap.train_text) for overlap in overlaps] == [("exact", SENTENCE)]


def test_a_lone_surrogate_does_not_end_the_search() -> None:
    assert kinds([f"\ud800 {SENTENCE}", SENTENCE], [SENTENCE]) == [("near", "t0", "h0"), ("exact", "t1", "h0")]


@pytest.mark.parametrize("threshold", [0.0, -0.5, 1.01, float("nan")])
def test_an_impossible_threshold_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match="threshold"):
        find_overlaps([], [], threshold=threshold)


def test_nothing_overlaps_with_nothing() -> None:
    assert find_overlaps([], [("h", SENTENCE)]) == find_overlaps([("t", SENTENCE)], []) == ()


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 39))
def test_planted_near_duplicates_are_found_among_unrelated_texts(seed: int, place: int) -> None:
    records = [words(40, seed + index) for index in range(5)]
    planted = [[*text[:place], "changed", *text[place + 1 :]] for text in records]
    others = [words(40, seed + 1000 + index, "x") for index in range(5)]
    results = kinds([" ".join(text) for text in planted + others], [" ".join(text) for text in records])
    assert results == [("near", f"t{index}", f"h{index}") for index in range(5)]


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0.05, 0.3, 0.8, 1.0]))
def test_disjoint_random_texts_never_overlap(seed: int, threshold: float) -> None:
    train = [" ".join(words(12, seed + index, "a")) for index in range(8)]
    records = [" ".join(words(12, seed + index, "b")) for index in range(8)]
    assert kinds(train, records, threshold) == []


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.text("ab ", min_size=1, max_size=14), max_size=5),
    st.lists(st.text("ab ", min_size=1, max_size=14), max_size=5),
    st.sampled_from([0.3, 0.5, 0.8, 1.0]),
)
def test_what_is_near_is_near_in_truth(train: list[str], records: list[str], threshold: float) -> None:
    for overlap in find_overlaps(enumerate_ids(train), enumerate_ids(records), threshold=threshold):
        if overlap.how == "exact":
            assert overlap.train_text == overlap.heldout_text
        elif overlap.how == "normalised":
            assert overlap.train_text.split() == overlap.heldout_text.split() != []
        else:
            assert overlap.similarity >= threshold
            if min(len(overlap.train_text.split()), len(overlap.heldout_text.split())) >= 3:
                assert overlap.similarity == similarity(overlap.train_text, overlap.heldout_text)


def enumerate_ids(texts: list[str]) -> list[tuple[str, str]]:
    return [(str(index), text) for index, text in enumerate(texts)]


def test_a_held_out_text_inside_a_longer_one_is_found() -> None:
    inside = f"Here is what I want. {SENTENCE.upper()} And after that, sing it to me in your own best voice, twice."
    assert kinds([inside], [SENTENCE]) == [("contained", "t0", "h0")]
    assert kinds([SENTENCE], [inside]) == []
    ahead, after = inside.split(" And")[0], inside.partition("want. ")[2]
    assert kinds([ahead, after], [SENTENCE], 0.95) == [("contained", "t0", "h0"), ("contained", "t1", "h0")]
    eight = "one two three four five six seven eight"
    assert kinds([f"zero {eight}", f"{eight} nine"], [eight], 0.95) == [
        ("contained", "t0", "h0"),
        ("contained", "t1", "h0"),
    ]
    # In order and together: a word between them, or the last one missing, is another text.
    assert kinds([inside.replace("SEA", "SEA NOW")], [SENTENCE]) == []
    assert kinds([inside.replace("BIRDS.", "CATS.")], [SENTENCE]) == []


def test_a_short_held_out_text_is_not_looked_for_in_longer_ones() -> None:
    eight, seven = "one two three four five six seven eight", "one two three four five six seven"
    rest = " and many other words that have nothing to do with counting at all"
    assert kinds([eight + rest], [eight, seven]) == [("contained", "t0", "h0")]


def test_a_near_text_that_holds_the_other_is_reported_once_as_near() -> None:
    assert kinds([f"{SENTENCE} Please."], [SENTENCE]) == [("near", "t0", "h0")]


def test_texts_that_nearly_repeat_an_earlier_one_are_named_with_it() -> None:
    near = SENTENCE.replace("two", "three")
    texts = ["Something else entirely, and long enough.", SENTENCE, near, SENTENCE.upper(), near, "?!", "?!"]
    assert near_repeats(texts, threshold=0.6) == (
        NearRepeat(2, 1, 12 / 16),
        NearRepeat(3, 1, 1.0),
        NearRepeat(4, 1, 12 / 16),
    )
    assert near_repeats(texts, threshold=0.95) == (NearRepeat(3, 1, 1.0), NearRepeat(4, 2, 1.0))


def test_the_threshold_itself_counts_as_a_repeat() -> None:
    texts = ["a b c d e f", "a b c d e g"]
    assert [len(near_repeats(texts, threshold=value)) for value in (3 / 5, 3 / 5 + 1e-9)] == [1, 0]


def test_the_nearest_earlier_text_is_the_one_repeated() -> None:
    texts = ["a b c d e f g h", "z b c d e f g y", "z b c d e f g h"]
    assert [(repeat.place, repeat.of) for repeat in near_repeats(texts, threshold=0.6)] == [(2, 0)]
    texts = ["a b c d e f g h", "z b c d e f g h i j k l", "z b c d e f g h i j k"]
    assert [(repeat.place, repeat.of) for repeat in near_repeats(texts, threshold=0.6)] == [(2, 1)]


def test_a_text_like_a_repeat_only_is_no_repeat_itself() -> None:
    first, second, third = "a b c d e f g h i j k l", "a b c d e f g h i j k z", "y b c d e f g h i j k z"
    assert similarity(first, second) == similarity(second, third) > 0.8 > similarity(first, third)
    assert [repeat.place for repeat in near_repeats([first, second, third], threshold=0.8)] == [1]
    assert [repeat.place for repeat in near_repeats([second, first, third], threshold=0.8)] == [1, 2]


def test_thousands_of_alike_texts_are_counted_quickly() -> None:
    began = time.process_time()
    rows = [f"this row repeats itself again and again and again without an end {number}" for number in range(3000)]
    assert len(near_repeats(rows)) == 2999
    assert time.process_time() - began < 5


@pytest.mark.parametrize("threshold", [0.0, 1.01])
def test_an_impossible_threshold_of_repeats_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match="threshold"):
        near_repeats([], threshold=threshold)


def test_the_same_overlaps_are_found_in_every_process() -> None:
    code = (
        "from reviews.evidence.text_overlap import find_overlaps;"
        "s = [('t', 'a b c d e f'), ('t', 'A b c d e f'), ('t', 'k l m n o p'), ('u', 'x y z')];"
        "h = [('h', 'k l m n o p'), ('h', 'a b c d e f'), ('i', 'x y z!'), ('h', 'a b c d e g')];"
        "print(find_overlaps(s, h, threshold=0.5))"
    )
    views = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (1, 2)
    }
    assert len(views) == 1 and "exact" in views.pop()


@given(st.text(st.characters(max_codepoint=127)))
def test_plain_texts_have_the_words_that_the_reading_of_all_scripts_gives_them(text: str) -> None:
    assert words_of(text) == words_of(f"{text}\u200b"), "an invisible mark, which ends the short way"


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.6, 0.8, 1.0])
def test_no_near_pair_is_missed(threshold: float) -> None:
    """The index compares only texts that share a rare shingle; here each is compared with each."""
    chance = random.Random(5)
    requests = [[f"word{chance.randrange(30)}" for _ in range(chance.randint(1, 25))] for _ in range(40)]
    changed = [[*words[: (place := chance.randrange(len(words)))], "changed", *words[place:]] for words in requests]
    texts = [" ".join(words) for words in (*requests, *changed, *requests[:5])]
    index = ShingleIndex(threshold)
    sets = [shingles_of(words_of(text)) for text in texts]
    pairs = 0
    for number, shingles in enumerate(sets):
        near = [(other, jaccard(shingles, sets[other])) for other in range(number)]
        expected = [(other, similarity) for other, similarity in near if similarity >= threshold]
        assert index.near(shingles) == expected
        index.add(number, shingles)
        pairs += len(expected)
    assert 5 <= pairs < len(texts) * (len(texts) - 1) / 4


INSTRUCTION = "Read the note of the customer below, think about what it says, and answer with one word: good or bad. "
NOTES = [
    f"The {thing} that I bought from you {how}." for thing in ("kettle", "lamp", "chair") for how in ("broke", "shines")
]


def test_an_instruction_that_all_share_makes_no_two_questions_near() -> None:
    heldout = [(f"h{place}", INSTRUCTION + note) for place, note in enumerate(NOTES)]
    others = [("t", f"{INSTRUCTION}The engine of my boat is loud.")]
    assert find_overlaps(others, heldout) == (), "all its words but six"
    # The same question with more or fewer words around it is still found, and so is one that is long by itself.
    for copy in (
        f"{INSTRUCTION}The kettle that I bought from you broke yesterday.",
        f"Please! {INSTRUCTION}{NOTES[0]}",
    ):
        assert {
            overlap.heldout for overlap in find_overlaps([("t", copy)], heldout) if overlap.how in ("near", "contained")
        } == {"h0"}
    long = " ".join(f"word{place}" for place in range(40))
    more = [*heldout, ("long", f"{INSTRUCTION}{long} end")]
    assert [overlap.heldout for overlap in find_overlaps([("t", f"{INSTRUCTION}{long} finish")], more)] == ["long"]
    # Few texts share no instruction.
    few = find_overlaps([("t", INSTRUCTION + NOTES[1])], heldout[:1])
    assert [overlap.how for overlap in few] == ["near"]
