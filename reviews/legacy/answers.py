"""Numbered questions of a request and the numbered answers to them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from reviews.legacy.layout import Page
from reviews.legacy.sections import Section

_ANSWERS = re.compile(
    r"(?i)\b(?:answers?|responses?|repl(?:y|ies))\b|\bquestions\W*$|\bquestions?\s+answered\W*$|^\W*q\s*&\s*a\W*$"
)
_YES_NO = re.compile(r"(?i)^\W*(?:yes|no)\b")
_QUESTIONS = re.compile(r"(?i)\bquestions?\b")
_ASKED = re.compile(r"^\W*(?P<question>[^?]{3,400}\?)[*_\"'\u201d)]*\s*(?:[-\u2013\u2014:>\u2192]+\s*)?(?P<answer>.*)$")
_TITLED = re.compile(r"(?i)^\W*(?:q(?:uestion)?|a(?:nswer)?)?\s*#?(?P<number>\d{1,2})[.:)]?\s*(?P<rest>.*)$")


class Answer(NamedTuple):
    """One answer; ``question`` is None when the review does not repeat it and no request was found."""

    number: int
    line: int
    question: str | None
    answer: str


def questions_in(page: Page, sections: Sequence[Section]) -> dict[int, str]:
    """Return the numbered questions that a text asks, in whatever part of it."""
    found: dict[int, str] = {}
    for section in sections:
        for item in section.items:
            if item.number is not None and (hit := _ASKED.match(item.text)):
                found.setdefault(item.number, hit["question"].strip(" *_"))
            elif item.number is not None and _QUESTIONS.search(section.title):
                found.setdefault(item.number, item.text)
    return found


def answers_in(page: Page, sections: Sequence[Section], asked: Mapping[int, str]) -> list[Answer]:
    """Return the answers of a review.

    Args:
        page: the review.
        sections: its sections.
        asked: the questions of the request it answers, by number; empty when they are not known.
    """
    found: dict[int, Answer] = {}
    for section in sections:
        numbered = [item for item in section.items if item.number is not None]
        plainly = len(numbered) > 1 and sum(_YES_NO.match(item.text) is not None for item in numbered) * 2 > len(
            numbered
        )
        answering = plainly or _ANSWERS.search(section.title) is not None
        titled = _TITLED.match(section.title) if section.level < 8 else None
        if (
            titled
            and section.zone == "review"
            and ("?" in titled["rest"] or titled.group().lower().lstrip("*# ").startswith("q"))
        ):
            words = " ".join(item.text for item in section.items)
            if words:
                number = int(titled["number"])
                found.setdefault(
                    number,
                    Answer(number, page.numbers[section.at], titled["rest"].strip(" *_") or asked.get(number), words),
                )
            continue
        for item in section.items:
            if item.number is None:
                continue
            line = page.numbers[item.at]
            hit = _ASKED.match(item.text)
            if hit and hit["answer"].strip():
                question, words = hit["question"].strip(" *_"), hit["answer"].strip(" *_")
                found.setdefault(item.number, Answer(item.number, line, question, words))
            elif hit is None and section.zone == "review" and answering:
                found.setdefault(item.number, Answer(item.number, line, asked.get(item.number), item.text))
    return [found[number] for number in sorted(found)]
