"""Leaked delimiters, refusals and template wording: what is found, and what a task asks for is left alone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from reviews.stages.generation.residue import (
    DELIMITERS,
    REFUSALS,
    AcceptedCompletion,
    frequent_edges,
    marks_in,
    repeats,
)
from specs.stages.base.artifacts import Item
from training.items.format_items import TRAIN_TOPICS, build_items
from training.rules.tasks import worked_example

PROMPT = "Write one sentence about bees."


def make_completion(
    text: str, prompt: str = PROMPT, kind: str = "lowercase", group: str = "bees", **constraint: str | int
) -> AcceptedCompletion:
    return AcceptedCompletion(
        Item(id=f"{group}-{kind}", group=group, kind=kind, prompt=prompt, constraint=constraint), text
    )


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("Bees are busy.<|im_end|>", "<|im_end|>"),
        ("Bees are busy.<|im_", "<|im_"),
        ("<|assistant|> Bees are busy.", "<|assistant|>"),
        ("[INST] Bees are busy.", "[INST]"),
        ("Bees are busy. [/INST]", "[/INST]"),
        ("<<SYS>> Bees are busy.", "<<SYS>>"),
        ("Bees are busy.</s>", "</s>"),
        ("Bees are busy.<eos>", "<eos>"),
        ("Bees are busy. ###", "###"),
        ("Bees are busy. ##", "##"),
        ("Bees are busy.\n###END", "###END"),
        ("###\nBees are busy.", "###"),
        ("Bees are busy. ### Wasps are not.", "###"),
        ("Bees are busy.\n### Instruction: and wasps?", "### Instruction:"),
        ("Bees are busy.\nUser: and wasps?", "User:"),
        ("user: and wasps?", "user:"),
        ("Bees are busy.\n  Q: and wasps?", "Q:"),
        ("Answer: bees are busy.", "Answer:"),
        ("There are some things to know about bees:", ":"),
    ],
)
def test_a_leaked_delimiter_is_found(text: str, mark: str) -> None:
    assert mark in marks_in(make_completion(text), DELIMITERS)


@pytest.mark.parametrize(
    "text",
    [
        "Bees are busy.",
        "They know one thing: where the flowers are.",
        "The answer: no one knows, and no user asked.",
        "<<Busy Bees>>\nBees are busy.",
        "- Bees are busy.\n- Bees dance.",
        '"Bees are busy."',
        "# Bees\nThey are busy.",
        "### Busy bees\nThey dance.",
        "Bees ranked #1 in C# at 3 < 4.",
        "One worker in ten is a system of its own.",
    ],
)
def test_ordinary_text_carries_no_delimiter(text: str) -> None:
    assert marks_in(make_completion(text), DELIMITERS) == ()


def test_a_mark_that_the_item_asks_for_does_not_count() -> None:
    text = "Bees are busy. ###END###"
    assert marks_in(make_completion(text), DELIMITERS) == ("###END", "###")
    assert marks_in(make_completion(text, prompt="End your answer with ###END###"), DELIMITERS) == ()
    assert marks_in(make_completion(text, phrase="###end###"), DELIMITERS) == ()
    assert (
        marks_in(make_completion("Answer: bees.", prompt="Begin with 'Answer:' and name an insect."), DELIMITERS) == ()
    )


def test_every_mark_is_named_once() -> None:
    assert marks_in(make_completion("User: a\nUser: b\nAssistant: c"), DELIMITERS) == ("User:", "Assistant:")


@pytest.mark.parametrize(
    "text",
    [
        "As an AI language model, I have no bees.",
        "as a large language model i have no bees",
        "I'm sorry, but there are no bees.",
        "I\u2019m unable to count bees.",
        "I cannot write about bees.",
        "I can't, and I won't.",
        "I apologise for the bees.",
        "Grade: A. The sentence is about bees.",
        "The sentence gets 8/10.",
        "Score = 4",
    ],
)
def test_a_refusal_or_a_mark_is_found(text: str) -> None:
    assert marks_in(make_completion(text), REFUSALS)


@pytest.mark.parametrize(
    "text",
    [
        "Bees cannot swim.",
        "Penguins can't fly.",
        "A bee is an ai-ry thing; as an aid it is fine.",
        "About 1/5 of the bees stay in.",
        "The verdict of the bees was clear.",
        "Sorry bees do not dance.",
    ],
)
def test_ordinary_text_is_no_refusal(text: str) -> None:
    assert marks_in(make_completion(text), REFUSALS) == ()


def test_the_formats_of_the_task_are_no_residue() -> None:
    """Every kind, answered in its form for every topic, with wording that differs as topics do."""
    every = [
        AcceptedCompletion(
            item, worked_example("format_instructions", item)[1].replace("Bread", item.group).replace("oven", item.id)
        )
        for item in build_items("t", TRAIN_TOPICS)
    ]
    assert [completion.text for completion in every if marks_in(completion, (*DELIMITERS, *REFUSALS))] == []


EIGHT = "name two birds that live by the sea"


@pytest.mark.parametrize(
    ("text", "source", "result"),
    [
        (EIGHT.upper(), EIGHT, True),
        (f"{EIGHT} and here they are: gulls, and terns of many and different kinds", EIGHT, True),
        (f"here are the gulls and terns of many and different kinds, so {EIGHT}", EIGHT, True),
        (f"gulls and terns of many kinds, {EIGHT}, that was easily done by us", EIGHT, True),
        (f"here they are, the gulls, the terns, the skuas, the auks: {EIGHT[:-4]}", EIGHT, False),
        (f"two {EIGHT[5:]} and many more things that were not asked for at all", EIGHT, False),
        ("the gulls and the terns", EIGHT, False),
        # Seven words: found only when there is not much more.
        (
            "name two birds that live by seas, and many more words that follow",
            "name two birds that live by seas",
            False,
        ),
        ("name two birds that live by seas now", "name two birds that live by seas", True),
    ],
)
def test_a_text_that_repeats_its_source_is_seen(text: str, source: str, result: bool) -> None:
    assert repeats(text, source, 0.8) is result


def test_a_text_at_the_similarity_repeats_its_source() -> None:
    # Of 6 and 5 shingles of three words 5 are shared.
    assert repeats(f"{EIGHT[:-4]} now", EIGHT[:-4], 5 / 6) and not repeats(f"{EIGHT[:-4]} now", EIGHT[:-4], 0.84)


def sentences(count: int, text: str = "{n} bees went out to find {n} flowers in field {n}") -> list[AcceptedCompletion]:
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
    return [make_completion(text.format(n=word), group=word) for word in words[:count]]


def test_varied_completions_have_no_frequent_edge() -> None:
    assert frequent_edges(sentences(12), 0.1) == ()


def test_a_frequent_ending_is_found_in_its_longest_form() -> None:
    texts = [*sentences(6), *sentences(6, "{n} bees {n} went home, hope this helps")]
    (edge,) = [edge for edge in frequent_edges(texts, 0.4) if edge.where == "tail"]
    assert (edge.text, edge.times, edge.of, edge.scope) == ("home hope this helps", 6, 12, "")
    assert edge.share == 0.5
    assert frequent_edges(texts, 0.5) == ()


def test_a_frequent_beginning_is_found() -> None:
    edges = frequent_edges(sentences(6, "sure, here is a sentence: {n} bees"), 0.1)
    assert [(edge.where, edge.text) for edge in edges] == [("head", "sure here is a sentence")]


@pytest.mark.parametrize(
    ("template", "results"),
    [
        ("there {n} bees flew off to {n} trees", []),
        ("there are {n} bees that flew off to {n} trees", []),
        ("there once were {n} bees that flew off to {n} trees", ["there once were"]),
        ("there once were only {n} bees that flew off to {n} trees", ["there once were only"]),
        ("{n} bees flew off to {n} gladly", []),
        ("{n} bees flew off to {n} very gladly", ["very gladly"]),
        ("{n} bees flew off to {n} and very gladly", ["and very gladly"]),
        ("{n} bees flew off to {n} and also very gladly", ["and also very gladly"]),
    ],
)
def test_edges_are_three_words_at_the_beginning_and_two_at_the_end(template: str, results: list[str]) -> None:
    assert [edge.text for edge in frequent_edges(sentences(6, template), 0.1)] == results


def test_an_unknown_delimiter_shows_as_an_ending() -> None:
    edges = frequent_edges(sentences(6, "{n} bees fly {n} times ~~~"), 0.1)
    assert [(edge.where, edge.text) for edge in edges] == [("tail", "~~~")]
    completions = [
        make_completion(f"{completion.text} ~~~", prompt="Close with ~~~", group=completion.item.group)
        for completion in sentences(6)
    ]
    assert frequent_edges(completions, 0.1) == ()


def test_an_edge_of_one_kind_is_found_among_others() -> None:
    titled = [
        make_completion(f"{n} hats. that was it", kind="title", group=n)
        for n in ("red", "blue", "green", "grey", "black")
    ]
    edges = frequent_edges([*sentences(12), *sentences(12), *sentences(12), *titled], 0.15)
    assert [(edge.scope, edge.text, edge.times, edge.of) for edge in edges] == [("title", "hats that was it", 5, 5)]


def test_the_ending_that_a_constraint_asks_for_is_no_edge() -> None:
    completions = [
        make_completion(f"{completion.text}. That is all.", phrase="That is all.", group=completion.item.group)
        for completion in sentences(6)
    ]
    assert frequent_edges(completions, 0.1) == ()
    unasked = [make_completion(completion.text, group=completion.item.group) for completion in completions]
    assert [edge.text for edge in frequent_edges(unasked, 0.1)] == ["that is all"]


def test_the_wording_of_one_topic_is_no_template() -> None:
    same = [make_completion(f"{n} bees dance around the old hive", group="bees") for n in range(12)]
    assert frequent_edges(same, 0.1) == ()
    spread = [make_completion(completion.text, group=f"g{place % 3}") for place, completion in enumerate(same)]
    assert frequent_edges(spread, 0.1) != ()


def test_four_rows_are_too_few_for_a_template() -> None:
    assert frequent_edges(sentences(4, "sure, here is one: {n} bees"), 0.1) == ()
    assert frequent_edges(sentences(5, "sure, here is one: {n} bees"), 0.1) != ()


def test_edges_come_in_the_same_order_in_every_process() -> None:
    code = (
        "from reviews.stages.generation.residue import AcceptedCompletion, frequent_edges;"
        "from specs.stages.base.artifacts import Item;"
        "item = lambda n: Item(id=str(n), group=str(n), kind='k', prompt='p', constraint={});"
        "print(frequent_edges([AcceptedCompletion(item(n), "
        "f'so it was {n} and so it is ~~~ @@') for n in range(6)], 0.1))"
    )
    views = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (1, 2)
    }
    assert len(views) == 1 and views.pop().count("Edge(") == 3
