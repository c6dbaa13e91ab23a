"""Read what a free-text review decided: error, cut off, a verdict, or not to be told. Pure functions, English only.

The default is "undetermined". A verdict is read only where every verdict word of the review agrees; words of the
request, of the judged agent, in quotes and in code do not count. It is reading, not understanding: irony, a verdict
spread over several sentences and other languages are not seen, which is one reason why no record opens a gate.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Literal, NamedTuple

from reviews.legacy.faults import cut_off, failed_call
from reviews.legacy.masks import mask
from reviews.legacy.turns import Mark
from reviews.legacy.words import read_sentence
from reviews.legacy.zones import SPEAKER, Zone, heading, zones_of

Status = Literal["verdict", "undetermined", "transport_error", "incomplete"]
LegacyVerdict = Literal["approve", "approve_with_conditions", "revise", "reject"]
Confidence = Literal["high", "medium", "low", "none"]
LONGEST_LINE = 4000

_MOJIBAKE = (
    ("\u00e2\u0153\u2026", "\u2705"),
    ("\u00e2\u0152", "\u274c"),
    ("\u00e2\u0161 \u00ef\u00b8", "\u26a0"),
    ("\u00e2\u0161\u00a0", "\u26a0"),
    ("\u00e2\u20ac\u2122", "'"),
    ("\u00e2\u20ac\u0153", "\u201c"),
    ("\u00e2\u20ac\u201d", "\u2014"),
)
"""UTF-8 that was read as Windows-1252 and saved again, after control characters were taken out."""
MOST_MARKS = 400
_LABEL = re.compile(
    r"(?i)^[\s|]*(?:[-*+\u2022]\s+|\d+[.)]\s+)?(?:#{1,6}\s*)?(?:\d+[.)]\s+)?[^\w\s#|(\[]*\s*"
    r"(?:(?:final|overall|gate|my|reviewer|review)\s+)*"
    r"(?:(?P<strong>decision|verdict|approval|approved|approve|outcome|go\s*/\s*no-?go|sign-?off)"
    r"|(?P<weak>recommendation|conclusion|result|status|summary|assessment|bottom\s+line|overall))"
    r"\s*(?:[:=|]|\s[-\u2013\u2014]+\s|->|\u2192)\s*(?P<value>.*)$"
)
_LABEL_ALONE = re.compile(
    r"(?i)^\W*(?:\d+[.)]\s+)?(?:(?:final|overall|gate|my|reviewer|review)\s+)*"
    r"(?:(?P<strong>decision|verdict|approval|outcome|go\s*/\s*no-?go|sign-?off)"
    r"|(?P<weak>recommendation|conclusion|result|status|assessment))(?:\s+(?P<value>\S.{0,40}))?\W*$"
)
_YES_NO = re.compile(
    r"(?i)^[\s\W]*(?:(?P<yes>yes|true|y|pass(?:ed)?)|(?P<no>no|false|n|fail(?:ed)?|hold|blocked|withheld|denied))(?=\s*(?:$|[.!,;:(\u2013\u2014-]))"
)
_CHECKED = re.compile(r"^\s*(?:[-*+]\s+)?\[[xX\u2713\u2714]\]\s*(?P<value>.+)$")
_OPTION_LINE = re.compile(
    r"(?i)^\W*(?:\d+[.)]\s*)?(?:option|variant|plan|alternative|approach|choice)\s+\w+\b\W*[:|\u2013\u2014(-]"
)
_ITEM = re.compile(r"^\s*(?:[-*+\u2022]\s|\d+[.)]\s|\|)")
_SENTENCE = re.compile(r"[.!?](?=\s|$)|\n\n")
_NEAR = 16
"""A verdict word this near to its label belongs to it: "Decision: we cannot approve"."""
_GOOD, _BAD = "\u2705\U0001f7e2\U0001f44d", "\u274c\U0001f534\u26d4\U0001f44e"


_MEANS: dict[LegacyVerdict, tuple[Mark, ...]] = {
    "approve": ("approve",),
    "approve_with_conditions": ("conditions",),
    "revise": ("revise",),
    "reject": ("reject", "denied"),
}


class Reading(NamedTuple):
    """What was read, and the line that decided it."""

    status: Status
    verdict: LegacyVerdict | None = None
    confidence: Confidence = "none"
    line: int | None = None
    text: str = ""


class _Block(NamedTuple):
    """Lines that belong together: a paragraph, an item, the value of a label."""

    label: Literal["strong", "weak", "option", ""]
    lines: list[tuple[int, str]]


class Seen(NamedTuple):
    """A verdict word in its place."""

    mark: Mark
    line: int
    confidence: Confidence
    partial: bool
    """It speaks of one option only."""


def read_text(text: str) -> Reading:
    """Read one review from text that was made plain already."""
    for wrong, right in _MOJIBAKE:
        text = text.replace(wrong, right)
    as_given = text.split("\n")
    lines = [_tidy(line) for line in as_given]
    zoned = zones_of(lines)
    told = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not told:
        return Reading("transport_error", text="empty")
    own = [(number, line) for number, line in told if zoned.zones[number - 1] == "review"]
    if error := failed_call(own):
        return Reading("transport_error", line=error[0], text=error[1].strip())
    if cut := cut_off(told, own, open_fence=zoned.open_fence):
        return Reading("incomplete", line=cut[0], text=cut[1].strip())
    if long := next((number for number, line in enumerate(as_given, 1) if len(line) > LONGEST_LINE), None):
        return Reading("undetermined", line=long, text="a line that is too long to be read")
    marks = (one for block in _blocks(lines, zoned.zones) for one in _read_block(block))
    seen = list(islice(marks, MOST_MARKS + 1))
    if len(seen) > MOST_MARKS:
        return Reading("undetermined", text="too many verdict words")
    reading = _settle(seen)
    return reading._replace(text=as_given[reading.line - 1].strip()) if reading.line else reading


def _tidy(line: str) -> str:
    """Return a line with its indentation and single spaces; one that is too long to be read is left out."""
    if len(line) > LONGEST_LINE:
        return ""
    text = line.lstrip()
    return " " * min(len(line) - len(text), 8) + re.sub(r"\s+", " ", text).rstrip()


def _settle(seen: Sequence[Seen]) -> Reading:
    """Return the verdict all words agree on, if they do."""
    marks = {one.mark for one in seen}
    positive, negative = marks & {"approve", "conditions"}, marks & {"revise", "reject", "denied"}
    whole = [one for one in seen if not one.partial and one.mark != "unclear"]
    if not whole or "unclear" in marks or (positive and negative) or {"revise", "reject"} <= marks:
        first = next(iter(whole or seen), None)
        return Reading("undetermined", line=first.line if first else None)
    verdict: LegacyVerdict = "reject"
    if positive:
        verdict = "approve_with_conditions" if "conditions" in positive else "approve"
    elif "revise" in negative:
        verdict = "revise"
    deciding = [one for one in whole if one.mark in _MEANS[verdict]]
    if not deciding:
        return Reading("undetermined", line=whole[0].line)
    best = min(deciding, key=lambda one: (("high", "medium", "low").index(one.confidence), one.line))
    return Reading("verdict", verdict, best.confidence, best.line)


def _blocks(lines: Sequence[str], zones: Sequence[Zone]) -> Iterator[_Block]:
    """Cut the reviewer's words into blocks; a sentence that runs over a line end stays whole."""
    block: _Block | None = None
    pending: Literal["strong", "weak", ""] = ""
    for number, (line, zone) in enumerate(zip(lines, zones, strict=True), 1):
        if zone != "review" or not line.strip():
            if block:
                yield block
            block = None
            continue
        text, label, value, starts = _shape(line)
        if starts or block is None:
            if block:
                yield block
            block = None
            if label in ("strong", "weak") and not value.strip():
                pending = label
                continue
            block = _Block(label or pending, [(number, value if label in ("strong", "weak") else text)])
            pending = ""
        else:
            block.lines.append((number, text))
    if block:
        yield block


def _shape(line: str) -> tuple[str, Literal["strong", "weak", "option", ""], str, bool]:
    """Return a line's text without emphasis, its label, the label's value, and whether it begins a block."""
    bare = re.sub(r"(?<=[A-Za-z])_(?=[A-Za-z])", " ", re.sub(r"\*+|(?<!\w)_+|_+(?!\w)", "", line))
    bare = unicodedata.normalize("NFKC", bare).replace("\u2019", "'")
    bare = re.sub(r"(?i)\b(not|non|un|dis)-(?=(?:approv|accept))", r"not ", bare)
    head = heading(line)
    if (spoken := SPEAKER.match(bare)) and spoken["review"]:
        bare = spoken["rest"]
        head = None
        if not bare.strip():
            return bare, "", "", True
    checked = _CHECKED.match(bare)
    if checked:
        return bare, "strong", checked["value"], True
    if _OPTION_LINE.match(bare):
        return bare, "option", bare, True
    found = _LABEL.match(bare) or (
        _LABEL_ALONE.match(re.sub(r"[*#=]+", "", bare)) if head or bare.rstrip().endswith(":") else None
    )
    if found:
        value = (found["value"] or "").strip(" |")
        if re.fullmatch(r"`[^`]+`\W*", value):
            value = value.replace("`", "")
        return bare, "strong" if found["strong"] else "weak", value, True
    starts = head is not None or _ITEM.match(line) is not None or spoken is not None
    return bare, "", "", starts


def _read_block(block: _Block) -> Iterator[Seen]:
    full = " ".join(line for _, line in block.lines)
    masked = mask(full)
    starts: list[int] = []
    length = 0
    for _, line in block.lines:
        starts.append(length)
        length += len(line) + 1
    begin = 0
    for end in [*(hit.end() for hit in _SENTENCE.finditer(full)), len(full)]:
        labelled = block.label in ("strong", "weak") and begin == 0
        for mark, place, leads in _sentence(masked[begin:end], full[begin:end], block.label if labelled else ""):
            index = bisect_right(starts, begin + place) - 1
            confidence: Confidence = "low" if not leads else "medium"
            if labelled and block.label == "strong" and (leads or place <= _NEAR):
                confidence = "high"
            yield Seen(mark, block.lines[index][0], confidence, block.label == "option")
        begin = end


def _sentence(masked: str, full: str, label: str) -> Iterator[tuple[Mark, int, bool]]:
    if label == "strong" and (hit := _YES_NO.match(masked)):
        if hit["yes"]:
            rest = re.search(
                r"(?i)\b(?:but|if|once|with|provided|after|subject|when|until|not|no)\b", full[hit.end() :]
            )
            yield ("conditions" if rest else "approve"), 0, True
        else:
            yield "denied", 0, True
        return
    bad = any(one in full for one in _BAD)
    if label and not re.search(r"\w", full):
        if bad != any(one in full for one in _GOOD):
            yield ("denied" if bad else "approve"), 0, False
        return
    for found in read_sentence(masked, full, labelled=bool(label)):
        yield ("unclear" if bad and found.mark in ("approve", "conditions") else found.mark), found.start, found.leads
