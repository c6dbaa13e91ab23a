from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reviews.text import plain


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[1;1Hgone", "gone"),
        ("\x9b31mred", "red"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]0;never ended\nnext line", "\nnext line"),
        ("\x1bPdcs\x1b\\after", "after"),
        ("a\x1b(Bb", "ab"),
        ("loud\x07 back\x08space", "loud backspace"),
        ("one\r\ntwo\rthree\u2028four", "one\ntwo\nthree\nfour"),
        ("ab\u202egnirts\u202c\u200b", "abgnirts"),
        ("half \ud800 a letter", "half  a letter"),
        ("tab\tand\nline stay, é too", "tab\tand\nline stay, é too"),
    ],
)
def test_what_could_fool_a_terminal_is_gone(raw: str, clean: str) -> None:
    assert plain(raw, 1000) == clean


def test_what_is_cut_is_counted() -> None:
    cut = plain("x" * 100, 60)
    kept, _, mark = cut.partition("...")
    assert len(cut) <= 60 and mark == f" [{100 - len(kept)} characters left out]"


def test_text_of_exactly_the_limit_is_not_cut() -> None:
    assert plain("x" * 60, 60) == "x" * 60


anything = st.text(st.characters(codec=None) | st.sampled_from("\x1b[]\\\x07\x9b\x9c;m\u202e\r\n\ud800"), max_size=60)


@given(anything, st.integers(0, 80))
def test_the_result_is_short_and_has_no_control_characters(text: str, limit: int) -> None:
    result = plain(text, limit)
    assert len(result) <= limit
    assert all(letter in "\n\t" or unicodedata.category(letter) not in ("Cc", "Cf", "Cs") for letter in result)


@given(anything)
def test_cleaning_clean_text_changes_nothing(text: str) -> None:
    once = plain(text, 1000)
    assert plain(once, 1000) == once
