"""Which principles a chain goes through, and what is wrong with a revision."""

from __future__ import annotations

from collections import Counter

import pytest

from specs.session.constitution import Constitution, Principle, Totals
from specs.stages.base.sampling import Finish
from specs.stages.critique.parameters import ReviseParameters
from specs.stages.critique.rows import RevisionFault
from testing.factories.critic_evidence import chains
from training.rules.critique.revision_chains import (
    STOPS,
    contradiction_in,
    critique_prompt,
    faults_of,
    outcome,
    plan,
    revision_prompt,
)


def rules(**categories: int) -> Constitution:
    some = tuple(
        Principle(id=f"{name}-{n}", category=name, text=f"Rule {n} about {name}.")
        for name, count in categories.items()
        for n in range(count)
    )
    return Constitution(
        schema_version=1, title="Rules", principles=some, totals=Totals(principles=len(some), by_category=categories)
    )


@pytest.mark.parametrize(("chains", "rounds"), [(1, 1), (7, 1), (5, 3), (16, 4), (31, 2)])
def test_categories_and_principles_take_turns(chains: int, rounds: int) -> None:
    """Categories of 5, 1 and 2 principles: a draw among all eight would use the first five times as often."""
    plans = plan(rules(large=5, single=1, pair=2), [f"i{n}/0" for n in range(chains)], rounds, seed=4)
    used = [rule for one in plans for rule in one.principles]
    assert len(used) == chains * rounds and all(len(one.principles) == rounds for one in plans)
    by_category = Counter({"large": 0, "single": 0, "pair": 0})
    by_category.update(rule.category for rule in used)
    assert max(by_category.values()) - min(by_category.values()) <= 1
    for category, size in (("large", 5), ("single", 1), ("pair", 2)):
        inside = Counter({f"{category}-{n}": 0 for n in range(size)})
        inside.update(rule.id for rule in used if rule.category == category)
        assert max(inside.values()) - min(inside.values()) <= 1


def test_the_plan_depends_on_the_seed_and_not_on_the_order_of_the_examples() -> None:
    names = [f"i{n}/0" for n in range(12)]
    one = dict(zip(names, plan(rules(a=3, b=3), names, 2, 1), strict=True))
    other = dict(zip(names[::-1], plan(rules(a=3, b=3), names[::-1], 2, 1), strict=True))
    assert one == other
    assert one != dict(zip(names, plan(rules(a=3, b=3), names, 2, 2), strict=True))


def test_a_chain_goes_through_different_categories_first() -> None:
    for one in plan(rules(a=4, b=4, c=4), [f"i{n}/0" for n in range(9)], 3, 0):
        assert {rule.category for rule in one.principles} == {"a", "b", "c"}


def test_two_chains_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="same name"):
        plan(rules(a=1), ["i/0", "i/0"], 1, 0)


@pytest.mark.parametrize(
    ("revision", "before", "finish", "faults"),
    [
        ("A better answer here.", "An answer.", "stop", ()),
        ("", "An answer.", "stop", ("empty",)),
        ("Two words", "An answer.", "eos", ("short",)),
        ("A better answer that breaks", "An answer.", "length", ("truncated",)),
        ("I'm sorry, but I cannot help with that.", "An answer.", "eos", ("refusal",)),
        ("I cannot help with that either.", "I cannot help with that.", "eos", ()),
        ("An  answer that\nstays.", "An answer that stays.", "eos", ("unchanged",)),
        ("Cut", "Cut", "length", ("short", "truncated", "unchanged")),
    ],
)
def test_faults_of_a_revision(revision: str, before: str, finish: Finish, faults: tuple[RevisionFault, ...]) -> None:
    assert faults_of(revision, before, "Say it.", finish, 3) == faults


def test_words_of_a_refusal_that_were_asked_for_are_none() -> None:
    asked = "Write a line in which someone says: I cannot come."
    assert faults_of("She said: I cannot come today.", "She said no.", asked, "eos", 3) == ()


def test_a_chain_keeps_the_newest_text_without_a_fault() -> None:
    assert outcome("first", [("second one", ()), ("third", ("short",))]) == ("second one", False)
    assert outcome("first", [("", ("empty",)), ("third one", ())]) == ("third one", True)
    assert outcome("first", [("", ("empty",))]) == ("first", False)
    # Back to the words it began with: changed twice, and nothing gained.
    assert outcome("the first", [("second one", ()), ("the  first", ())]) == ("the  first", False)


def test_rows_of_a_job_do_not_contradict_themselves_and_changed_ones_do() -> None:
    given = ReviseParameters(revisions=2)
    row = chains(given)[0]
    assert contradiction_in(row, given) is None
    assert contradiction_in(row.model_copy(update={"usable": False}), given) == "usable False is stated, True follows"
    blamed = row.rounds[0].model_copy(update={"faults": ("short",)})
    told = contradiction_in(row.model_copy(update={"rounds": (blamed, row.rounds[1])}), given)
    assert told == "round 1: faults short are stated, none follow"


def test_a_base_model_is_led_by_worked_chains_and_stopped_at_the_next_part() -> None:
    rule = rules(a=1).principles[0]
    bare = critique_prompt("Say {principle}.", "It is so.", rule, "completion")
    assert bare.endswith(f"Instruction: Say {{principle}}.\nResponse: It is so.\nPrinciple: {rule.text}\nCritique:")
    assert bare.count("Critique:") == 3 and all(stop.startswith("\n") for stop in STOPS["completion"])
    again = revision_prompt("Say it.", "It is so.", rule, "Too short.", "completion")
    assert again.endswith("Critique: Too short.\nRevision:")
    chat = revision_prompt("Say it.", "It is so.", rule, "Too short.", "chat")
    assert "Name a fruit" not in chat and chat.endswith("Answer with the new response alone.")
