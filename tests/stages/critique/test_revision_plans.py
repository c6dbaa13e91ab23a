"""Which principles a chain goes through, and what is wrong with a revision."""

from __future__ import annotations

from collections import Counter

import pytest

from specs.session.constitution import Constitution, Principle, Totals, WorkedRevision
from specs.stages.base.sampling import Finish, Form
from specs.stages.critique.parameters import PrincipleParts, ReviseParameters
from specs.stages.critique.rows import RevisionFault
from testing.factories.critic_evidence import chains
from training.rules.critique.revision_chains import (
    STOPS,
    PromptWriter,
    Rounds,
    contradiction_in,
    faults_of,
    outcome,
    plan,
)


def rules(**categories: int) -> Constitution:
    principles = tuple(
        Principle(id=f"{name}-{n}", category=name, text=f"Rule {n} about {name}.")
        for name, count in categories.items()
        for n in range(count)
    )
    return Constitution(
        schema_version=1,
        title="Rules",
        principles=principles,
        totals=Totals(principles=len(principles), by_category=categories),
    )


@pytest.mark.parametrize(("chains", "rounds"), [(1, 1), (7, 1), (5, 3), (16, 4), (31, 2)])
def test_categories_and_principles_take_turns(chains: int, rounds: int) -> None:
    """Categories of 5, 1 and 2 principles: a draw among all eight would use the first five times as often."""
    parameters = ReviseParameters(revisions=rounds, seed=4)
    plans = plan(rules(large=5, single=1, pair=2), [f"i{n}/0" for n in range(chains)], parameters)
    used = [rule for item in plans for rule in item.principles]
    assert len(used) == chains * rounds and all(len(item.principles) == rounds for item in plans)
    by_category = Counter({"large": 0, "single": 0, "pair": 0})
    by_category.update(rule.category for rule in used)
    assert max(by_category.values()) - min(by_category.values()) <= 1
    for category, size in (("large", 5), ("single", 1), ("pair", 2)):
        inside = Counter({f"{category}-{n}": 0 for n in range(size)})
        inside.update(rule.id for rule in used if rule.category == category)
        assert max(inside.values()) - min(inside.values()) <= 1


def test_the_plan_depends_on_the_seed_and_not_on_the_order_of_the_examples() -> None:
    names = [f"i{n}/0" for n in range(12)]

    def planned(names: list[str], seed: int) -> dict[str, Rounds]:
        return dict(zip(names, plan(rules(a=3, b=3), names, ReviseParameters(revisions=2, seed=seed)), strict=True))

    assert planned(names, 1) == planned(names[::-1], 1) != planned(names, 2)


def test_a_chain_goes_through_different_categories_first() -> None:
    for rounds in plan(rules(a=4, b=4, c=4), [f"i{n}/0" for n in range(9)], ReviseParameters(revisions=3, seed=0)):
        assert {rule.category for rule in rounds.principles} == {"a", "b", "c"}


def test_two_chains_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="same name"):
        plan(rules(a=1), ["i/0", "i/0"], ReviseParameters(revisions=1, seed=0))


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
    assert faults_of(revision, before, "Say it.", finish, ReviseParameters(), "") == faults


def test_words_of_a_refusal_that_were_asked_for_are_none() -> None:
    question = "Write a line in which someone says: I cannot come."
    assert faults_of("She said: I cannot come today.", "She said no.", question, "eos", ReviseParameters(), "") == ()


@pytest.mark.parametrize("form", ["completion", "chat"])
def test_a_revision_that_copies_a_worked_one_is_discarded_where_the_stage_says_so(form: Form) -> None:
    rule = rules(a=1).principles[0].model_copy(update={"examples": (WORKED,)})
    prompt = PromptWriter(form).revision_prompt("What is rye?", "A grain.", rule, "It is dull.")
    discarding = ReviseParameters(discard_copies=True)
    for text, parameters, faults in (
        ("A drink of leaves!\n", discarding, ("copied",)),
        ("A drink of leaves, and a grain!", discarding, ()),
        ("A drink of leaves!", ReviseParameters(), ()),
    ):
        assert faults_of(text, "A grain.", "What is rye?", "eos", parameters, prompt) == faults


def test_a_chain_keeps_the_newest_text_without_a_fault() -> None:
    assert outcome("first", [("second one", ()), ("third", ("short",))]) == ("second one", False)
    assert outcome("first", [("", ("empty",)), ("third one", ())]) == ("third one", True)
    assert outcome("first", [("", ("empty",))]) == ("first", False)
    # Back to the words it began with: changed twice, and nothing gained.
    assert outcome("the first", [("second one", ()), ("the  first", ())]) == ("the  first", False)


def test_rows_of_a_job_do_not_contradict_themselves_and_changed_ones_do() -> None:
    parameters = ReviseParameters(revisions=2)
    row = chains(parameters)[0]
    assert contradiction_in(row, parameters) is None
    assert (
        contradiction_in(row.model_copy(update={"usable": False}), parameters) == "usable False is stated, True follows"
    )
    blamed = row.rounds[0].model_copy(update={"faults": ("short",)})
    output = contradiction_in(row.model_copy(update={"rounds": (blamed, row.rounds[1])}), parameters)
    assert output == "round 1: faults short are stated, none follow"


def test_a_base_model_is_led_by_worked_chains_and_stopped_at_the_next_part() -> None:
    rule = rules(a=1).principles[0]
    bare = PromptWriter("completion").critique_prompt("Say {principle}.", "It is so.", rule)
    assert bare.endswith(f"Instruction: Say {{principle}}.\nResponse: It is so.\nPrinciple: {rule.text}\nCritique:")
    assert bare.count("Critique:") == 3 and all(stop.startswith("\n") for stop in STOPS["completion"])
    again = PromptWriter("completion").revision_prompt("Say it.", "It is so.", rule, "Too short.")
    assert again.endswith("Critique: Too short.\nRevision:")
    chat = PromptWriter("chat").revision_prompt("Say it.", "It is so.", rule, "Too short.")
    assert "Name a fruit" not in chat and chat.endswith("Answer with the new response alone.")


WORKED = WorkedRevision(
    instruction="What is tea?", draft="A drink of leaves.", critique="It is dull.", revision="A drink of leaves!"
)


@pytest.mark.parametrize("form", ["completion", "chat"])
@pytest.mark.parametrize("parts", ["whole", "examples", "sentence"])
def test_a_model_is_shown_the_registered_parts_of_a_principle(form: Form, parts: PrincipleParts) -> None:
    rule = rules(a=1).principles[0].model_copy(update={"examples": (WORKED,)})
    writer = PromptWriter.of(ReviseParameters(form=form, principle_parts=parts), "instruct")
    for prompt in (
        writer.critique_prompt("Say it.", "So.", rule),
        writer.revision_prompt("Say it.", "So.", rule, "No."),
    ):
        assert (rule.text in prompt) == (parts != "examples")
        assert ("Improve the response." in prompt) == (parts == "examples")
        assert (WORKED.revision in prompt) == (parts != "sentence")
        assert ("Name a fruit" in prompt) == (parts == "sentence" and form == "completion")


def test_a_stage_uses_the_principles_that_it_names() -> None:
    constitution = rules(a=2, b=2)
    plans = plan(constitution, ["i/0", "j/0", "k/0"], ReviseParameters(principles=("b-1", "a-0"), revisions=2))
    assert [[principle.id for principle in rounds.principles] for rounds in plans] == 3 * [["b-1", "a-0"]]
    single = plan(constitution, ["i/0", "j/0", "k/0"], ReviseParameters(principles=("b-1", "a-0")))
    assert sorted(rounds.principles[0].id for rounds in single) == ["a-0", "b-1", "b-1"]
    with pytest.raises(ValueError, match="unknown principle 'c-0'"):
        plan(constitution, ["i/0"], ReviseParameters(principles=("c-0",)))
    with pytest.raises(ValueError, match="has a duplicate"):
        ReviseParameters(principles=("a-0", "a-0"))
