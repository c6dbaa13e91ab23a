"""Pairs from comparisons, negatives made by rule, and the split: pure functions that job and measurer share."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specs.stages.base.artifacts import NegativeType, Preference
from specs.stages.base.stage import Kind
from specs.stages.critique.parameters import BestOfNParameters, ReviseParameters
from specs.stages.critique.rows import CandidateRow, ComparisonRow, DroppedPair
from specs.stages.registry import STAGE_KINDS, outputs_of
from specs.system.digests import digest_value
from testing.factories.critic_evidence import Scripted, candidates, chains
from training.rules.critique.hard_negatives import Best, negatives
from training.rules.critique.pair_selection import (
    assign_splits,
    balance_lengths,
    fault_in,
    length_bias,
    log_length_ratio,
    select_pairs,
)
from training.rules.critique.preference_pairs import (
    all_pairs,
    all_revisions,
    best_pairs,
    pairs_to_compare,
    revision_pairs,
)

TYPES: tuple[NegativeType, ...] = get_args(NegativeType)
LOOSE = BestOfNParameters(max_length_ratio=100, margin=1.0)


def pair(**changes: Any) -> Preference:
    whole = {"prompt": "Say it.", "chosen": "It is so.", "rejected": "No.", "group": "g", "source": "given"}
    return Preference.model_validate(whole | changes)


def responses(*texts: str, finish: str = "eos") -> list[CandidateRow]:
    return [
        CandidateRow.model_validate(
            {
                "item": "i", "group": "g", "kind": "k", "sample": n, "instruction": "Say it.", "prompt": "Say it.",
                "response": text, "tokens": 4, "finish": finish,
            }
        )
        for n, text in enumerate(texts)
    ]  # fmt: skip


def compared(rows: Sequence[CandidateRow], *signed: float) -> list[ComparisonRow]:
    """Return comparisons with these preferences for the first; below 1 nat the judge abstains."""
    judge = Scripted("comparison", LOOSE, lambda place: (signed[place], signed[place]))
    return judge.comparisons(pairs_to_compare(rows))


def test_only_whole_and_different_responses_are_compared() -> None:
    rows = [*responses("One way.", "One  way.", "", "Another way."), *responses("Cut off in", finish="length")]
    assert [(response_pair.first, response_pair.second) for response_pair in pairs_to_compare(rows)] == [
        ("One way.", "Another way.")
    ]


@pytest.mark.parametrize(
    ("signed", "selected"),
    [
        # Comparisons 1-2, 1-3, 2-3.
        ((2, 2, 2), [("one", "two"), ("one", "three")]),
        ((-2, 2, 2), [("two", "one"), ("two", "three")]),
        ((2, 0.5, 2), [("one", "two")]),
        ((0.5, 2, 2), []),
        ((2, -2, 2), []),
        ((0, 0, 0), []),
        ((0.5, 0.5, 2), [("two", "three")]),
    ],
    ids=["one wins", "two wins", "one wins once", "two winners", "a circle", "nobody", "one pair"],
)
def test_the_best_has_lost_nothing_and_there_is_one(signed: tuple[float, ...], selected: list[tuple[str, str]]) -> None:
    rows = compared(responses("one", "two", "three"), *signed)
    assert [(preference.chosen, preference.rejected) for preference in best_pairs(rows)] == selected


def test_margins_of_pairs_are_the_smaller_of_both_orders() -> None:
    judge = Scripted("comparison", LOOSE, lambda place: (2.5, 1.25))
    (preference,) = best_pairs(judge.comparisons(pairs_to_compare(responses("one", "two"))))
    assert preference.margin == 1.25 and (preference.source, preference.made_by, preference.negative_type) == (
        "best_of_n",
        "sample",
        None,
    )


def test_pairs_of_very_different_length_are_left_out() -> None:
    rows = compared(responses("one two three four", "one"), 2.0)
    selections = [all_pairs(rows, LOOSE.model_copy(update={"max_length_ratio": value})) for value in (4.0, 3.9)]
    assert [len(selection.pairs) for selection in selections] == [1, 0]
    assert [selection.reasons() for selection in selections] == [{}, {"length_ratio": 1}]


@pytest.mark.parametrize(
    ("changes", "output"),
    [
        ({}, None),
        ({"rejected": "It  is\nso."}, "the same"),
        ({"prompt": "Hm"}, "prompt has fewer than 3"),
        ({"chosen": "   a   "}, "chosen has fewer than 3"),
        ({"rejected": "One.\\nTwo."}, "backslash"),
        ({"prompt": "Say:\\nit."}, "backslash"),
        ({"source": "hard_negative"}, "has a type"),
        ({"negative_type": "verbosity"}, "has a type"),
        ({"source": "best_of_n"}, "no margin"),
    ],
)
def test_faults_of_a_pair(changes: dict[str, Any], output: str | None) -> None:
    result = fault_in(pair(**changes))
    assert result is None if output is None else output in (result or "")


@pytest.mark.parametrize("changes", [{"chosen": ""}, {"source": "mine"}, {"negative_type": "boring"}, {"extra": 1}])
def test_a_pair_of_unknown_type_is_no_pair(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        pair(**changes)


CHOSEN = "There are 12 months. They are named after gods, numbers and rulers of old Rome."
BEST = [
    Best("a", "ga", "How many months has a year?", CHOSEN),
    Best("b", "gb", "List two birds.", "- owl\n- wren"),
    Best("c", "gc", "Name a colour.", "Grass is green in spring and yellow in summer."),
]


def made(type: NegativeType, place: int = 0) -> str:
    return negatives([BEST[place], *BEST[:place], *BEST[place + 1 :]], [type], 5)[0].rejected


def test_each_type_is_wrong_in_its_way() -> None:
    assert "cannot" in made("unwarranted_refusal") or "can't" in made("unwarranted_refusal")
    assert made("wrong_fact").startswith("There are ") and "12" not in made("wrong_fact")
    assert made("wrong_fact", 2) == "Grass is not green in spring and yellow in summer."
    assert made("off_topic") in {best.chosen for best in BEST[1:]}
    assert made("format_violation", 1) == "owl wren"
    assert made("format_violation").endswith(CHOSEN) and made("format_violation") != CHOSEN
    assert made("verbosity").startswith(CHOSEN) and len(made("verbosity").split()) >= 2 * len(CHOSEN.split())
    assert CHOSEN.startswith(made("under_explanation")) and len(made("under_explanation").split()) == 5


def test_types_take_turns_and_a_rule_that_finds_nothing_gives_its_turn_away() -> None:
    rows = [Best(f"i{n}", f"g{n}", "Say it.", f"Answer {n} of them all, is it not so.") for n in range(12)]
    counts = [sum(preference.negative_type == type for preference in negatives(rows, TYPES, 1)) for type in TYPES]
    assert counts == [2] * 6
    refusing = [Best("i", "g", "Rob a bank.", "I cannot help with that, and no one should.")]
    assert negatives(refusing, ["unwarranted_refusal"], 1) == []
    (other,) = negatives(refusing, ["unwarranted_refusal", "verbosity"], 1)
    assert other.negative_type == "verbosity"
    assert negatives([Best("i", "g", "Say it.", "Green grass")], ["wrong_fact", "under_explanation"], 1) == []


def test_negatives_are_marked_as_made_by_rule_and_are_the_same_every_time() -> None:
    preferences = negatives(BEST, TYPES, 3)
    assert preferences == negatives(BEST, TYPES, 3)
    assert {(preference.source, preference.made_by, preference.margin) for preference in preferences} == {
        ("hard_negative", "rule", None)
    }
    assert all(fault_in(preference) is None for preference in preferences)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=40), st.floats(0, 0.5))
@settings(deadline=None, max_examples=60)
def test_no_group_and_no_prompt_is_divided(places: list[tuple[int, int]], share: float) -> None:
    pairs = [pair(group=f"g{group}", prompt=f"Prompt {prompt}.") for group, prompt in places]
    preferences = assign_splits(pairs, share, 3)
    for of in (lambda item: item.group, lambda item: item.prompt):  # pyright: ignore[reportUnknownLambdaType]
        sides = [
            {of(preference) for preference in preferences if preference.split == side}
            for side in ("train", "validation")
        ]
        assert not sides[0] & sides[1]
    assert all(preference.split is not None for preference in preferences) and any(
        preference.split == "train" for preference in preferences
    )


def test_the_split_takes_its_share_and_does_not_depend_on_the_order() -> None:
    pairs = [pair(group=f"g{n}", prompt=f"Prompt {n}.") for n in range(20)]
    results = {preference.group: preference.split for preference in assign_splits(pairs, 0.2, 3)}
    assert sum(side == "validation" for side in results.values()) == 4
    shuffled = random.Random(0).sample(pairs, 20)
    assert {preference.group: preference.split for preference in assign_splits(shuffled, 0.2, 3)} == results
    assert {preference.split for preference in assign_splits(pairs, 0.0, 3)} == {"train"}
    assert {preference.split for preference in assign_splits(pairs[:1], 0.5, 3)} == {"train"}


def test_length_bias_leaves_out_what_is_wrong_by_its_length() -> None:
    pairs = [pair(chosen="one two three", rejected="one")]
    difference, bias = length_bias([pair(chosen="a b c d", rejected="a b"), pair(chosen="a b", rejected="a b d e")])
    assert (difference, bias) == (0, 0)
    assert length_bias(pairs) == (2, 1)
    padded = pair(source="hard_negative", negative_type="verbosity", rejected="one " * 50)
    assert length_bias([*pairs, padded]) == (2, 1)


def test_a_stage_keeps_judged_pairs_and_one_negative_a_prompt() -> None:
    loose = LOOSE.model_copy(update={"hard_negatives": ("verbosity", "off_topic"), "validation_share": 0.3})
    judge = Scripted("comparison", loose, lambda place: (2.0, 2.0))
    pairs = all_pairs(judge.comparisons(pairs_to_compare(candidates())), loose).pairs
    assert [preference.source for preference in pairs].count("best_of_n") == 12
    assert [preference.negative_type for preference in pairs].count("verbosity") == 3
    assert [preference.negative_type for preference in pairs].count("off_topic") == 3
    assert sum(preference.split == "validation" for preference in pairs) == 6


def of_lengths(*lengths: tuple[int, int], **changes: Any) -> list[Preference]:
    """Return pairs with so many words on the chosen and the rejected side."""
    return [
        pair(group=f"g{n}", prompt=f"Prompt {n}.", chosen="long " * chosen, rejected="word " * rejected, **changes)
        for n, (chosen, rejected) in enumerate(lengths)
    ]


def test_the_longest_chosen_go_until_lengths_are_balanced() -> None:
    pairs = of_lengths((8, 1), (2, 2), (4, 2), (8, 1), (2, 4))
    assert log_length_ratio(pairs) == pytest.approx(6 * math.log(2) / 5, abs=1e-6)
    selection = balance_lengths(select_pairs(pairs, None), 0.3)
    # Without the later of the two longest the mean is 0.52, without both it is 0.
    assert [preference.group for preference in selection.pairs] == ["g1", "g2", "g4"] and log_length_ratio(
        selection.pairs
    ) == 0
    assert [(dropped_pair.pair.group, dropped_pair.reason) for dropped_pair in selection.dropped] == [
        ("g0", "length_balance"),
        ("g3", "length_balance"),
    ]
    assert [preference.group for preference in balance_lengths(select_pairs(pairs, None), 0.55).pairs] == [
        "g0",
        "g1",
        "g2",
        "g4",
    ]
    assert balance_lengths(select_pairs(pairs, None), 0.84).dropped == []


def test_the_longest_rejected_go_where_those_are_longer() -> None:
    selection = balance_lengths(select_pairs(of_lengths((1, 8), (2, 2), (1, 8), (2, 2)), None), 0.7)
    assert [preference.group for preference in selection.pairs] == ["g0", "g1", "g3"]


def test_negatives_that_are_wrong_by_length_neither_count_nor_go() -> None:
    padded = of_lengths((1, 9), source="hard_negative", negative_type="verbosity")
    pairs = [*padded, *of_lengths((2, 2))]
    assert balance_lengths(select_pairs(pairs, 2.0), 0.01).pairs == pairs and log_length_ratio(pairs) == 0


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=25),
    st.floats(0.01, 1),
    st.randoms(use_true_random=False),
)
@settings(deadline=None, max_examples=80)
def test_balanced_pairs_are_balanced_and_no_more_go_than_the_rule_needs(
    lengths: list[tuple[int, int]], most: float, order: random.Random
) -> None:
    pairs = of_lengths(*lengths)
    selection = balance_lengths(select_pairs(pairs, None), most)
    assert abs(log_length_ratio(selection.pairs)) <= most + 1e-9
    groups = [preference.group for preference in selection.pairs] + [
        dropped_pair.pair.group for dropped_pair in selection.dropped
    ]
    assert sorted(groups) == sorted(preference.group for preference in pairs)
    assert [preference for preference in pairs if preference in selection.pairs] == selection.pairs
    # As many of each length go in another order, so that the rule does not favour places.
    shuffled = order.sample(pairs, len(pairs))
    again = balance_lengths(select_pairs(shuffled, None), most)
    assert sorted(map(ratio_of, again.dropped)) == sorted(map(ratio_of, selection.dropped))
    if abs(log_length_ratio(pairs)) <= most - 1e-9:
        assert selection.dropped == []


def ratio_of(dropped_pair: DroppedPair) -> Fraction:
    return Fraction(len(dropped_pair.pair.chosen.split()), len(dropped_pair.pair.rejected.split()))


def test_rules_of_a_revision_are_those_of_other_pairs() -> None:
    rows = chains(ReviseParameters(revisions=2))
    free = all_revisions(rows, ReviseParameters(revisions=2))
    assert len(free.pairs) == len(rows) and free.dropped == []
    assert [preference.model_copy(update={"split": None}) for preference in free.pairs] == revision_pairs(rows)
    long = [row.model_copy(update={"final": row.final * 4}) if n == 2 else row for n, row in enumerate(rows)]
    limited = all_revisions(long, ReviseParameters(revisions=2, max_length_ratio=3.0))
    assert limited.reasons() == {"length_ratio": 1} and limited.dropped[0].pair.item == long[2].item
    level = all_revisions(long, ReviseParameters(revisions=2, length_balance=0.25))
    assert level.reasons() == {"length_balance": 1} and level.dropped[0].pair.item == long[2].item
    assert {preference.split for preference in level.pairs} == {"train", "validation"} and level.dropped[
        0
    ].pair.split is None


def test_rules_that_are_not_set_leave_no_trace_in_a_registration() -> None:
    """Older registrations keep their digests, and their stages leave the same files."""
    for kind in BEFORE:
        plain = STAGE_KINDS[kind].parameters()
        assert not {"length_balance", "judge"} & set(plain.model_dump())
        assert ("max_length_ratio" in plain.model_dump()) == (kind != "revise")
        assert "dropped" not in outputs_of(kind, plain)
        ruled = STAGE_KINDS[kind].parameters.model_validate({"length_balance": 0.1})
        assert ruled.model_dump()["length_balance"] == 0.1 and outputs_of(kind, ruled)["dropped"] == "rows"
    assert "dropped" in outputs_of("revise", STAGE_KINDS["revise"].parameters.model_validate({"max_length_ratio": 3}))
    for kind, digest in BEFORE.items():
        assert digest_value(STAGE_KINDS[kind].parameters().model_dump(mode="json")) == f"sha256:{digest}"


BEFORE: dict[Kind, str] = {
    "revise": "351c1eeb9c53e03cdd2bd111b5ca7d22205b60daa39b307f4057c9003f14e297",
    "best_of_n": "51aaf30499308a77393ce1ee6143e1cad13fcfe64b188b61cd527b299729088a",
    "best_of_n_verified": "e4d6d9056f88185882b7398feaca1e68269dc40e4f2695c8c7e3bb0737ac3e29",
}
"""Digests of the parameters of a stage that sets none, as they were before there were rules of length."""
