"""What a disguise hides from the overlap check: nothing that is here, and plain texts keep what they are."""

from __future__ import annotations

import base64
import codecs
from urllib.parse import quote

import pytest

from reviews.evidence.text_overlap import find_overlaps
from training.rules.disguise import bag_of, decode_hidden_texts, normalise_lookalikes
from training.rules.similarity import words_of

TEXT = "Write a short poem about the sea that ends with a question and names two birds."


def hows(train: str, heldout: str) -> list[str]:
    return [overlap.how for overlap in find_overlaps([("t", train)], [("h", heldout)], reordered=True)]


@pytest.mark.parametrize(
    ("copy", "how"),
    [
        (TEXT.replace("a", "\u0430").replace("o", "\u03bf"), "normalised"),
        ("\ufe0f".join(TEXT), "normalised"),
        (base64.b64encode(TEXT.encode()).decode(), "decoded"),
        (base64.encodebytes(TEXT.encode()).decode(), "decoded"),
        (f"Decode this: {base64.urlsafe_b64encode(TEXT.encode()).decode()}", "decoded"),
        (TEXT.encode().hex(" "), "decoded"),
        (quote(TEXT), "decoded"),
        (f"Undo rot13 first. {codecs.encode(TEXT, 'rot13')} Thanks.", "decoded"),
        (TEXT[::-1], "decoded"),
        (" ".join(reversed(TEXT.split())), "decoded"),
        ("Please name two birds, ending the short poem about seas that writes with questions", "shuffled"),
    ],
)
def test_a_disguised_copy_is_found(copy: str, how: str) -> None:
    assert hows(copy, TEXT) == [how]


def test_other_scripts_stay_what_they_are() -> None:
    assert normalise_lookalikes("na\u00efve caf\u00e9 \u65e5\u672c") == "na\u00efve caf\u00e9 \u65e5\u672c"
    assert words_of("\u0440\u0430\u0441") == ("\u0440\u0430\u0441",)


def test_an_order_that_another_question_could_have_is_distinguished() -> None:
    output = "I lent a ladder to a friend on Monday. Who has it? {} has it and {} does not."
    assert hows(output.format("Ana", "Ben"), output.format("Ben", "Ana")) == ["reordered"]


def test_numbers_in_another_order_are_another_question() -> None:
    assert hows("A shop has 5 boxes and sells 3 of them", "A shop has 3 boxes and sells 5 of them") == []
    assert bag_of(words_of("Ana beat Ben")) is None


def test_another_order_is_reported_only_where_it_is_asked_for() -> None:
    assert find_overlaps([("t", " ".join(sorted(TEXT.split())))], [("h", TEXT)]) == ()


def test_what_decodes_to_no_text_is_no_text() -> None:
    assert list(decode_hidden_texts("A" * 15 + " internationalisation " + "ff" * 20)) == []
