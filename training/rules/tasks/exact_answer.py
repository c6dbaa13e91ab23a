"""The task `exact_answer`: a short answer that is right or wrong, compared after the same reduction on both sides.

The constraint names the right answer, ``{"answer": "Paris"}``, and perhaps others, ``"answer_2": "the city of Paris"``.
Case, white space, articles, quotation marks and the marks that end a sentence are ignored, after SQuAD (Rajpurkar et
al. 2016, arXiv:1606.05250, section 6.1). Signs, symbols, superscripts and brackets are not: ``-5``, ``50%``, ``10⁵``
and ``__init__`` are other answers than ``5``, ``50``, ``105`` and ``init``. Nothing is reduced to nothing.

``"find": "last_number"`` compares the last number of the answer instead, as values: "so it is 1,200." is 1200 (the
usual reading of GSM8K answers; Cobbe et al. 2021, arXiv:2110.14168).

Not covered: right answers that are not named, and right answers inside longer sentences.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

from specs.stages.base.artifacts import Item
from training.rules.tasks.format_instructions import Judgement

_QUOTES = "\"'`‘’‚‛“”„‟«»‹›"
_BEFORE, _AFTER = f"{_QUOTES}¿¡", f"{_QUOTES}.,;:!?…。、，！？"
"""What may stand before and after a word without belonging to it. A point before a digit is its place."""
_EMPHASIS = re.compile(r"(?<!\w)(\*{1,3})(?=\S)([^*]+)(?<=\S)\1(?!\w)")
_DASHES = str.maketrans({"−": "-", "‐": "-", "‑": "-", "–": "-", "﹣": "-", "－": "-"})
_SCRIPTS = ("<super>", "<sub>", "<fraction>")
"""Decompositions that would move a digit to another place: ``10⁵`` is not 105."""
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_NUMBER = re.compile(
    r"(?:(?<![\w.)\]])(?P<sign>[-+]))?"
    r"(?P<value>(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|(?<![\w.])\.\d+)"
    r"(?:(?<![./\d]\d)(?:/(?P<divisor>\d{1,30})(?![/\d.]))|[eE](?P<exponent>[-+]?\d{1,3})(?!\w)"
    r"|\^(?P<power>-?\d{1,3})|(?P<raised>[⁻⁺]?[⁰¹²³⁴-⁹]{1,3}))?"
)
_MOST_DIGITS = 1000
_RATIONALE_WORDS = 5
"""Words before a final answer, from which on they are taken for its reasons."""
_FINAL = re.compile(r"####|\\boxed\s*\{|\banswer(?:\s+is)?\b\s*[:=]?|\b(?:therefore|thus|so)\b|=", re.I)
_FINAL_LENGTH = 60
"""Characters of a final answer, at most."""


def reduce_answer(text: str) -> str:
    """Return a text as it is compared; never empty unless the text is."""
    written = _EMPHASIS.sub(r"\2", _normalise_characters(text)).split()
    words = [_bare(word) for word in written]
    texts = [word for place, word in enumerate(words) if not _is_article(words, written, place)]
    return " ".join(texts).casefold()


def _normalise_characters(text: str) -> str:
    """Return a text in one spelling of each character, with superscripts, subscripts and fractions as they are."""
    parts = (
        character
        if unicodedata.decomposition(character).startswith(_SCRIPTS)
        else unicodedata.normalize("NFKC", character)
        for character in unicodedata.normalize("NFC", text)
    )
    return unicodedata.normalize("NFC", "".join(parts)).translate(_DASHES)


def _bare(word: str) -> str:
    """Return a word without the marks around it; the word itself if it consists of marks."""
    bare = word.lstrip(_BEFORE).rstrip(_AFTER)
    if bare.startswith("(") and bare.endswith(")") and bare[1:-1].isalpha():
        bare = bare[1:-1]
    elif bare.endswith(")") and bare[:-1].isalnum():
        bare = bare[:-1]
    return bare or word


def _is_article(words: list[str], written: list[str], place: int) -> bool:
    """Return whether a word is an article before another word: "Vitamin A", "Plan A costs" and "A B" hold none."""
    word = words[place]
    if place + 1 == len(words) or written[place] != word:
        return False
    if word.casefold() == "the":
        return place == 0 or word != "THE"
    return len(words[place + 1]) > 1 and (word in ("a", "an") or place == 0 and word in ("A", "An", "AN"))


def normalise_spelling(text: str, *, as_code: bool = False) -> str:
    """Return a text without what a writer may vary, more strictly than :func:`reduce_answer`.

    The case of a word inside ("myVar"), a mark after a number or symbol ("5!") and an article inside count;
    with ``as_code`` every case does.
    """
    plain = " ".join(_EMPHASIS.sub(r"\2", _normalise_characters(text)).split())
    if not any(character.isalpha() for character in plain):
        return plain.rstrip(".")
    words = [_bare(word) for word in plain.split()]
    if _is_article(words, plain.split(), 0):
        words = words[1:]
    return " ".join(word.casefold() if not as_code and _is_plain(word) else word for word in words)


def _is_plain(word: str) -> bool:
    return word.islower() or word.istitle() or word.isupper()


def last_number(text: str) -> Fraction | None:
    """Return the last number of a text as a value, or None.

    Thousands commas, signs, decimal points, fractions (1/2), exponents (5e3) and powers (10^5, 10⁵) are read.
    """
    matches = list(_NUMBER.finditer(_normalise_characters(text)))
    if not matches:
        return None
    last = matches[-1]
    if len(last["value"]) > _MOST_DIGITS:
        return None
    value = Fraction(last["value"].replace(",", ""))
    power = int(last["power"] or (last["raised"] or "1").translate(_SUPERSCRIPTS))
    if last["exponent"]:
        value *= Fraction(10) ** int(last["exponent"])
    if last["divisor"]:
        if not int(last["divisor"]):
            return None
        value /= int(last["divisor"])
    if abs(power) * len(last["value"]) > _MOST_DIGITS or not value and power < 0:
        return None
    return -(value**power) if last["sign"] == "-" else value**power


def named_answers(item: Item) -> list[str]:
    """Return the answers that an item names as right."""
    return [str(value) for name, value in item.constraint.items() if re.fullmatch(r"answer(_\d+)?", name)]


def compared_forms(item: Item) -> dict[str, str]:
    """Return the answers that an item names, each by the form in which it is compared; none of what is not a number."""
    answers = named_answers(item)
    if item.constraint.get("find") != "last_number":
        return {reduce_answer(answer): answer for answer in answers}
    return {str(value): answer for answer in answers if (value := last_number(answer)) is not None}


def final_answer(text: str) -> str | None:
    """Return the short answer at the end of a rationale, as in GSM8K ("… #### 72"); None if the text is none."""
    stripped = text.strip().rstrip(".}$ \n")
    markers = list(_FINAL.finditer(stripped))
    if not markers:
        return None
    marker = markers[-1]
    final, reasons = stripped[marker.end() :].strip(" *$:"), stripped[: marker.start()].split()
    if not final or not reasons or "\n" in final or len(final) > _FINAL_LENGTH:
        return None
    is_marked = marker[0].startswith(("####", "\\boxed"))
    return final if is_marked or len(reasons) >= _RATIONALE_WORDS and last_number(final) is not None else None


def verify(item: Item, output: str) -> Judgement:
    """Judge whether an answer is a named one; raises ValueError if none is named, or text where a number is due."""
    answers = named_answers(item)
    if not answers:
        raise ValueError(f"item '{item.id}' names no answer")
    if not output.strip():
        return Judgement(False, "is empty")
    if item.constraint.get("find") == "last_number":
        values = [last_number(answer) for answer in answers]
        if None in values:
            raise ValueError(f"item '{item.id}' names an answer that is not a number")
        number = last_number(output)
        return (
            Judgement(True) if number in values else Judgement(False, f"the last number is {number}, not {answers[0]}")
        )
    if reduce_answer(output) in {reduce_answer(answer) for answer in answers}:
        return Judgement(True)
    return Judgement(False, f"is not {answers[0]!r}")


def contains_answer(item: Item, output: str) -> bool:
    """Return whether an answer holds a named one as whole words, whatever else it says."""
    words = f" {' '.join(_bare(word) for word in reduce_answer(output).split())} "
    return any(f" {form} " in words for answer in named_answers(item) if (form := reduce_answer(answer)))
