"""Untrusted text: what is removed, what stays, and that cutting keeps its promises."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specs.system.text import plain, plural

ESC, BEL, ST = "\x1b", "\x07", "\x1b\\"
HOSTILE = st.lists(
    st.sampled_from(
        [ESC, BEL, ST, "[", "]", "P", "0", ";", "m", "\x9b", "\x9c", "\x9d", "\r", "\n", "\t", "\u202e", "\ud800"]
    )
    | st.characters(),
    max_size=60,
).map("".join)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (f"{ESC}[31mred{ESC}[0m", "red"),
        (f"{ESC}[2J{ESC}[1;1Hhome", "home"),
        (f"{ESC}[?25lhidden cursor", "hidden cursor"),
        ("\x9b31mred in one byte", "red in one byte"),
        (f"{ESC}]0;title{BEL}text", "text"),
        (f"{ESC}]8;;http://evil.example{ST}link{ESC}]8;;{ST}", "link"),
        ("\x9d0;title\x9ctext", "text"),
        (f"{ESC}Pdevice control{ST}text", "text"),
        (f"{ESC}(Bcharset", "charset"),
        (f"{ESC}creset", "reset"),
        (f"{ESC}{ESC}[31m[31mnested", "[31mnested"),
    ],
)
def test_escape_sequences_are_removed(raw: str, text: str) -> None:
    assert plain(raw, 100) == text


def test_an_escape_that_is_never_closed_hides_nothing_after_it() -> None:
    assert plain(f"{ESC}]0;begin\nFAIL: leaked{BEL}", 100) == "0;begin\nFAIL: leaked"
    assert plain(f"cut{ESC}[3", 100) == "cut3"


def test_every_kind_of_line_end_becomes_a_newline() -> None:
    assert plain("a\r\nb\rc\nd\u2028e\u2029f", 100) == "a\nb\nc\nd\ne\nf"


def test_a_carriage_return_cannot_overwrite_what_was_printed() -> None:
    assert plain("FAIL\rPASS", 100) == "FAIL\nPASS"


@pytest.mark.parametrize(
    "hidden", ["\x00", "\b", "\x7f", "\x85", "\u202e", "\u2066", "\u200b", "\u00ad", "\ufeff", "\U000e0041"]
)
def test_control_and_invisible_characters_are_removed(hidden: str) -> None:
    assert plain(f"a{hidden}b", 100) == "ab"


@pytest.mark.parametrize("blank", ["\u3164", "\u115f", "\ufe0f", "\U000e0100", "\u034f"])
def test_characters_drawn_as_nothing_are_removed_though_they_are_no_format_characters(blank: str) -> None:
    assert unicodedata.category(blank) != "Cf"
    assert plain(f"a{blank}b", 100) == "ab"


def test_a_lone_surrogate_becomes_the_replacement_character() -> None:
    assert plain("a\ud800b\udfff", 100) == "a\ufffdb\ufffd"


@pytest.mark.parametrize("text", ["", "a\tb\n", "äöü ß 漢字 🙂 e\u0301", "[bold]<b>&amp;</b> $(rm) %s {x}", "a [31m b"])
def test_ordinary_text_is_left_as_it_is(text: str) -> None:
    assert plain(text, 100) == text


def test_what_is_cut_off_is_counted() -> None:
    mark = "... [129 characters left out]"
    assert plain("y" * 200, 100) == "y" * 71 + mark
    assert len("y" * 71 + mark) == 100 and 71 + 129 == 200


def test_text_of_exactly_the_limit_is_not_cut() -> None:
    assert plain("x" * 100, 100) == "x" * 100
    assert plain("x" * 101, 100).endswith("characters left out]")


def test_a_limit_too_small_for_the_mark_just_cuts() -> None:
    assert plain("x" * 50, 10) == "x" * 10
    assert plain("x" * 50, 0) == ""


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="limit must not be negative, got -1"):
        plain("x", -1)


@given(HOSTILE, st.integers(0, 80))
def test_the_result_is_safe_short_and_stays_the_same(text: str, limit: int) -> None:
    output = plain(text, limit)
    assert len(output) <= limit
    assert plain(output, limit) == output
    assert all(word in "\n\t" or unicodedata.category(word) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for word in output)


@given(
    st.text(st.characters(categories=["L", "N", "P", "Zs"], max_codepoint=0x33F), max_size=200), st.integers(40, 120)
)
def test_cutting_loses_exactly_what_the_mark_says(text: str, limit: int) -> None:
    output = plain(text, limit)
    if len(text) <= limit:
        assert output == text
    else:
        head, _, mark = output.rpartition("... [")
        assert text.startswith(head)
        assert mark == f"{len(text) - len(head)} characters left out]"


def test_hostile_text_is_read_in_linear_time() -> None:
    began = time.process_time()
    for piece in (f"{ESC}]", "\x9d", f"{ESC}[0;", "\x9b0", f"{ESC}(", f"{ESC}]a", ESC):
        plain(piece * 50_000, 100)
    # Quadratic behaviour takes minutes here.
    assert time.process_time() - began < 20


@pytest.mark.parametrize(
    ("count", "words", "text"),
    [
        (1, ("row",), "1 row"),
        (0, ("row",), "0 rows"),
        (1200, ("row is", "rows are"), "1,200 rows are"),
        (1, ("entry", "entries"), "1 entry"),
    ],
)
def test_a_count_agrees_with_its_noun(count: int, words: tuple[str, ...], text: str) -> None:
    assert plural(count, *words) == text
