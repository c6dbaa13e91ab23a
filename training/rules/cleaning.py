"""An answer as it was written, made into one that can be kept: steps in a declared order, and marks of what is wrong.

Each step cuts; none adds or rewrites. The measurer applies the same steps to the raw text again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from specs.stages.answer_end import Finish
from specs.stages.generation.parameters import ScopeRule, Step
from specs.stages.sampling import END_MARK

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


class Cleaned(NamedTuple):
    """A text after cleaning, and the steps that changed it."""

    text: str
    by: tuple[str, ...]


def clean(raw: str, steps: Sequence[Step]) -> Cleaned:
    """Apply the steps in order."""
    text, by = raw, list[str]()
    for step in steps:
        after = _STEPS[step](text)
        if after != text:
            by.append(step)
        text = after
    return Cleaned(text, tuple(by))


def _end_mark(text: str) -> str:
    return text.partition(END_MARK)[0]


def _first_paragraph(text: str) -> str:
    """Return what stands before the first empty line; empty lines before any word do not count."""
    begun = len(text) - len(text.lstrip())
    end = text.find("\n\n", begun)
    return text if end < 0 else text[:end]


def _role_line(text: str) -> str:
    found = _ROLE_LINE.search(text)
    return text if found is None else text[: found.start()]


def _new_question(text: str) -> str:
    found = _NEW_QUESTION.search(text)
    return text if found is None else text[: found.start()]


_STEPS: dict[Step, Callable[[str], str]] = {
    "end_mark": _end_mark,
    "first_paragraph": _first_paragraph,
    "role_line": _role_line,
    "new_question": _new_question,
    "strip": str.strip,
}


def is_runaway(text: str) -> bool:
    """Say whether a cleaned answer went on past its end (``runaway_rate_v2``): another turn, or over 500 characters."""
    marks = (*_RUNAWAY_TURNS, *_RUNAWAY_TOKENS)
    return any(mark in text for mark in marks) or len(text) > _RUNAWAY_CHARACTERS


def is_runaway_v1(text: str) -> bool:
    """Say what the older rule says: over 200 characters or more than three full stops. Known for false positives."""
    return len(text) > 200 or text.count(".") > 3


def leak_in(text: str, instruction: str, delimiters: Sequence[str]) -> str:
    """Return the delimiter in a cleaned text, or the beginning of one at its end; nothing where there is none.

    A delimiter of marks ("###END###") leaks wherever it stands, and where the text ends in two of its characters or
    more. One that begins with a word ("User:") leaks at the beginning of a line, or where the last line is its
    beginning: answers may hold the word. A delimiter that stands in the instruction was asked for.
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
        begun = next((bare[:size] for size in range(len(bare) - 1, 1, -1) if text.endswith(bare[:size])), "")
        if begun and begun not in instruction:
            return begun
    return ""


def marks_of(
    text: str, instruction: str, finish: Finish, delimiters: Sequence[str], scope: Sequence[ScopeRule]
) -> tuple[str, ...]:
    """Return what speaks against keeping a cleaned answer; nothing for one that is whole, clean and in scope."""
    found: list[str] = []
    if finish == "length":
        found.append("token_limit")
    if not text:
        found.append("empty")
    elif text.endswith(":"):
        found.append("ends_with_colon")
    elif _OPEN_LIST.search(text):
        found.append("open_list")
    elif len(text) < _LEAST_CHARACTERS and text.strip(" .!").casefold() not in _SHORT_ANSWERS:
        found.append("short")
    if is_runaway(text):
        found.append("runaway")
    if leak_in(text, instruction, delimiters):
        found.append("delimiter")
    found += [f"scope:{rule.name}" for rule in scope if breaks(rule, text, instruction)]
    return tuple(found)


INCOMPLETE = ("token_limit", "empty", "ends_with_colon", "open_list", "short")
"""Marks of an answer that is not whole."""


def breaks(rule: ScopeRule, answer: str, instruction: str) -> bool:
    """Say whether an answer is one of the rule's and the instruction holds none of its cues."""
    bare = answer.strip().removesuffix(".").casefold()
    if bare not in {one.casefold() for one in rule.answers}:
        return False
    return not any(cue.casefold() in instruction.casefold() for cue in rule.unless)
