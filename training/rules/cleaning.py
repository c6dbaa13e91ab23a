"""Cleans an answer in a declared order of steps, and marks what is wrong with it: faults, leaks, refusals.

Each step only cuts. The measurer applies the same steps to the raw text again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from specs.stages.base.sampling import END_MARK, Finish
from specs.stages.generation.parameters import ScopeRule, Step

_ROLE_LINE = re.compile(r"^[ \t]*(?:instruction\b|q:|a:|response:|question:|user:|assistant:|human:)", re.I | re.M)
_NEW_QUESTION = re.compile(
    r"(?:^|(?<=[.!?\n]))\s*(?:here is (?:a|another|the next) (?:new )?(?:question|instruction|task)"
    r"|(?:next|another|new) (?:question|instruction|task)\s*:)",
    re.I,
)

_OPEN_LIST = re.compile(r"[\d).]\s+\w+(\s+\w+)*\s*-\s*$")
"""A list item that was begun: "2. Red -"."""

_SHORT_ANSWERS = frozenset({"yes", "no", "true", "false"})
_LEAST_CHARACTERS = 10
_RUNAWAY_CHARACTERS = 500
_RUNAWAY_TURNS = ("\n\nInstruction:", "\n\nQuestion:", "\n\nQ:", "\nUser:", "\nAssistant:", "\nHuman:")
_RUNAWAY_TOKENS = ("<|im_start|>", "<|im_end|>")


class CleaningResult(NamedTuple):
    """A text after cleaning, and the steps that changed it."""

    text: str
    by: tuple[str, ...]


def clean(raw: str, steps: Sequence[Step]) -> CleaningResult:
    """Apply the steps in order."""
    text, by = raw, list[str]()
    for step in steps:
        after = _STEPS[step](text)
        if after != text:
            by.append(step)
        text = after
    return CleaningResult(text, tuple(by))


def _first_paragraph(text: str) -> str:
    """Return the text before the first empty line after a word."""
    count = len(text) - len(text.lstrip())
    end = text.find("\n\n", count)
    return text if end < 0 else text[:end]


def _before(pattern: re.Pattern[str]) -> Callable[[str], str]:
    return lambda text: pattern.split(text, maxsplit=1)[0]


_STEPS: dict[Step, Callable[[str], str]] = {
    "end_mark": lambda text: text.partition(END_MARK)[0],
    "first_paragraph": _first_paragraph,
    "role_line": _before(_ROLE_LINE),
    "new_question": _before(_NEW_QUESTION),
    "strip": str.strip,
}


def is_runaway(text: str) -> bool:
    """Return whether a cleaned answer runs past its end (``runaway_rate_v2``): another turn, or over 500 characters."""
    marks = (*_RUNAWAY_TURNS, *_RUNAWAY_TOKENS)
    return any(mark in text for mark in marks) or len(text) > _RUNAWAY_CHARACTERS


def is_runaway_v1(text: str) -> bool:
    """Apply the older rule: over 200 characters or more than three full stops. Known for false positives."""
    return len(text) > 200 or text.count(".") > 3


def leak_in(text: str, instruction: str, delimiters: Sequence[str]) -> str:
    """Return the delimiter in a cleaned text, or the beginning of one at its end; otherwise nothing.

    A delimiter of marks ("###END###") leaks anywhere, and where the text ends in at least two of its characters. One
    that begins with a word ("User:") leaks at the beginning of a line, or where the last line is its beginning: answers
    may hold the word. A delimiter that the instruction holds was asked for.
    """
    last = text.rpartition("\n")[2].strip()
    for delimiter in delimiters:
        bare = delimiter.strip()
        if not bare or bare in instruction:
            continue
        if delimiter in text or last == bare:
            return bare
        if bare[0].isalnum():
            if "\n" in text and len(last) > 1 and bare.startswith(last):
                return last
            continue
        if bare in text:
            return bare
        started_at = next((bare[:size] for size in range(len(bare) - 1, 1, -1) if text.endswith(bare[:size])), "")
        if started_at and started_at not in instruction:
            return started_at
    return ""


def marks_of(
    text: str, instruction: str, finish: Finish, delimiters: Sequence[str], scope: Sequence[ScopeRule]
) -> tuple[str, ...]:
    """Return the faults of a cleaned answer; nothing if it is whole, clean and in scope."""
    texts: list[str] = []
    if finish == "length":
        texts.append("token_limit")
    if not text:
        texts.append("empty")
    elif text.endswith(":"):
        texts.append("ends_with_colon")
    elif _OPEN_LIST.search(text):
        texts.append("open_list")
    elif len(text) < _LEAST_CHARACTERS and text.strip(" .!").casefold() not in _SHORT_ANSWERS:
        texts.append("short")
    if is_runaway(text):
        texts.append("runaway")
    if leak_in(text, instruction, delimiters):
        texts.append("delimiter")
    texts += [f"scope:{rule.name}" for rule in scope if breaks(rule, text, instruction)]
    return tuple(texts)


INCOMPLETE = ("token_limit", "empty", "ends_with_colon", "open_list", "short")
"""Marks of an answer that is not whole."""


def breaks(rule: ScopeRule, answer: str, instruction: str) -> bool:
    """Return whether an answer is one of the rule's and the instruction holds none of its cues."""
    bare = answer.strip().removesuffix(".").casefold()
    if bare not in {answer.casefold() for answer in rule.answers}:
        return False
    return not any(cue.casefold() in instruction.casefold() for cue in rule.unless)


REFUSING = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\bas an? (?:ai|artificial intelligence|(?:large )?language model)\b",
        r"\bi(?:['\u2019]m| am) (?:sorry|unable|not able)\b",
        r"\bi (?:cannot|can ?not|can['\u2019]t|won['\u2019]t)\b",
        r"\bi apologi[sz]e\b",
    )
)


def refuses(text: str) -> bool:
    """Return whether a text holds words of a refusal."""
    return any(pattern.search(text) for pattern in REFUSING)
