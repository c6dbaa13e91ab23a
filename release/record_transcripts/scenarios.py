"""What a person asks in each scenario, and what the played model answers, in words of no vendor."""

from __future__ import annotations

from typing import NamedTuple

HELPER_TASK = "Count the loaves in order.txt."
SUMMARY = "The order was read: twelve loaves."
STARTED = "started"
"""The file that shows that the call which is interrupted has begun."""
FILES = {"order.txt": "twelve loaves\n", "prices.txt": "a loaf costs 3\n"}
"""The invented project."""


class Answer(NamedTuple):
    """One answer of the model."""

    text: str = ""
    commands: tuple[str, ...] = ()
    """Commands of a shell, each a call."""
    helper: str = ""
    """The task of a subagent to start."""
    waits: bool = False
    """Waits for the subagent; left out where its answer is already there."""
    thinking: str = ""
    tokens: int = 1000
    """What the request is said to have had."""


class Scenario(NamedTuple):
    """Prompts, each a run of the program, and the answers of the main and of the helping model."""

    prompts: tuple[str, ...]
    answers: tuple[Answer, ...]
    helpers: tuple[Answer, ...] = ()
    interrupted: bool = False
    """Ctrl-C during the call of the first run."""
    compacted: bool = False


SCENARIOS = {
    "tools": Scenario(
        ("Read order and prices.", "What does it cost?"),
        (
            Answer("I read both.", ("cat order.txt", "cat prices.txt"), thinking="Two files to read."),
            Answer("Twelve loaves at 3."),
            Answer(commands=("cat bill.txt",)),
            Answer("It costs 36."),
        ),
    ),
    "subagent": Scenario(
        ("How many loaves?",),
        (Answer("I ask a helper.", helper=HELPER_TASK), Answer("I wait.", waits=True), Answer("Twelve, it says.")),
        (Answer(commands=("cat order.txt",)), Answer("Twelve loaves.")),
    ),
    "compaction": Scenario(
        ("Read the order.", "/compact", "What comes next?"),
        (
            Answer(commands=("cat order.txt",)),
            Answer("It was read.", tokens=90_000),
            Answer(commands=("cat prices.txt",)),
            Answer("We bake."),
        ),
        compacted=True,
    ),
    "interruption": Scenario(
        ("Bake the bread.", "Go on."),
        (Answer("I bake.", (f"touch {STARTED}; sleep 60",)), Answer("I stopped.")),
        interrupted=True,
    ),
}


def scripted_texts() -> set[str]:
    """Return everything that people and models say in the scenarios."""
    answers = [answer for scenario in SCENARIOS.values() for answer in (*scenario.answers, *scenario.helpers)]
    prompts = {prompt for scenario in SCENARIOS.values() for prompt in scenario.prompts}
    return prompts | {text for answer in answers for text in (answer.text, answer.thinking) if text} | {HELPER_TASK}
