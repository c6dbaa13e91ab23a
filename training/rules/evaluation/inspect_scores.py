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
    """Say whether a score says that an answer is right: ``C``, true or 1."""
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
    said = answer.casefold() if folded else answer
    return any((one.casefold() if folded else one) in said for one in targets)


def _match(options: Mapping[str, Any], answer: str, targets: Sequence[str]) -> bool | None:
    if set(options) - {"ignore_case", "numeric", "location"}:
        return None
    found = [_matches(options, answer.strip(), one.strip()) for one in targets]
    return True if True in found else None if None in found else False


def _matches(options: Mapping[str, Any], said: str, due: str) -> bool | None:
    where = options.get("location", "end")
    if options.get("ignore_case", True):
        said, due = said.casefold(), due.casefold()
    if options.get("numeric", False):
        # Numbers in other scripts, fractions and the like are read by rules of the library's own.
        if not (said.isascii() and due.isascii()):
            return None
        due = due.translate(_DROPPED)
        return None if _number(due) is None else _same_number(where, said.translate(_DROPPED), due)
    said, due = _bare(said), _bare(due)
    match where:
        case "begin":
            return said.startswith(due)
        case "end":
            return said.endswith(due)
        case "any":
            return due in said
        case "exact":
            return said == due
        case _:
            return None


def _same_number(where: str, said: str, due: str) -> bool | None:
    words = said.split()
    numbers = [found for word in words if (found := _number(word)) is not None]
    # What only the library reads as a number: 1e5, 3/4, 5%.
    odd = any(any(letter.isdigit() for letter in word) and _number(word) is None for word in words)
    if odd or where == "exact":
        return None
    wanted = _number(due)
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
        found = re.search(str(options.get("pattern")), answer, re.IGNORECASE if folded else 0)
    except re.error:
        return None
    if found is None:
        return False
    groups = [one for one in (found.groups() or (found.group(0),)) if one is not None]
    known = {one.lower() for one in targets} if folded else set(targets)
    named = [(one.lower() if folded else one) in known for one in groups]
    return bool(named) and (all(named) if every else any(named))


_RULES = {"includes": _includes, "match": _match, "pattern": _pattern}
