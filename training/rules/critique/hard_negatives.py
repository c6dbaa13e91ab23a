"""Responses that are wrong in a known way, made by rule from a chosen response: the same every time.

A rule that finds nothing to spoil makes nothing: a negative that differs from its type would teach the opposite.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from specs.stages.base.artifacts import NegativeType, Preference
from training.rules.cleaning import refuses
from training.rules.seeded_order import file_order

LEAST_CHARACTERS = 3
_REFUSALS = (
    "I'm sorry, but I can't help with that.",
    "I am not able to answer this request.",
    "As a language model, I cannot do that.",
    "I cannot respond to this. Please ask something else.",
)
_FILLER = (
    "This is a very interesting question that many people ask.",
    "It is worth saying that there is a lot one could say about it.",
    "To put it in other words, what was said above is what matters here.",
    "In conclusion, all of this shows how important the subject is.",
    "Of course there are many more things that could be added to this.",
)
_PREAMBLE = "Sure! Here is what you asked for, I hope that it helps:"
_NUMBER = re.compile(r"\b\d{1,6}\b")
_CLAIM = re.compile(r"\b(is|are|was|were|has|have|can)\b(?! not\b)")
_MARKER = re.compile(r"^\s*(?:[-*\u2022]|\d{1,3}[.)])\s+", re.MULTILINE)


class Best(NamedTuple):
    """The chosen response to an instruction."""

    item: str
    group: str
    instruction: str
    chosen: str


def words(text: str) -> int:
    """Return the number of words, which white space divides."""
    return len(text.split())


def negatives(best: Sequence[Best], types: Sequence[NegativeType], seed: int) -> list[Preference]:
    """Return one negative for each chosen response, the types in turn; splits are not set yet.

    If a type can spoil nothing, the next one is tried. The seed decides the choice among phrases.
    """
    preferences: list[Preference] = []
    for place, current_best in enumerate(best):
        for step in range(len(types)):
            type = types[(place + step) % len(types)]
            rejected = _spoil_response(type, place, best, seed)
            if len(rejected) < LEAST_CHARACTERS or rejected.split() == current_best.chosen.split():
                continue
            preferences.append(
                Preference(
                    prompt=current_best.instruction,
                    chosen=current_best.chosen,
                    rejected=rejected,
                    group=current_best.group,
                    source="hard_negative",
                    item=current_best.item,
                    negative_type=type,
                    made_by="rule",
                )
            )
            break
    return preferences


def _spoil_response(type: NegativeType, place: int, best: Sequence[Best], seed: int) -> str:
    """Return the chosen response at a place, spoiled in one way; nothing if the rule does not apply."""
    item, group, _, chosen = best[place]
    if type == "off_topic":
        # The answer to something else. Neighbours are often alike, so that it is looked for from half way on.
        others = [best[(place + len(best) // 2 + step) % len(best)] for step in range(len(best))]
        return next((text for _, other, _, text in others if other != group and text != chosen), "")
    draw = int(file_order(item, seed), 16)
    return _RULES[type](chosen, draw)


def _refusal(chosen: str, draw: int) -> str:
    if refuses(chosen):
        # There a refusal is the right answer.
        return ""
    return _REFUSALS[draw % len(_REFUSALS)]


def _wrong_fact(chosen: str, draw: int) -> str:
    """Change a number; without one, deny the first statement."""
    if number := _NUMBER.search(chosen):
        other = int(number[0]) + 1 + draw % 8
        return f"{chosen[: number.start()]}{other}{chosen[number.end() :]}"
    return _CLAIM.sub(r"\1 not", chosen, count=1) if _CLAIM.search(chosen) else ""


def _other_form(chosen: str, _: int) -> str:
    """Join the lines of a list; put a preamble before anything else."""
    lines = [line for line in chosen.splitlines() if line.strip()]
    if len(lines) > 1:
        return " ".join(_MARKER.sub("", line).strip() for line in lines)
    return f"{_PREAMBLE}\n\n{chosen}"


def _verbose(chosen: str, draw: int) -> str:
    """Add empty phrases until the text is twice as long."""
    text, step = chosen, 0
    while words(text) < 2 * words(chosen) or step < 2:
        text = f"{text} {_FILLER[(draw + step) % len(_FILLER)]}"
        step += 1
    return text


def _cut_short(chosen: str, _: int) -> str:
    """Return the first third of the words."""
    parts = chosen.split()
    return " ".join(parts[: max(1, len(parts) // 3)]) if len(parts) >= 6 else ""


_RULES: dict[NegativeType, Callable[[str, int], str]] = {
    "unwarranted_refusal": _refusal,
    "wrong_fact": _wrong_fact,
    "format_violation": _other_form,
    "verbosity": _verbose,
    "under_explanation": _cut_short,
}
