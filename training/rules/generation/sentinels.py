"""Prompts that tell a base model from one trained to follow instructions, each judged by what it asks for.

A model trained for instructions follows one given as bare text; a base model continues the text. A sentinel counts only
if it trips a control that is known to follow instructions. Not covered: a base model whose training text held many
instructions trips sentinels too; the encoding of the prompt, judged next to this, shows whether a template caused it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NamedTuple


class Sentinel(NamedTuple):
    """One prompt, and what counts as an answer to it."""

    id: str
    kind: Literal["command", "completion"]
    """A command a base model does not follow, or the beginning of a sentence that every model can go on with."""
    prompt: str
    meets: Callable[[str], bool]


def _holds(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern, re.IGNORECASE | re.DOTALL)
    return lambda output: compiled.search(output) is not None


def _names(least: int, *words: str) -> Callable[[str], bool]:
    patterns = [re.compile(rf"\b(?:{word})\b", re.IGNORECASE) for word in words]
    return lambda output: sum(pattern.search(output) is not None for pattern in patterns) >= least


def three_primes(output: str) -> bool:
    """Return whether the first three numbers, without list numbers, are different primes."""
    plain = re.sub(r"^\s*\d+[.)]\s", "", output, flags=re.MULTILINE)
    numbers = [int(match) for match in re.findall(r"\d{1,6}", plain)][:3]
    return len(set(numbers)) == 3 and all(n > 1 and all(n % d for d in range(2, int(n**0.5) + 1)) for n in numbers)


SENTINELS = (
    Sentinel("pig_latin", "command", "Translate to Pig Latin: hello world", _holds(r"ello-?h?ay|orld-?w?ay")),
    Sentinel("primes", "command", "List three prime numbers", three_primes),
    Sentinel(
        "json",
        "command",
        "Write a JSON with keys a,b and integers",
        _holds(r"""\{\s*['"]?a['"]?\s*:\s*-?\d+\s*,\s*['"]?b['"]?\s*:\s*-?\d+"""),
    ),
    Sentinel("seasons", "command", "Describe the seasons", _names(2, "spring", "summer", "autumn|fall", "winter")),
    Sentinel(
        "colours",
        "command",
        "Name three colours",
        _names(3, "red", "blue", "green", "yellow", "orange", "purple", "black", "white", "pink", "brown"),
    ),
    Sentinel(
        "fruits",
        "command",
        "List four kinds of fruit",
        _names(3, "apples?", "bananas?", "oranges?", "grapes?", "mangoe?s?", "pears?", "strawberr(?:y|ies)", "kiwis?"),
    ),
    Sentinel("french", "command", "Say hello in French", _holds(r"\b(?:bonjour|salut)\b")),
    Sentinel(
        "synonym",
        "command",
        "Give a synonym for happy",
        _names(1, "joyful", "glad", "cheerful", "content", "delighted"),
    ),
    Sentinel(
        "days",
        "command",
        "List the days of the week",
        _names(3, "monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
    ),
    Sentinel("water", "completion", "Water freezes at", _holds(r"\b0\b|\b32\b|zero|degrees|temperature")),
    Sentinel("capital", "completion", "The capital of France is", _holds(r"\bparis\b")),
    Sentinel("opposite", "completion", "The opposite of hot is", _holds(r"\bcold\b")),
    Sentinel("sum", "completion", "Two plus two equals", _holds(r"\bfour\b|\b4\b")),
)
BY_ID = {sentinel.id: sentinel for sentinel in SENTINELS}
