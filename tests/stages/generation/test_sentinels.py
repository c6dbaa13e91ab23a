"""Each sentinel is met by an answer and not by going on with the text."""

from __future__ import annotations

import pytest

from testing.factories.text_evidence import COMPLETES, FOLLOWS
from training.rules.generation.sentinels import BY_ID, SENTINELS, three_primes

GOES_ON = (
    "",
    ".",
    "\n\nThis is the first question of the exercise. Write your answer below.",
    ' in a sentence. The sentence was: "The best way to start is to start."',
    " that are multiples of 5 but not of 3. The first one is 15, then 20 and 25.",
    ", and the second one of the list.\n\n1. Introduction\n2. Methods\n3. Results",
)


def test_ids_are_unique_and_there_are_commands_and_sentences() -> None:
    assert len(BY_ID) == len(SENTINELS)
    assert {sentinel.kind for sentinel in SENTINELS} == {"command", "completion"}


@pytest.mark.parametrize("sentinel", SENTINELS, ids=[sentinel.id for sentinel in SENTINELS])
def test_a_sentinel_is_met_by_an_answer_and_not_by_going_on(sentinel: object) -> None:
    result = next(item for item in SENTINELS if item is sentinel)
    assert result.meets((FOLLOWS | COMPLETES)[result.id])
    assert [text for text in GOES_ON if result.meets(text)] == []


@pytest.mark.parametrize(
    ("output", "result"),
    [
        ("2, 3, 5", True),
        ("1. 2\n2. 3\n3. 5", True),
        ("1. 7\n2. 9\n3. 11", False),
        ("3, 3, 5", False),
        ("Two, three and five", False),
        ("1, 2, 3", False),
        ("The primes 13 and 17", False),
    ],
)
def test_three_primes_are_three_different_primes(output: str, result: bool) -> None:
    assert three_primes(output) is result
