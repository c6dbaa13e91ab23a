"""The task `format_instructions`: answer about a topic in a form that code can verify.

Each constraint kind has a sentence of instruction, a worked example and a verifier, which reads the item and the output
only. It does not judge the content of the answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from specs.stages.base.artifacts import Item
from training.rules.disguise import count_words
from training.rules.similarity import words_of

MIN_WORDS = 4
"""An answer shorter than this is not an answer, whatever its form."""


Constraint = Mapping[str, str | int]
Span = tuple[int, int]
"""Characters of an answer, from the first to before the last."""


class Judgement(NamedTuple):
    """Whether an output has the form that the item asks for, and if not, what is wrong."""

    passed: bool
    reason: str = ""
    span: Span | None = None
    """The characters that the reason is about; None where it is about all of them, or what is missing."""


@dataclass(frozen=True)
class ConstraintKind:
    """One family of constraints."""

    name: str
    instruction: str
    """Template with ``{topic}`` and the values of the constraint."""
    worked: Callable[[Constraint], str]
    """An answer about bread, a topic of neither split, that has the form."""
    verify: Callable[[Constraint, str], str]
    """Return what is wrong with an output, or an empty string."""
    values: tuple[Constraint, ...] = ({},)
    """The constraints items of this kind cycle through."""
    place: Callable[[str], Span | None] = lambda _: None
    """Return the characters of a wrong output that break the form, where these are a part of it."""


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _without(what: str, test: Callable[[str], bool]) -> Callable[[Constraint, str], str]:
    return lambda _, text: next((f"has the {what} {letter!r}" for letter in text if test(letter)), "")


def _word_with(test: Callable[[str], bool]) -> Callable[[str], Span | None]:
    return lambda text: next((match.span() for match in re.finditer(r"\S+", text) if any(map(test, match[0]))), None)


def _check_quotation(_: Constraint, text: str) -> str:
    if not (text.startswith('"') and text.endswith('"')):
        return "does not begin and end with a double quotation mark"
    return "has a quotation mark inside" if '"' in text[1:-1] else ""


def _bullets(constraint: Constraint, text: str) -> str:
    lines = _lines(text)
    count = constraint["count"]
    if any(not line.startswith("- ") for line in lines):
        return "has a line that does not start with '- '"
    if len(lines) != count:
        return f"has {len(lines)} bullet points instead of {count}"
    return "" if all(len(line) > 4 for line in lines) else "has an empty bullet point"


def _ending(constraint: Constraint, text: str) -> str:
    phrase = str(constraint["phrase"])
    if not text.endswith(phrase):
        return f"does not end with {phrase!r}"
    return f"has {phrase!r} more than once" if text.count(phrase) > 1 else ""


def _title(_: Constraint, text: str) -> str:
    lines = _lines(text)
    if not re.fullmatch(r"<<[^<>]{2,80}>>", lines[0]):
        return "the first line is not a title in << >>"
    if len(lines) < 2:
        return "has nothing after the title"
    return "has << or >> after the title" if re.search(r"<<|>>", "\n".join(lines[1:])) else ""


_BREAD = "Bread is baked from flour, water and salt in a hot oven."
_FACTS = ("It is baked in an oven.", "It is made from flour and water.", "Yeast makes it rise.", "It keeps for days.")


KINDS: dict[str, ConstraintKind] = {
    kind.name: kind
    for kind in (
        ConstraintKind(
            "lowercase",
            "Write one sentence about {topic}. Use only lowercase letters.",
            lambda _: _BREAD.lower(),
            _without("capital letter", str.isupper),
            place=_word_with(str.isupper),
        ),
        ConstraintKind(
            "uppercase",
            "Write one sentence about {topic}. Use only capital letters.",
            lambda _: _BREAD.upper(),
            _without("small letter", str.islower),
            place=_word_with(str.islower),
        ),
        ConstraintKind(
            "quoted",
            "Write one sentence about {topic}. Put your whole answer inside double quotation marks.",
            lambda _: f'"{_BREAD}"',
            _check_quotation,
        ),
        ConstraintKind(
            "bullets",
            "List {count} facts about {topic}. Start every line with '- ' and write nothing else.",
            lambda constraint: "\n".join(f"- {fact}" for fact in _FACTS[: int(constraint["count"])]),
            _bullets,
            ({"count": 2}, {"count": 3}, {"count": 4}),
        ),
        ConstraintKind(
            "ending",
            "Write one sentence about {topic}. End your answer with the words: {phrase}",
            lambda constraint: f"{_BREAD} {constraint['phrase']}",
            _ending,
            ({"phrase": "That is all."}, {"phrase": "Over and out."}, {"phrase": "End of answer."}),
        ),
        ConstraintKind(
            "title",
            "Write one sentence about {topic}. Put a title wrapped in << and >> on the first line.",
            lambda _: f"<<Daily Bread>>\n{_BREAD}",
            _title,
        ),
    )
}


def prompt_of(kind: ConstraintKind, topic: str, constraint: Constraint) -> str:
    """Return the instruction of an item."""
    return kind.instruction.format(topic=topic, **constraint)


def instruction_kinds(prompt: str) -> frozenset[str]:
    """Return the kinds whose instruction an item's text holds word for word; other wording asks for none of them."""
    text = " ".join(prompt.split())
    return frozenset(name for name, kind in KINDS.items() if _ending_words(kind.instruction) in text)


def _ending_words(instruction: str) -> str:
    """Return what an instruction says of the form: its last words without a place to fill."""
    return [part.strip(" .:") for part in re.split(r"\{\w+\}", instruction) if part.strip(" .:")][-1]


def worked_example(item: Item) -> tuple[str, str]:
    """Return (instruction, answer) of a worked example for the item's own constraint, on another topic.

    It is shown while sampling only. Trained on the result without the example, the model must carry the form in its
    weights (context distillation: Askell et al. 2021, arXiv:2112.00861; Snell et al. 2022, arXiv:2209.15189).
    """
    kind = KINDS[item.kind]
    return prompt_of(kind, "bread", item.constraint), kind.worked(item.constraint)


def verify(item: Item, output: str) -> Judgement:
    """Judge one output without the white space around it; raises KeyError if the item's kind is unknown."""
    kind = KINDS[item.kind]
    text = output.strip()
    if not text:
        return Judgement(False, "is empty")
    wrong = kind.verify(item.constraint, text)
    if wrong:
        return Judgement(False, wrong, kind.place(output))
    # Scripts without spaces have words too; signs are none.
    words = count_words(tuple(word for word in words_of(text) if word[0].isalnum()))
    words = max(words, len(re.findall(r"\w+", text)))
    return Judgement(True) if words >= MIN_WORDS else Judgement(False, f"has {words} words, fewer than {MIN_WORDS}")
