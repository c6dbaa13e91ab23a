"""Every script has words, and near texts are near without what they all begin with."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reviews.evidence.text_overlap import find_overlaps
from training.rules.disguise import bag_of, count_words
from training.rules.prompt_text import fate_of
from training.rules.similarity import shingles_of, words_of

PREAMBLE = "You are part of a long pipeline whose output is read by a program, so write nothing but the answer. "
PLACES = ("Vienna", "Lagos", "Lima", "Oslo", "Perth", "Quito", "Seoul", "Tunis", "Turin", "Delhi", "Dakar", "Cusco")


@pytest.mark.parametrize(
    ("text", "words", "counted"),
    [
        ("Don't stop, 3.14!", "dont stop 3 14", 4),
        ("请用一句话解释", "请 用 一 句 话 解 释", 4),
        ("これはペンです", "こ れ は ペン で す", 4),
        ("น้ำคืออะไร", "น้ํ า คื อ อ ะ ไ ร", 3),
        ("مَرْحَبًا بالعالم", "مرحبا بالعالم", 2),
        ("हिन्दी में लिखो", "हिन्दी में लिखो", 3),
        ("안녕하세요 세계", "안녕하세요 세계", 2),
        ("🐘🦁 hi 👍", "🐘 🦁 hi 👍", 4),
        ("x+=1", "x + = 1", 2),
        ("`foo_bar`(x)", "foo bar x", 3),
        ("25°C", "25 ° c", 3),
    ],
)
def test_texts_of_every_script_have_words(text: str, words: str, counted: int) -> None:
    assert words_of(text) == tuple(unicodedata.normalize("NFKC", words).split())
    assert count_words(words_of(text)) == counted


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=60))
@example("\U000119300")
def test_words_stay_the_same_when_they_are_read_again(text: str) -> None:
    words = words_of(text)
    assert all(word and not any(map(str.isspace, word)) for word in words)
    assert 0 <= count_words(words) <= len(words)
    assert words_of(text) == words_of(f"  {text}\n") == words_of(f"\n{text}")


@pytest.mark.parametrize(
    ("heldout", "copy"),
    [
        ("法国的首都在哪一年迁到了凡尔赛宫", "下面是问题。法国的首都在哪一年迁到了凡尔赛宫？只写年份。"),
        ("フランスの首都がヴェルサイユに移ったのは何年ですか",
         "答えて。フランスの首都がヴェルサイユに移ったのは何年ですか。"),
        ("เมืองหลวงของฝรั่งเศสย้ายไปแวร์ซายในปีใด", "โปรดตอบว่าเมืองหลวงของฝรั่งเศสย้ายไปแวร์ซายในปีใดด้วยตัวเลข"),
        ("Кто построил старый мост через реку у северных ворот города", "Answer: Кто построил старый мост через реку у "
         "северных ворот города? In PDF."),
        ("for i in range(10): total+=rows[i]*weights[i]-bias", "fix it: for i in range(10): total += rows[i] * "
         "weights[i] - bias  # ok?"),
    ],
)  # fmt: skip
def test_a_copy_inside_a_longer_text_is_a_copy_in_every_script(heldout: str, copy: str) -> None:
    (overlap,) = find_overlaps([("t", copy)], [("h", heldout)])
    assert overlap.how in ("contained", "near")
    assert find_overlaps([("t", copy[: len(copy) // 2])], [("h", heldout)]) == ()


def test_a_short_question_inside_another_word_is_no_copy() -> None:
    """ "What is food" is a part of "what is the food chain" in Thai."""
    assert find_overlaps([("t", "ห่วงโซ่อาหารคืออะไร")], [("h", "อาหารคืออะไร")]) == ()


def test_a_comparison_the_other_way_round_is_another_question() -> None:
    assert bag_of(words_of("小明比小红高吗")) is None
    assert find_overlaps([("t", "小红比小明高吗")], [("h", "小明比小红高吗")], reordered=True) == ()


def test_an_instruction_in_chinese_is_not_too_short() -> None:
    assert fate_of("请写一首关于大海的诗") == "candidate"
    assert fate_of("写诗") == fate_of("Write it") == "short"


@pytest.mark.parametrize("around", ["{}", "Reply fast: {}", "{} Thanks."])
def test_the_preamble_that_all_share_hides_no_copy(around: str) -> None:
    questions = [f"Which old bridge of {place} was rebuilt after the great flood of the year?" for place in PLACES]
    heldout = [(place, PREAMBLE + question) for place, question in zip(PLACES, questions, strict=True)]
    copies = [(f"t{place}", around.format(questions[place])) for place in range(3)]
    assert {overlap.heldout for overlap in find_overlaps(copies, heldout)} == set(PLACES[:3])


def test_the_preamble_that_all_share_makes_no_copy() -> None:
    sizes = ("big", "small", "old", "new")
    heldout = [(f"{place} {size}", f"{PREAMBLE}Is {place} {size}?") for place in PLACES[:6] for size in sizes]
    train = [(f"{place} {size}", f"{PREAMBLE}Is {place} {size}?") for place in PLACES[6:] for size in sizes]
    assert find_overlaps(train, heldout) == ()
    assert all(overlap.train == overlap.heldout for overlap in find_overlaps(heldout, heldout))


@given(st.lists(st.sampled_from(["大", "海", "山", "a", "b", "c"]), min_size=4, max_size=12))
def test_three_letters_in_a_row_are_a_shingle(letters: list[str]) -> None:
    words = words_of(" ".join(letters))
    assert len(shingles_of(words)) <= len(words) - 2
