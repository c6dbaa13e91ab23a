"""Numbered lists go into a prompt and come back whole."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specs.stages.generation.parameters import SelfInstructParameters
from training.engines.stop_strings import find_stop
from training.rules.prompt_text import (
    ExampleInstruction,
    ListItem,
    answer_prompt,
    calls_of_round,
    fate_of,
    parse,
    render,
    seed_of,
    stops_of_round,
)

ITEMS = ("Write a poem about rain.", "Name 3 birds, and 2. their colours.", "Is 4 > 3? Say why.")


def fates(raw: str, *, first: int = 1, primed: bool = False, cut: bool = False) -> list[tuple[str, str]]:
    return [(item.text, item.fate) for item in parse(raw, first=first, primed=primed, cut=cut)]


@pytest.mark.parametrize("first", [1, 8, 10, 99])
def test_what_follows_the_number_at_the_end_of_the_prompt_is_the_first_item(first: int) -> None:
    whole = render(ITEMS, first)
    prompt, answer = whole[: len(f"{first}.")], whole[len(f"{first}.") :]
    assert prompt == f"{first}."
    items = parse(answer, first=first, primed=True, cut=False)
    assert items == tuple(ListItem(first + n, text, "candidate") for n, text in enumerate(ITEMS))
    # The control: a parser that looks for the number loses the first item.
    assert [item.text for item in parse(answer, first=first, primed=False, cut=False)] != list(ITEMS)


@settings(max_examples=80, deadline=None)
@given(
    items=st.lists(st.text(alphabet="abc d.,12)\n", min_size=1, max_size=30).map(str.strip), min_size=1, max_size=6),
    first=st.integers(1, 50),
)
def test_a_list_that_is_written_is_read_back(items: list[str], first: int) -> None:
    wanted = [" ".join(item.split()) for item in items]
    list_items = parse(render(items, first).removeprefix(f"{first}."), first=first, primed=True, cut=False)
    assert [item.text for item in list_items] == wanted


def test_a_number_out_of_turn_belongs_to_the_text_around_it() -> None:
    assert fates("1. Name the year.\n1999. was a year\n2. Write a short song.") == [
        ("Name the year. 1999. was a year", "candidate"),
        ("Write a short song.", "candidate"),
    ]


def test_an_item_that_the_token_limit_ended_is_cut_and_only_that_one() -> None:
    raw = " Write a poem about rain.\n9. Tell me all about"
    assert fates(raw, first=8, primed=True, cut=True) == [
        ("Write a poem about rain.", "candidate"),
        ("Tell me all about", "cut"),
    ]
    assert fates(raw, first=8, primed=True)[1][1] == "candidate"


@pytest.mark.parametrize(
    ("text", "fate"),
    [
        ("Another instruction about cats", "meta"),
        ("More examples of the same", "meta"),
        ("Here are three more instructions:", "meta"),
        ("Instruction 9:", "meta"),
        ("New task: the same again", "meta"),
        ("Instructions about science", "meta"),
        ("And so on", "meta"),
        ("End of list", "meta"),
        ("Write more about tea than coffee.", "candidate"),
        ("Instruct a child how to tie shoes.", "candidate"),
        ("Explain how to list files.", "candidate"),
        ("Morning routines: suggest one for a nurse.", "candidate"),
        ("Nextdoor cat: describe it briefly.", "candidate"),
        ("Dance now", "short"),
        ("1 2 3 4 5", "short"),
        ("--- --- --- ---", "short"),
        ("word " * 90, "long"),
    ],
)
def test_lines_that_speak_of_the_list_are_no_instructions(text: str, fate: str) -> None:
    assert fate_of(text) == fate


def test_lines_before_the_first_number_are_no_items() -> None:
    assert fates("Sure! Here they are:\n\n1) Write a song about tea.\n2) Name three old towns.") == [
        ("Write a song about tea.", "candidate"),
        ("Name three old towns.", "candidate"),
    ]


SEEDS = [ExampleInstruction(f"seed{n}", f"Tell a tale of number {n}.") for n in range(9)]


def test_the_prompt_of_a_base_model_ends_in_the_number_it_goes_on_with() -> None:
    parameters = SelfInstructParameters(
        examples_per_prompt=7, per_call=3, calls_per_round=4, topics=("music", "ethics")
    )
    for number, call in enumerate(calls_of_round(parameters, "completion", 0, 0, SEEDS, [])):
        assert call.text.endswith("\n8.") and call.first == 8 and len(call.examples) == 7
        assert call.topic == ("music", "ethics")[number % 2] and call.topic in call.text
        lines = call.text.split("\n\n", 1)[1].removesuffix("\n8.")
        assert [item.text for item in parse(lines, first=1, primed=False, cut=False)] == [
            example.text for example in call.examples
        ]
        stops = stops_of_round(parameters, "completion", call.first)
        # It ends with the number after the last one asked for, not with the ones before.
        assert find_stop(" a\n9. b\n10. c\n11. d", stops) == (len(" a\n9. b\n10. c"), "\n11.")


def test_the_prompt_of_an_instruct_model_asks_for_a_list() -> None:
    (call, *_) = calls_of_round(SelfInstructParameters(examples_per_prompt=2, per_call=4), "chat", 0, 0, SEEDS, [])
    assert "Write 4 new instructions" in call.text and "from 1 to 4" in call.text and call.first == 1
    assert all(example.text in call.text for example in call.examples)


def test_half_of_what_is_shown_is_new_once_there_is_enough() -> None:
    grown = [ExampleInstruction(f"s0-{n}", f"Describe the house number {n}.") for n in range(20)]
    for growing, wanted in ((True, 3), (False, 0)):
        parameters = SelfInstructParameters(examples_per_prompt=7, growing=growing)
        for call in calls_of_round(parameters, "completion", 0, 1, SEEDS, grown):
            assert sum(example in grown for example in call.examples) == wanted


def test_shards_and_rounds_draw_differently_and_always_alike() -> None:
    parameters = SelfInstructParameters(
        examples_per_prompt=3, calls_per_round=2, topics=("a", "b", "c", "d", "e"), seed=4
    )

    def drawn(shard: int, round: int) -> list[str]:
        return [call.text for call in calls_of_round(parameters, "completion", shard, round, SEEDS, [])]

    assert drawn(0, 0) == drawn(0, 0)
    assert len({tuple(drawn(shard, round)) for shard in range(4) for round in range(4)}) == 16
    assert len({seed_of(4, shard, round) for shard in range(20) for round in range(20)}) == 400
    assert seed_of(4, 1, 11) != seed_of(4, 11, 1) != seed_of(5, 11, 1)


def test_an_answer_is_asked_for_after_worked_pairs_only_as_bare_text() -> None:
    from specs.stages.base.sampling import SHOTS

    text = answer_prompt("Name a bird.", SHOTS, "completion")
    assert text.count("###END###") == len(SHOTS) and text.endswith("\n\nInstruction: Name a bird.\nResponse:")
    assert answer_prompt("Name a bird.", SHOTS, "chat") == "Name a bird."


@pytest.mark.parametrize("raw", ["", "I cannot help with that.", "2. begins with another number"])
def test_an_answer_without_a_list_has_no_items(raw: str) -> None:
    assert parse(raw, first=1, primed=False, cut=True) == ()


def test_an_empty_answer_after_a_number_is_no_instruction() -> None:
    assert fates("", first=8, primed=True) == [("", "short")]
