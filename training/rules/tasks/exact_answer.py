"""The task `exact_answer`: a short answer that is right or wrong, compared after the same reduction on both sides.

The constraint names the right answer, ``{"answer": "Paris"}``, and perhaps others, ``"answer_2": "the city of Paris"``.
Case, punctuation at words' ends, articles and white space are ignored (as for SQuAD: Rajpurkar et al. 2016,
arXiv:1606.05250, section 6.1). ``"find": "last_number"`` compares the last number of the answer instead, as values:
"so it is 1,200." is 1200 (the usual reading of GSM8K answers; Cobbe et al. 2021, arXiv:2110.14168).

Not covered: right answers that are not named, and right answers inside longer sentences.
"""

from __future__ import annotations

import re
import string
import unicodedata
from decimal import Decimal, InvalidOperation

from specs.stages.artifacts import Item
from training.rules.tasks.format_instructions import Judgement

_NUMBER = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?")


def reduced(text: str) -> str:
    """Return a text as it is compared."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    words = [word.strip(string.punctuation) for word in plain.split()]
    return " ".join(word for word in words if word and word not in ("a", "an", "the"))


def last_number(text: str) -> Decimal | None:
    """Return the last number of a text, without thousands commas, or None."""
    found = _NUMBER.findall(text)
    try:
        return Decimal(found[-1].replace(",", "")) if found else None
    except InvalidOperation:
        return None


def named_answers(item: Item) -> list[str]:
    """Return the answers that an item names as right."""
    return [str(value) for name, value in item.constraint.items() if re.fullmatch(r"answer(_\d+)?", name)]


def verify(item: Item, output: str) -> Judgement:
    """Say whether an answer is a named one; raises ValueError if none is named, or text where a number is due."""
    answers = named_answers(item)
    if not answers:
        raise ValueError(f"item '{item.id}' names no answer")
    if not output.strip():
        return Judgement(False, "is empty")
    if item.constraint.get("find") == "last_number":
        due = [last_number(answer) for answer in answers]
        if None in due:
            raise ValueError(f"item '{item.id}' names an answer that is no number")
        found = last_number(output)
        return Judgement(True) if found in due else Judgement(False, f"the last number is {found}, not {answers[0]}")
    if reduced(output) in {reduced(answer) for answer in answers}:
        return Judgement(True)
    return Judgement(False, f"is not {answers[0]!r}")
