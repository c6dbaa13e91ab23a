"""Stop strings are whole strings over decoded text; what merely holds their characters goes on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specs.stages.base.sampling import ROLE_STOPS
from testing.fixtures.small_text import word_tokenizer
from training.engines.stop_strings import StopMatch, StopWatcher, find_stop

HOLDS_THEIR_CHARACTERS = (
    "Note: three ways.\n### A heading? No: a line.\n\nQuestion: is Q: a stop? User: no. "
    "Response: no.\n#1 and ## too. \u6587\u5b57 ok"
)
TEXT = f"{HOLDS_THEIR_CHARACTERS} the water\nInstruction: tell\nUser: hello ###END### end"


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return word_tokenizer(TEXT * 3, 500)


def stopped_at(tokenizer: Any, text: str, stops: tuple[str, ...]) -> tuple[int, str | None]:
    """Feed a text token by token, as decoding does; return how many tokens were read and the stop."""
    watch = StopWatcher(tokenizer, stops, keep_special=True)
    ids = tokenizer(text)["input_ids"]
    for count in range(1, len(ids) + 1):
        if watch.has_stopped(ids[:count]):
            stop_match = watch.found_in(ids[:count])
            return count, stop_match.stop if stop_match else None
    return len(ids), None


def test_a_text_with_the_characters_of_stops_is_read_to_its_end(tokenizer: Any) -> None:
    text = HOLDS_THEIR_CHARACTERS.replace("\n###", "\n ###")
    ids = tokenizer(text)["input_ids"]
    assert stopped_at(tokenizer, text, ROLE_STOPS) == (len(ids), None)
    # The control: the way it went wrong elsewhere, the last token of a stop as an end, stops it early.
    last = {tokenizer(stop)["input_ids"][-1] for stop in ROLE_STOPS}
    assert any(id in last for id in ids)


@pytest.mark.parametrize("stop", ["\nQuestion: is", "\n### A", "ading? N", "\u6587\u5b57", ": n", "ater\nInstr"])
def test_a_stop_is_found_across_the_borders_of_tokens(tokenizer: Any, stop: str) -> None:
    ids = tokenizer(TEXT)["input_ids"]
    count, result = stopped_at(tokenizer, TEXT, (stop,))
    assert result == stop
    read = tokenizer.decode(ids[:count])
    # It stops with the token that completes the stop, not one later.
    assert stop in read and stop not in tokenizer.decode(ids[: count - 1])


def test_the_stop_that_begins_first_counts_and_at_one_place_the_first_declared() -> None:
    assert find_stop("a\n\nb###", ("###", "\n\n")) == StopMatch(1, "\n\n")
    assert find_stop("a\n\nb", ("\n", "\n\n")) == StopMatch(1, "\n")
    assert find_stop("a\n\nb", ("\n\n", "\n")) == StopMatch(1, "\n\n")
    assert find_stop("a: b", ("\nQ:",)) is None


def test_an_empty_stop_is_refused(tokenizer: Any) -> None:
    with pytest.raises(ValueError, match="empty stop string"):
        StopWatcher(tokenizer, ("\n", ""), keep_special=False)


@settings(max_examples=60, deadline=None)
@given(
    text=st.text(alphabet="ab:#\nQ \u00e9\u6587", max_size=60),
    stop=st.text(alphabet="ab:#\nQ \u00e9\u6587", min_size=1, max_size=6),
)
def test_streaming_finds_what_the_whole_text_holds(tokenizer: Any, text: str, stop: str) -> None:
    _, result = stopped_at(tokenizer, text, (stop,))
    assert (result is not None) == (stop in text)
