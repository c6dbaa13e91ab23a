"""The verdict of an older free-text review, from labels ("Verdict: GO") and plain statements ("NO-GO."). English only.

A verdict counts only where a known form states it: behind a label, alone in a sentence, or in the first person. A word
in quotes, in a question, behind a negation, in a plan or in other people's mouths decides nothing. Whatever is left
open, contradicted or taken back is ``undetermined``: no record opens a gate, and a person can read the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from reviews.legacy import phrases
from reviews.legacy.own_words import Line
from reviews.legacy.phrases import Mark

Form = Literal["label", "alone"]


class Statement(NamedTuple):
    """What one line states: ``scope`` names the option or question it speaks of, empty for the whole."""

    mark: Mark
    line: int
    form: Form
    text: str
    scope: str = ""
    denies: bool = False
    """An approval is refused without saying what instead ("Approval: no")."""


_LEAD, _BOLD = 30, 7
_UNFINISHED = re.compile(r"(?i)(?:-|,|\b(?:not|no|never|the|a|an|is|be|to|of|with|and|or|that|line|reads|says))$")
_BEGINS = re.compile(r"[^\w\u00a4]*[\w /-]{1,40}[:=|]\s")


class Paragraph(NamedTuple):
    """Lines that belong together; ``runs_on`` when what follows begins in the middle of a sentence."""

    line: int
    text: str
    full: str
    level: int
    item: bool
    runs_on: bool


class Reading(NamedTuple):
    """What the statements of a text amount to: a verdict with its line, or why there is none."""

    verdict: Literal["approve", "approve_with_conditions", "revise", "reject"] | None
    line: int | None
    confidence: Literal["high", "medium", "none"]
    why: str
    said: tuple[Statement, ...]


def read_verdict(lines: Sequence[Line]) -> Reading:
    """Return the verdict that all statements of a reviewer agree on, if they do and nothing takes it back."""
    paragraphs = _paragraphs(lines)
    said = tuple(_statements(paragraphs))
    whole = [one for one in said if not one.scope]
    marks: set[Mark] = {one.mark for one in whole}

    def undetermined(why: str, line: int | None = None) -> Reading:
        return Reading(None, line or next((one.line for one in [*whole, *said]), None), "none", why, said)

    if not whole:
        return undetermined("verdicts on parts only" if said else "no verdict in a known form")
    if "unclear" in marks:
        return undetermined("words that may mean either", next(one.line for one in whole if one.mark == "unclear"))
    if marks == {"reject", "revise"} and all(one.denies for one in whole if one.mark == "reject"):
        marks = {"revise"}
    marks -= {"approve"} if marks == {"approve", "approve_with_conditions"} else set()
    mark = marks.pop()
    if marks or mark == "unclear":
        return undetermined("statements that contradict each other")
    best = min((one for one in whole if one.mark == mark), key=lambda one: (one.form != "label", one.line))
    rest = [(one, _without(one, whole)) for one in paragraphs]
    doubts = [one.line for one, text in rest if _doubted(text, mark, titled=0 < one.level < _BOLD)]
    doubts += [
        one.number
        for one in lines
        if not one.text and re.search(phrases.UNDONE.pattern + r"|^\W*conditions?:", one.full)
    ]
    if doubts:
        return undetermined("something else in the file speaks against it", doubts[0])
    if mark == "approve" and any(phrases.BINDS.search(text) for _, text in rest):
        mark = "approve_with_conditions"
    return Reading(mark, best.line, "high" if best.form == "label" else "medium", "", said)


def _without(paragraph: Paragraph, stated: Sequence[Statement]) -> str:
    """Return what a paragraph says besides its statements, without choices and phrases that deny a fault."""
    text = paragraph.full
    for one in stated:
        if one.line == paragraph.line:
            text = " " if one.text == paragraph.text else text.replace(one.text, " ", 1)
    if paragraph.item:
        # "2. No." answers a question of the request.
        text = re.sub(r"(?i)^\W*\d+[.)]\s*(?:yes|no)\b", "", text)
    if (box := phrases.OPEN_BOX.search(text)) and _mark(box["text"], "strong"):
        text = text[: box.start()]
    found = phrases.LABEL.match(text)
    return "" if found and not found["value"] else phrases.HARMLESS.sub(" ", phrases.CHOICE.sub(" ", text))


def _doubted(text: str, mark: Mark, *, titled: bool) -> bool:
    """Say whether words take a verdict back, or speak of another one beside an approval."""
    if phrases.TAKEN_BACK.search(text):
        return True
    if mark not in ("approve", "approve_with_conditions"):
        return False
    foreign = any(sign in text for sign in phrases.BAD) or re.search(r"[^\W\d_a-zA-Z]{2}", text)
    # A title may name a verdict ("Decision and reasons"); only a shouted one states it.
    stated = re.search(r"\b[A-Z]{2,}\b", text) if titled else True
    if foreign or (not titled and phrases.FAULTS.search(text)) or (stated and phrases.STATED.search(text)):
        return True
    bound = phrases.BINDS.search(text)
    return not bound and bool(
        (mark == "approve" and phrases.LIMITS.search(text))
        or (phrases.ACTS.search(text) and phrases.TURNS.search(text))
    )


def _paragraphs(lines: Sequence[Line]) -> list[Paragraph]:
    """Join lines that are one sentence or one value; headings, list items and labelled lines begin anew."""
    found: list[Paragraph] = []
    open_line = False
    for line in lines:
        if not line.text:
            open_line = False
            continue
        before = found[-1] if found else None
        starts = phrases.LABEL.match(line.text) or _BEGINS.match(line.text)
        joined = before and open_line and not line.level and not line.item
        if before and joined and (not starts or _UNFINISHED.search(before.text)):
            found[-1] = before._replace(text=f"{before.text} {line.text}", full=f"{before.full} {line.full}")
            continue
        if before and line.text[:1].islower() and not starts and not line.item:
            found[-1] = before._replace(runs_on=True)
        found.append(Paragraph(line.number, line.text, line.full, line.level, line.item, False))
        open_line = not line.level
    return found


def _statements(paragraphs: Sequence[Paragraph]) -> Iterator[Statement]:
    """Yield what the paragraphs state; what may be somebody else's words or two things at once is ``unclear``."""
    label, scope, depth, above = "", "", 0, ""
    for one in paragraphs:
        if one.level and not (label and one.level == _BOLD):
            if not scope or one.level <= depth:
                scope, depth = (one.text, one.level) if phrases.PART_TITLE.match(one.text) else ("", 0)
            above = above if one.level == _BOLD else ""
        found = phrases.LABEL.match(one.text)
        for stated in _of_paragraph(one, label, found, scope):
            # Words that another line announces, or that stand within its sentence, may be somebody else's.
            led = one.runs_on or (above.endswith((":", ",")) or (len(above) > _LEAD and above[-1].islower()))
            yield stated._replace(mark="unclear") if led and not label else stated
        label = (found["strong"] and "strong" or "weak") if found and not (found["value"] or "").strip() else ""
        above = "" if label or one.level else one.text


def _of_paragraph(one: Paragraph, label: str, found: re.Match[str] | None, scope: str) -> Iterator[Statement]:
    """Yield what one paragraph states; ``label`` is the kind of the label that stands alone above it."""
    part = phrases.PART.match(one.text)
    if part and (mark := _mark(part["value"], "weak")):
        yield Statement(mark, one.line, "alone", one.text, scope or part["scope"].strip())
        return
    hit = phrases.CHECKED.match(one.text) or found
    at = hit.start("value") if hit else 0 if label else len(one.text)
    value = phrases.SENTENCE_END.split(one.text[at:].strip())[0] if at >= 0 else ""
    stated = one.text[: one.text.index(value, max(at, 0)) + len(value)]
    if re.fullmatch(r"\W*\u00a4\W*", value) and (quoted := re.search(r"[`\"']([^`\"']{2,40})[`\"']$", one.full)):
        value, stated = quoted[1], one.text
    if value:
        strong = hit["strong"] is not None if hit and hit is found else bool(hit) or label == "strong"
        mark = _mark(value, "strong" if strong else "weak", stated[: max(at, 0)])
        if mark or (strong and hit is found and not one.text.startswith("|")):
            denies = re.match(r"(?i)\W*(?:no|not|denied|withheld)\b(?![\s_-]?go)", value) is not None
            yield Statement(mark or "unclear", one.line, "label", stated, scope, denies)
        return
    for sentence in phrases.SENTENCE_END.split("" if found or one.item else one.text):
        if mark := _alone(sentence):
            yield Statement(mark, one.line, "alone", sentence, scope)


def _alone(sentence: str) -> Mark | None:
    """Return what a sentence without a label states."""
    bare = re.sub(r"^[^\w\"'(\[<{?\u00a4]*", "", sentence)
    bare = re.sub(r"(?i)^(?:after|having|overall|in\s+(?:short|summary|conclusion))\b[^,.;:]{0,60},\s+", "", bare)
    for mark, pattern in phrases.SENTENCES:
        if (hit := pattern.match(bare)) and "?" not in sentence:
            after = phrases.HARMLESS.sub(" ", bare[hit.end() :])
            turned = phrases.TURNS.search(after) if mark == "approve" else phrases.NOT_MEANT.match(after)
            return "unclear" if turned else mark
    for _, pattern in phrases.MARKS:
        if hit := pattern.match(bare):
            said = hit.group()
            whole = re.fullmatch(r"[\s.!\u2705]*", bare[hit.end() :]) and said.lower() not in ("go", "accepted")
            known = phrases.UNMISTAKABLE.fullmatch(said) or whole
            return _mark(bare, "alone", sentence[: len(sentence) - len(bare)]) if known else None
    return None


def _mark(value: str, place: Literal["strong", "weak", "alone"], before: str = "") -> Mark | None:
    """Return what a value means with all that stands in it; None where it states no verdict."""
    bare = re.sub(
        r"^(?:[^\w\"'(\[<{?\u00a4+=~!\u00ac]|\((?=\w))*(?:(?:it's|it\s+is|this\s+is)\s+)?(?:an?\s+)?", "", value
    )
    if "?" in value or not re.search(r"\w", value):
        return "unclear" if place != "alone" else None
    for mark, pattern in (*phrases.MARKS, *(phrases.YES_NO if place == "strong" else ())):
        if hit := pattern.match(bare):
            return _with_rest(mark, hit.group(), bare[hit.end() :], place, before + value)
    return None


def _with_rest(mark: Mark, said: str, rest: str, place: str, whole: str) -> Mark | None:
    """Return what a verdict phrase means with the rest of its paragraph."""
    if mark == "unclear":
        return mark if place != "alone" or said.isupper() else None
    if rest.startswith("()"):
        return None
    if mark in ("reject", "revise"):
        if phrases.NOT_MEANT.match(rest) or phrases.OTHER_END.match(rest):
            return "unclear"
        return None if place == "alone" and not phrases.REFUSAL_ENDS.match(rest) else mark
    bare = phrases.HARMLESS.sub(" ", rest)
    if any(sign in whole for sign in phrases.BAD) or (
        mark == "approve" and any(sign in whole for sign in phrases.CAUTION)
    ):
        return "unclear"
    if re.match(r"\s*[=+~\u00ac<>]", bare):
        return "unclear"
    if (aside := re.match(r"\s*\(\w+(?:\W+\w+)?\W*\)", bare)) and not phrases.BINDS.search(aside.group()):
        return "unclear"
    if mark == "approve" and (hit := phrases.BUT.match(bare)):
        # Who says "looks good if you like leaks" is not to be taken at their word.
        casual = (place == "alone" and re.match(r"(?i)lgtm|looks", said)) or not re.search(r"\w", bare[hit.end() :])
        casual = casual and not hit.group().lower().endswith(("now", "only"))
        doubtful = casual or phrases.TURNS.search(bare[hit.end() :]) or phrases.FAULTS.search(bare[hit.end() :])
        return "unclear" if doubtful else "approve_with_conditions"
    if re.search(r"[\w\u00a4]", bare) is None:
        return "unclear" if phrases.TURNS.search(bare) else mark
    listed = re.match(r"\s*:|\s+(?:to|on|in|for|that|listed|below)\b", bare) or (
        bare.startswith(",") and (phrases.BINDS.search(bare) or re.search(r"(?i)\b(?:one|two|each|\d+)\b", bare))
    )
    listed = mark == "approve_with_conditions" and listed
    if not listed and not phrases.REASON.match(bare):
        return "unclear" if place != "alone" or mark == "approve_with_conditions" else None
    if any(pattern.search(bare) for pattern in (phrases.TURNS, phrases.STATED, phrases.TAKEN_BACK)):
        return "unclear"
    return "approve_with_conditions" if mark == "approve_with_conditions" or phrases.BINDS.search(bare) else "approve"
