"""Write conversations to hold: ``python -m training.items.conversation_items --out FILE --each 75 [--seed 0]``.

Each conversation is a pattern with words put in. All different ones are counted before any is written, and asking for
more is refused.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from specs.stages.base.artifacts import Item
from training.rules.seeded_order import file_order
from training.rules.tasks import write_items
from training.rules.tasks.conversation import KINDS, turns_of

NAMES = ("Tom", "Ada", "Lena", "Ravi", "Mina", "Otto", "Iris", "Hugo", "Nora", "Emil", "Yara", "Paul")
OWNED = ("cat", "dog", "parrot", "boat", "horse", "tortoise", "robot", "goldfish")
PLACES = ("Lisbon", "Oslo", "Cairo", "Quito", "Kyoto", "Riga", "Nairobi", "Lima", "Perth", "Turin")
COLOURS = ("blue", "green", "red", "yellow", "purple", "orange", "grey", "pink")
SUBJECTS = {
    "bees": "bee|bees|honey|hive|wax|nectar|pollen",
    "volcanoes": "volcano|volcanoes|lava|eruption|magma|ash",
    "whales": "whale|whales|ocean|sea|blubber",
    "trains": "train|trains|rail|rails|track|tracks|railway",
    "bread": "bread|flour|dough|yeast|oven|loaf",
    "the moon": "moon|lunar|orbit|tide|tides|crater|craters",
    "pianos": "piano|pianos|keys|string|strings|music",
    "rivers": "river|rivers|water|flow|flows|stream",
    "castles": "castle|castles|wall|walls|tower|towers|moat",
    "penguins": "penguin|penguins|ice|krill|antarctica|colony",
}
"""Subject -> words of which an answer about it holds at least one."""
ASKS = (
    "What are they needed for?",
    "Where are they found?",
    "Tell me one more thing about that.",
    "Why do people like that?",
)
NUMBERS = (3, 4, 5, 6, 8, 10)


class Pattern(NamedTuple):
    """A conversation with places for words, and what the answers of its later turns must show."""

    kind: str
    first: str
    constraint: Mapping[str, str]
    words: Mapping[str, tuple[str, ...]]


PATTERNS: tuple[Pattern, ...] = (
    Pattern(
        "memory",
        "My {owned} is called {name}.",
        {"turn_2": "I live in {place}.", "turn_3": "What is my {owned} called?", "require_3": "{name}"},
        {"owned": OWNED, "name": NAMES, "place": PLACES},
    ),
    Pattern(
        "memory",
        "I was born in {place} and now I paint houses.",
        {"turn_2": "I paint most of them {colour}.", "turn_3": "In which city was I born?", "require_3": "{place}"},
        {"place": PLACES, "colour": COLOURS},
    ),
    Pattern(
        "memory",
        "{name} and I are going to {place} next week.",
        {"turn_2": "It will be cold.", "turn_3": "Who is going with me, and where?", "require_3": "{name}; {place}"},
        {"name": NAMES, "place": PLACES},
    ),
    Pattern(
        "preference",
        "From now on write everything in small letters only. My name is {name}.",
        {"turn_2": "Tell me about {subject}.", "form_2": "lowercase"},
        {"name": NAMES, "subject": tuple(SUBJECTS)},
    ),
    Pattern(
        "preference",
        "Please never use the word {colour} when you talk to me.",
        {"turn_2": "Describe something in {place}.", "forbid_2": "{colour}"},
        {"colour": COLOURS, "place": PLACES},
    ),
    Pattern(
        "preference",
        "Call me {name} in every answer.",
        {"turn_2": "Tell me about {subject}.", "require_2": "{name}"},
        {"name": NAMES, "subject": tuple(SUBJECTS)},
    ),
    Pattern(
        "continuity",
        "Tell me about {subject}.",
        {"turn_2": "{ask}", "require_2": "{about}"},
        {"subject": tuple(SUBJECTS), "ask": ASKS},
    ),
    Pattern(
        "continuity",
        "{name} reads a book about {subject}. What might it say?",
        {"turn_2": "And what comes after that?", "require_2": "{about}"},
        {"name": NAMES, "subject": tuple(SUBJECTS)},
    ),
    Pattern(
        "update",
        "Answer in at most thirty words. What is special about {subject}?",
        {"turn_2": "Now use at most {number} words for the same.", "most_words_2": "{number}"},
        {"subject": tuple(SUBJECTS), "number": tuple(map(str, NUMBERS))},
    ),
    Pattern(
        "update",
        "Write everything in capital letters. Say something about {place}.",
        {"turn_2": "Now write in small letters only. Say it again.", "form_2": "lowercase"},
        {"place": PLACES},
    ),
    Pattern(
        "update",
        "My favourite colour is {colour}. Remember that, {name} said.",
        {"turn_2": "I changed my mind, it is {other}.", "turn_3": "What is my favourite colour now?",
         "require_3": "{other}"},
        {"colour": COLOURS, "other": ("black", "white", "brown", "silver"), "name": NAMES},
    ),
)  # fmt: skip


def build(count: int, seed: int = 0) -> list[Item]:
    """Return ``count`` different conversations of each kind, patterns in turn; raises ValueError if there are fewer."""
    matching_items: list[Item] = []
    for kind in KINDS:
        pools = [
            _expand_pattern(pattern, number, seed) for number, pattern in enumerate(PATTERNS) if pattern.kind == kind
        ]
        turns = itertools.chain.from_iterable(itertools.zip_longest(*pools))
        items = [item for item in turns if item is not None]
        if len(items) < count:
            raise ValueError(f"kind {kind} has {len(items)} different conversations, {count} were requested")
        matching_items += items[:count]
    return matching_items


def _expand_pattern(pattern: Pattern, number: int, seed: int) -> list[Item]:
    """Return a pattern with all choices of words, each once, in an order that the seed gives."""
    items: dict[str, Item] = {}
    for chosen in itertools.product(*pattern.words.values()):
        words = dict(zip(pattern.words, chosen, strict=True))
        words["about"] = SUBJECTS.get(words.get("subject", ""), "")
        texts = {key: value.format(**words) for key, value in pattern.constraint.items()}
        constraint = {key: int(text) if key.startswith("most") else text for key, text in texts.items()}
        prompt = pattern.first.format(**words)
        name = "-".join("".join(word.split()).lower() for word in chosen)
        item = Item(
            id=f"{pattern.kind}-{number}-{name}",
            group=f"{pattern.kind}-{number}-{name}",
            kind=pattern.kind,
            prompt=prompt,
            constraint=constraint,
        )
        turns_of(item)
        items.setdefault(json.dumps([prompt, texts]), item)
    return sorted(items.values(), key=lambda item: file_order(item.id, seed))


def main() -> int:
    """Write the file that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m training.items.conversation_items", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--each", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    namespace = parser.parse_args()
    try:
        items = build(namespace.each, namespace.seed)
    except ValueError as error:
        print(f"{error}", file=sys.stderr)
        return 2
    write_items(namespace.out, items)
    print(f"{namespace.out}: {len(items)} conversations")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
