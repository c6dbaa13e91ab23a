from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sessions.builder.phrase_match import ProtectedTexts, words_of

SECRET = "Write one short sentence about elephants. Use only lowercase letters."


def marked(text: str, *secrets: str, run: int = 5, known: tuple[str, ...] = ()) -> str:
    for start, end in reversed(ProtectedTexts(secrets or (SECRET,), run, known).spans(text)):
        text = f"{text[:start]}#{text[end:]}"
    return text


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        SECRET.upper(),
        SECRET.replace(" ", "\n\t  "),
        SECRET.replace(" ", "\u00a0"),
        SECRET.replace(" ", " -- "),
        SECRET.replace("elephants", "eleph\u200bants"),
        SECRET.replace("sentence", "\uff53\uff45\uff4e\uff54\uff45\uff4e\uff43\uff45"),
        SECRET.replace(" ", r"\n"),
        SECRET.replace(" ", r"\u0020"),
        SECRET.replace("e", r"\u0065"),
        SECRET.replace("e", r"\\u0065"),
        json.dumps(json.dumps(SECRET.replace(" ", "\n"))).strip('"\\'),
    ],
)
def test_a_protected_text_is_found_however_it_is_written(form: str) -> None:
    assert marked(f"before {form} after").startswith("before #")
    assert "elephants" not in marked(form).lower() and "after" in marked(f"{form} after")


def test_half_of_it_is_found_and_less_than_a_run_is_not() -> None:
    assert marked("x sentence about elephants. Use only y") == "x # y"
    assert marked("a sentence about elephants is fine") == "a sentence about elephants is fine"


def test_pieces_that_meet_are_one_and_pieces_apart_are_two() -> None:
    assert marked(f"{SECRET} {SECRET}") == "#."
    assert (
        marked("one short sentence about elephants -- and -- elephants use only lowercase letters") == "# -- and -- #"
    )


def test_what_may_be_read_elsewhere_is_no_piece_but_the_whole_is() -> None:
    known = ("Write one short sentence about tigers. Use only lowercase letters, please.",)
    assert marked("Write one short sentence about cats", known=known) == "Write one short sentence about cats"
    assert marked(SECRET, known=(SECRET,)) == "#."


def test_short_texts_are_found_whole_and_only_as_words() -> None:
    assert marked("the capital of France", "Capital of FRANCE!") == "the #"
    assert marked("the capital of Frances", "Capital of FRANCE!") == "the capital of Frances"
    assert marked("yes", "yes") == "yes"


def test_scripts_without_spaces_are_found_inside_other_text() -> None:
    secret = "象について短い文を一つ書いてください"
    assert marked(f"次の指示：{secret}。以上", secret) == "次の指示：#。以上"


@given(st.text(max_size=300))
@example("\ufc5e")
def test_words_stand_where_they_are_said_to(text: str) -> None:
    words = list(words_of(text))
    assert all(0 <= word.start < word.end <= len(text) for word in words)
    assert [word.start for word in words] == sorted(word.start for word in words)
    assert all(not any(string.isspace() for string in word.form) for word in words)


@given(st.lists(st.sampled_from(["a", "be", "sea", "\\n", " ", ".", "é", "書"]), max_size=60).map("".join), st.data())
def test_the_whole_of_any_text_is_found_in_any_other(secret: str, data: st.DataObject) -> None:
    around = data.draw(st.sampled_from(["", "x ", "! ", "\n"]))
    forms = [word.form for word in words_of(secret)]
    if len(" ".join(forms)) < 12:
        return
    assert ProtectedTexts((secret,), 5).spans(f"{around}{secret} x") != []
