"""Which scores of inspect_ai say that an answer is right, and its plain scorers carried out again.

A scorer is carried out again from its options, the answer and the target, by rules written here from the library's
description: what they cannot decide with certainty is a claim, and never guessed.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from typing import Any

from training.rules.evaluation.lm_eval_scores import SCORER, exact_match

_PLAIN_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)")
_DROPPED = str.maketrans("", "", "$,£€*_")
_AROUND = "!?:;()[]{}'\"`"
MOST_TEXT = 20_000
"""Characters of an answer in which a pattern is looked for: other people's patterns may take exponential time."""


def is_right(value: str | bool | float | None) -> bool:
    """Return whether a score says that an answer is right: ``C``, true or 1."""
    return value == "C" if isinstance(value, str) else value is not None and float(value) == 1


def scored_again(scorer: str, options: Mapping[str, Any], answer: str, targets: Sequence[str]) -> bool | None:
    """Return whether an answer is right by one of the plain scorers; None where that is not certain here."""
    if scorer == SCORER:
        return exact_match(options, answer, targets)
    rule = _RULES.get(scorer.removeprefix("inspect_ai/"))
    return None if rule is None else rule(options, answer, targets)


def _includes(options: Mapping[str, Any], answer: str, targets: Sequence[str]) -> bool | None:
    if set(options) - {"ignore_case"}:
        return None
    folded = options.get("ignore_case", True)
    text = answer.casefold() if folded else answer
    return any((target.casefold() if folded else target) in text for target in targets)


def _match(options: Mapping[str, Any], answer: str, targets: Sequence[str]) -> bool | None:
    if set(options) - {"ignore_case", "numeric", "location"}:
        return None
    flags = [_matches(options, answer.strip(), target.strip()) for target in targets]
    return True if True in flags else None if None in flags else False


def _matches(options: Mapping[str, Any], text: str, due_text: str) -> bool | None:
    where = options.get("location", "end")
    if options.get("ignore_case", True):
        text, due_text = text.casefold(), due_text.casefold()
    if options.get("numeric", False):
        # Numbers in other scripts, fractions and the like are read by rules of the library's own.
        if not (text.isascii() and due_text.isascii()):
            return None
        due_text = due_text.translate(_DROPPED)
        return None if _number(due_text) is None else _same_number(where, text.translate(_DROPPED), due_text)
    text, due_text = _bare(text), _bare(due_text)
    match where:
        case "begin":
            return text.startswith(due_text)
        case "end":
            return text.endswith(due_text)
        case "any":
            return due_text in text
        case "exact":
            return text == due_text
        case _:
            return None


def _same_number(where: str, text: str, due_text: str) -> bool | None:
    words = text.split()
    numbers = [number for word in words if (number := _number(word)) is not None]
    # What only the library reads as a number: 1e5, 3/4, 5%.
    odd = any(any(letter.isdigit() for letter in word) and _number(word) is None for word in words)
    if odd or where == "exact":
        return None
    wanted = _number(due_text)
    if not numbers:
        return False
    if where == "any":
        return wanted in numbers
    return numbers[0 if where == "begin" else -1] == wanted


def _number(word: str) -> str | None:
    """Return a plain number to five digits; None for anything else."""
    bare = word.strip(_AROUND)
    if bare != word and bare.endswith("."):
        return None
    return f"{float(bare):.5g}" if _PLAIN_NUMBER.fullmatch(bare) else None


def _bare(text: str) -> str:
    """Return a text without white space and punctuation around it."""
    return text.strip(string.whitespace + string.punctuation)


def _pattern(options: Mapping[str, Any], answer: str, targets: Sequence[str]) -> bool | None:
    if set(options) - {"pattern", "ignore_case", "match_all"} or len(answer) > MOST_TEXT:
        return None
    folded, every = options.get("ignore_case", True), options.get("match_all", False)
    try:
        match = re.search(str(options.get("pattern")), answer, re.IGNORECASE if folded else 0)
    except re.error:
        return None
    if match is None:
        return False
    groups = [group for group in (match.groups() or (match.group(0),)) if group is not None]
    known = {target.lower() for target in targets} if folded else set(targets)
    named = [(group.lower() if folded else group) in known for group in groups]
    return bool(named) and (all(named) if every else any(named))


_RULES = {"includes": _includes, "match": _match, "pattern": _pattern}
