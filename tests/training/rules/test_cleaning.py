"""Answers are cut in a declared order, and marked where something is wrong; healthy ones are left alone."""

from __future__ import annotations

import pytest

from specs.stages.base.sampling import END_MARK, ROLE_STOPS
from specs.stages.generation.parameters import TRUE_FALSE, SampleResponsesParameters, ScopeRule
from training.rules.cleaning import breaks, clean, is_runaway, is_runaway_v1, leak_in, marks_of

STEPS = SampleResponsesParameters().cleaning
STOPS = SampleResponsesParameters().stops


@pytest.mark.parametrize(
    ("raw", "text", "by"),
    [
        (" The sea is blue.", "The sea is blue.", ("strip",)),
        ("The sea is blue.", "The sea is blue.", ()),
        (" Blue.###END###\n\nInstruction: Next", "Blue.", ("end_mark", "strip")),
        ("\n\nBlue it is.\n\nInstruction: Next", "Blue it is.", ("first_paragraph", "strip")),
        ("Blue it is.\nQuestion: what?", "Blue it is.", ("role_line", "strip")),
        ("Blue it is.\nq: what?", "Blue it is.", ("role_line", "strip")),
        ("Blue it is. Next question: what?", "Blue it is.", ("new_question",)),
        ("Blue it is.\nHere is another task for you", "Blue it is.", ("new_question",)),
        # What only looks like one of them.
        ("Ask this question: who is it?", "Ask this question: who is it?", ()),
        ("Our response: we stay. A: none.", "Our response: we stay. A: none.", ()),
        ("Read the instruction manual first.", "Read the instruction manual first.", ()),
        ("Two lines\nof one poem", "Two lines\nof one poem", ()),
    ],
)
def test_cleaning_cuts_what_follows_an_answer_and_nothing_of_it(raw: str, text: str, by: tuple[str, ...]) -> None:
    assert clean(raw, STEPS) == (text, by)


def test_the_order_of_the_steps_is_the_declared_one() -> None:
    raw = "\n\nFirst.\n\nSecond."
    assert clean(raw, ("strip", "first_paragraph")) == ("First.", ("strip", "first_paragraph"))
    assert clean(raw, ("first_paragraph",)).text == "\n\nFirst."
    assert clean(raw, ()) == (raw, ())


HEALTHY = (
    "The sea is blue because water takes in red light. It is deep. It is wide. It is old. It moves with the moon.",
    "A long sentence goes on for a while, " * 6 + "and then it ends.",
    "Dr. A. B. Smith met Mr. C. D. Jones in Washington D.C.",
    "Three rules: stay calm, be kind, and ask the user what they need. Assistant: a person who helps.",
)
RUNAWAY = (
    "Blue.\n\nInstruction: Name a bird.",
    "Blue.\n\nQ: What else?",
    "Blue.\nUser: And then?",
    "Blue.\nAssistant: Yes.",
    "Blue.\nHuman: No.",
    "Blue.<|im_end|>",
    "so it goes on " * 40,
)


def test_the_second_runaway_rule_finds_turns_and_not_healthy_answers() -> None:
    assert [is_runaway(text) for text in RUNAWAY] == [True] * len(RUNAWAY)
    assert [is_runaway(text) for text in HEALTHY] == [False] * len(HEALTHY)


def test_the_first_runaway_rule_had_these_false_positives() -> None:
    assert [is_runaway_v1(text) for text in HEALTHY] == [True, True, True, False]
    # And missed the turns themselves.
    assert sum(is_runaway_v1(text) for text in RUNAWAY) == 1


@pytest.mark.parametrize(
    ("text", "leak"),
    [
        ("Blue it is. ###", "###"),
        ("Blue it is. ##", "##"),
        ("Blue it is.###END", "###END"),
        ("Blue ### it is.", "###"),
        (f"Blue{END_MARK} it is.", END_MARK),
        ("Blue.\nUser: hi", "User:"),
        ("Blue.\nUse", "Use"),
        ("Blue.\nInstructi", "Instructi"),
        ("Response:", "Response:"),
        # Characters and words of delimiters that answers may have.
        ("Issue #1 is open.", ""),
        ("Write it in C#", ""),
        ("Q: is a letter.", ""),
        ("It depends on the user", ""),
        ("This is my response", ""),
        ("Ask the User: they know.", ""),
        ("A poem\nof two lines", ""),
    ],
)
def test_a_leak_is_a_delimiter_or_its_beginning_at_the_end(text: str, leak: str) -> None:
    assert leak_in(text, "Tell me.", STOPS) == leak


def test_a_delimiter_the_instruction_names_was_asked_for() -> None:
    assert leak_in("A heading begins with ###", "What does ### mean?", STOPS) == ""
    assert leak_in("A heading begins with ###", "What is a heading?", STOPS) == "###"


@pytest.mark.parametrize(
    ("text", "finish", "marks"),
    [
        ("The sea is blue.", "stop", ()),
        ("The sea is blue.", "eos", ()),
        ("The sea is blue.", "length", ("token_limit",)),
        ("", "stop", ("empty",)),
        ("The colours are:", "stop", ("ends_with_colon",)),
        ("1. Red - warm 2. Blue -", "stop", ("open_list",)),
        ("Blue", "stop", ("short",)),
        ("Yes.", "stop", ()),
        ("no", "stop", ()),
        ("True", "stop", ("scope:bare_true_false",)),
        ("Blue it is. ###", "stop", ("delimiter",)),
        ("Blue.\nUser: hi there", "stop", ("runaway", "delimiter")),
    ],
)
def test_marks_say_what_speaks_against_an_answer(text: str, finish: str, marks: tuple[str, ...]) -> None:
    assert marks_of(text, "Name a colour.", finish, STOPS, (TRUE_FALSE,)) == marks  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("answer", "instruction", "broken"),
    [
        ("False.", "Name a colour", True),
        ("TRUE", "Name a colour", True),
        ("True", "The sky is green. True or false", False),
        ("True", "Determine whether 7 is prime.", False),
        ("False", "Can a bee swim?", False),
        ("True friends are rare.", "Name a colour", False),
    ],
)
def test_a_bare_true_or_false_fits_only_where_it_is_asked_for(answer: str, instruction: str, broken: bool) -> None:
    assert breaks(TRUE_FALSE, answer, instruction) is broken


def test_scope_rules_are_data() -> None:
    rule = ScopeRule(name="no_numbers", answers=("42",), unless=("how many",))
    assert marks_of("42", "Name a colour.", "stop", (), (rule,)) == ("short", "scope:no_numbers")
    assert marks_of("42", "How many are there?", "stop", (), (rule,)) == ("short",)


def test_the_default_stops_are_the_end_mark_and_roles() -> None:
    assert (END_MARK, *ROLE_STOPS) == STOPS
