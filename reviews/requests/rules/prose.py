"""Rules on methodology in prose: sentences whose words say that a known fault is planned, and plans that leave it open.

They nominate sentences by their words and do not understand them. A sentence that is negated, asked, or stands under a
negated heading or lead-in is left alone; what is worded otherwise is missed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from reviews.requests.rules.prose_faults import IS_PLAN, RULES, UNSAID, Rule
from reviews.requests.rules.rule_findings import RuleFindings, RuleMaterial, place
from specs.trail.requested_review import ReadFile

SUFFIXES = (".md", ".txt", ".rst")
_VERBS = re.compile(
    r"\b(?:never|not(?!\s+only)|avoid\w*|instead\s+of|rather\s+than|refus\w*|forbid\w*|prohibit\w*|prevent\w*|cannot|"
    r"neither|nor|refrain\w*|rules?\s+out|ruled\s+out|guards?\s+against|protects?\s+against|detects?|rejects?)"
    r"\b|n['\u2019]t\b"
)
_NOUNS = re.compile(r"\b(?:no|none|nobody|nothing|without)\b[^,;:]{0,25}$")
_AFTER = re.compile(
    r"\b(?:is|are|was|were|be|being|counts?\s+as|would\s+be|will\s+be)\s+(?:strictly\s+|always\s+)?"
    r"(?:forbidden|wrong|refused|rejected|"
    r"cheating|a\s+mistake|mistakes|leakage|prohibited|ruled\s+out|excluded|invalid|a\s+fault|an\s+error|never\s+\w+|"
    r"not\s+(?:done|allowed|permitted|used|an\s+option|acceptable|what\s+we\s+do|part\s+of))"
    r"|\bwould\s+(?:bias|inflate|overstate|leak|invalidate|make|ruin)\b"
    r"|\b(?:must|should|may|can|does|do|will)\s*(?:not\b|n['\u2019]t)|\bcannot\b|\bnever\s+happens?\b"
)
_NEW_THOUGHT = re.compile(
    r"\b(?:but|however|so|therefore|hence|instead,|because|since|although|though|yet|and\s+(?:so|we|then|i)|then)\b|;"
)
_HEADED_NO = re.compile(
    r"\b"
    r"(?:never|not|don['\u2019]?t|doesn['\u2019]?t|avoid|no|without|forbidden|refused|won['\u2019]?t|mistakes|anti-?patterns|"
    r"pitfalls|threats|out\s+of\s+scope|excluded|prohibited)\b"
)
_FENCE = re.compile(r"^\s*(?:```|~~~)")
_MARK = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+|^\s*>\s?|^\s*#+\s+")
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\"'*(\d])")


class Sentence(NamedTuple):
    """A sentence in small letters, where it is, and the heading or lead-in above it."""

    text: str
    lines: tuple[int, ...]
    """The line of each character, counted from 1."""
    above: str


def check_prose(material: RuleMaterial) -> RuleFindings:
    """Look in every page of prose for sentences that plan a fault, and in plans for what they leave open."""
    result = RuleFindings()
    for file in material.ending(*SUFFIXES):
        if file.role != "file":
            continue
        result.looked_at.append(file.name)
        _check_sentences(result, file)
        _check_unsaid(result, file)
    if result.looked_at:
        pages = "1 page" if len(result.looked_at) == 1 else f"{len(result.looked_at)} pages"
        result.not_judged.append(
            f"{pages} of prose: rules nominate sentences by their words and do not understand "
            "them; read each line that they point at, and expect that other words for the same fault were missed"
        )
    return result


def _check_sentences(result: RuleFindings, file: ReadFile) -> None:
    lines: dict[str, list[int]] = {}
    for sentence in sentences(file.text):
        for rule in RULES:
            at = find_rule_words(rule, sentence)
            if at is not None:
                lines.setdefault(rule.id, []).append(sentence.lines[at])
    for rule in RULES:
        if rule.id in lines:
            places = [place(file, line) for line in dict.fromkeys(lines[rule.id])]
            result.issue(rule.severity, f"by its words ({rule.id}): {rule.statement}", places)
            result.recommend(rule.fix, f"Where the text means it: {rule.statement}.")


def _check_unsaid(result: RuleFindings, file: ReadFile) -> None:
    if not all(words.search(file.text) for words in IS_PLAN):
        return
    for words, statement, fix in UNSAID:
        if not re.search(words, file.text, re.IGNORECASE):
            result.concern(f"{statement}, as far as its words show", [place(file, 1)])
            result.recommend(fix, f"{file.name}: {statement}.")


def find_rule_words(rule: Rule, sentence: Sentence) -> int | None:
    """Return where the words of a rule begin in a sentence; None if it lacks them, or says that it is not done."""
    if sentence.text.rstrip().endswith("?") or _HEADED_NO.search(sentence.above):
        return None
    for match in re.finditer(rule.words, sentence.text):
        before, inside, after = sentence.text[: match.start()], match[0], sentence.text[match.end() :]
        thoughts = list(_NEW_THOUGHT.finditer(before))
        before = before[thoughts[-1].end() :] if thoughts else before
        negated = _VERBS.search(before) or _NOUNS.search(before) or _AFTER.search(after)
        if not rule.says_no:
            negated = negated or _VERBS.search(inside) or re.search(r"\b(?:no|without)\b", inside)
        if not negated:
            return match.start()
    return None


def sentences(text: str) -> Iterator[Sentence]:
    """Yield the sentences of Markdown or plain text, over line ends; blocks of code are left out."""
    heading = lead = ""
    for block in _blocks(text):
        first = block[0][1]
        if first.lstrip().startswith("#"):
            heading, lead = _MARK.sub("", first).lower(), ""
            continue
        is_item = bool(re.match(r"\s*(?:[-*+]|\d+[.)])\s", first))
        lead = lead if is_item else ""
        joined, places = "", list[int]()
        for number, line in block:
            part = f"{_MARK.sub('', line).strip()} "
            joined += part
            places += [number] * len(part)
        begin = 0
        for end in (*(match.end() for match in _END.finditer(joined)), len(joined)):
            if joined[begin:end].strip():
                yield Sentence(joined[begin:end].lower(), tuple(places[begin:end]), f"{heading}\n{lead}")
            begin = end
        if joined.rstrip().endswith(":"):
            lead = joined.rsplit(". ", 1)[-1].lower()


def _blocks(text: str) -> Iterator[list[tuple[int, str]]]:
    """Yield paragraphs, list items and headings, each with the numbers of its lines."""
    block: list[tuple[int, str]] = []
    fenced = False
    for number, line in enumerate(text.split("\n"), 1):
        if _FENCE.match(line):
            fenced = not fenced
            line = ""
        if fenced:
            continue
        begins = re.match(r"\s*(?:[-*+]|\d+[.)])\s|\s*#", line) is not None
        if block and (not line.strip() or begins or block[0][1].lstrip().startswith("#")):
            yield block
            block = []
        if line.strip():
            block.append((number, line))
    if block:
        yield block
