"""Who speaks where in an older review: the reviewer, whoever asked, or the agent whose work was judged.

Fenced code, block quotes and HTML comments are nobody's words. The shape decides, never the wording alone: a heading
("## Review Questions"), a speaker ("User: ..."), or a line of a command-line transcript ("codex").
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

Zone = Literal["review", "request", "builder", "told", "nobody"]

_BOLD_HEADING = re.compile(r"^\s*(?:\*\*|__)(?P<title>[^*_]{1,80}?):?(?:\*\*|__):?\s*$")
_ANSWERS = re.compile(r"(?i)\b(?:response|repl(?:y|ies)|answers?|answered)\b|^\W*(?:codex|gemini|reviewer|review)\W*$")
_DECIDES = re.compile(
    r"(?i)^\W*(?:\d+[.)]\s*)?(?:final\s+|overall\s+|gate\s+)*(?:verdict|decision|recommendations?|approval|findings"
    r"|assessment|summary|conclusion|reasoning|risks|concerns|feedback)\W*(?::.*)?$"
)
_ASKS = re.compile(
    r"(?i)\b(?:request(?:ed)?|questions?|prompt|context|background|instructions?|current\s+state|task|template"
    r"|proposed\s+(?:approach|solution|plan|change)|(?:decision|approval)\s+(?:needed|required))\b"
    r"|^\W*(?:user|human|input|brief|system)\W*$"
)
_BUILDER = re.compile(
    r"(?i)^\W*(?:the\s+)?(?:builder|agent|author|implementer|developer|submitter|claude(?:\s+code)?)(?:'s)?\b"
    r"|\bself-?\s?(?:assessment|review|evaluation|check|report)\b|\b(?:previous|prior|earlier|last|old|former"
    r"|archived?|draft)\b"
)
SPEAKER = re.compile(
    r"(?i)^[\s>*_-]*(?:\[[^\]]{1,40}\]\s*)?(?:"
    r"(?P<request>user(?:\s+instructions)?|human|system|prompt|q|questions?|requests?|requestor|requester"
    r"|context|input)"
    r"|(?P<builder>builder|agent|author|implementer|developer|submitter|claude(?:\s+code)?|builder\s+(?:says|claims)"
    r"|self-?(?:assessment|review))"
    r"|(?P<review>assistant|reviewer(?:\s+\w+)?|codex|gemini|gpt[\w.-]*|a|answers?|responses?|reply"
    r"|reviewer\s+response)"
    r")[*_\s]*(?:\([^)]{0,40}\)\s*)?:[*_]*\s*(?P<rest>.*)$"
)
_TRANSCRIPT = re.compile(
    r"^\s*(?:\[[^\]]{1,40}\]\s*)?(?P<who>User instructions:|user|codex|thinking|exec\b.*|tokens used.*)\s*$"
)
_FENCE = re.compile(r"^\s{0,3}(?:>\s*)*(?:[-*+]\s+|\d+[.)]\s+)?(?P<fence>`{3,}|~{3,})")
_LISTED = re.compile(r"^\s*(?:[-*+\u2022]|\d+[.)])\s")
_INTRODUCES = re.compile(
    r"(?i)\b(?:says?|said|wr(?:ote|ites)|stat(?:es|ed)|claim(?:s|ed)|reads?|according\s+to|log|output|prints?"
    r"|printed|shows?"
    r"|message|quot\w+|format|form|template|example|for\s+instance|answer\s+with|reply\s+with|respond\s+with"
    r"|end\s+with"
    r"|transcript|excerpt|commit|confirm|expected|requested|desired)\b[^:]{0,80}:[\s*_]*$"
)
_OWN = re.compile(r"(?i)^\W*(?:(?:my|our)\b|i\s|we\s)")
_DENIES = re.compile(r"(?i)(?:\b(?:not|never|cannot|refuse\w*|wrong|neither)\b|n't\b)[^:]{0,80}:[\s*_]*$")
# "The description ends with the line", and then that line.
_LEADS_TO = re.compile(
    r"(?i)\b(?:with|by|in|the|a|this|one)\s+"
    r"(?:lines?|sentence|words?|text|form|following|header|footer|verdict|entry)\s*$"
)
_BOLD = 7
_LOOKED_AT = 200
_SHORT = 4


class Zoned(NamedTuple):
    """The zone of every line, and whether a code fence was still open at the end."""

    zones: list[Zone]
    open_fence: bool


def zones_of(lines: Sequence[str]) -> Zoned:
    """Say of every line whose words it holds."""
    masked, open_fence = _nobody(lines)
    transcript = any("OpenAI Codex" in line for line in lines[:5])
    zones: list[Zone] = []
    zone: Zone = "review"
    level, until_blank = 0, False
    for line, hidden in zip(lines, masked, strict=True):
        if hidden:
            zones.append(hidden)
            continue
        if not line.strip() and until_blank:
            zone, until_blank = "review", False
        head = heading(line)
        spoken = SPEAKER.match(line)
        said = _TRANSCRIPT.match(line) if transcript else None
        if said:
            who = said["who"].lower()
            zone = "review" if who == "codex" else "request" if who.startswith("user") else "nobody"
            zones.append("nobody")
            continue
        if head:
            zone, level = _after_heading(head, zone, level)
            until_blank = False
        elif spoken:
            own, zone, until_blank = _after_speaker(spoken, zone, until_blank)
            zones.append(own)
            continue
        zones.append(zone)
    return Zoned(zones, open_fence)


class Heading(NamedTuple):
    """A heading with its depth; bold lines and ruled lines count as the deepest."""

    level: int
    title: str


def heading(line: str) -> Heading | None:
    """Return the heading a line is, if it is one."""
    text = line.strip()
    if text.startswith("#"):
        title = text.lstrip("#")
        return Heading(min(len(text) - len(title), 6), title.rstrip("#").strip())
    for rule in ("===", "---"):
        if text.startswith(rule) and text.endswith(rule) and text.strip("=- "):
            return Heading(1, text.strip("=- "))
    bold = _BOLD_HEADING.match(line)
    return Heading(_BOLD, bold["title"]) if bold else None


def _after_heading(head: Heading, zone: Zone, level: int) -> tuple[Zone, int]:
    answers = _ANSWERS.search(head.title) is not None
    inside = zone != "review" and head.level > level
    if answers:
        return "review", head.level
    if inside:
        return zone, level
    if _DECIDES.match(head.title):
        return "review", head.level
    if _BUILDER.search(head.title):
        return "builder", head.level
    if _ASKS.search(head.title):
        return "request", head.level
    return "review", head.level


def _after_speaker(spoken: re.Match[str], zone: Zone, until_blank: bool) -> tuple[Zone, Zone, bool]:
    """Return the zone of the speaker's line, the zone after it, and whether a blank line ends that."""
    rest = spoken["rest"].strip()
    if spoken["review"]:
        return "review", "review", False
    own: Zone = "request" if spoken["request"] else "builder"
    if rest and len(rest.split()) <= _SHORT and not rest.endswith("?"):
        # "Author: somebody" is a line about the review, "Builder: APPROVED" a claim; neither begins a speech.
        return own, zone, until_blank
    lasting = spoken["request"] is not None and spoken["request"].lower().startswith(
        ("user", "human", "system", "prompt")
    )
    return own, own, bool(rest) and not lasting


def _nobody(lines: Sequence[str]) -> tuple[list[Literal["nobody", "told", ""]], bool]:
    """Mark lines of code, block quotes and HTML comments, and what a line such as "The log says:" introduces."""
    hidden: list[Literal["nobody", "told", ""]] = []
    fence, comment = "", False
    quoted, indented, listed = False, False, False
    introduced: Literal["", "before", "inside"] = ""
    above = ""
    for line in lines:
        hit = _FENCE.match(line)
        if fence:
            hidden.append("nobody")
            if hit and hit["fence"].startswith(fence) and not line[hit.end() :].strip():
                fence = ""
            continue
        if hit:
            fence = hit["fence"]
            hidden.append("nobody")
            continue
        if comment or "<!--" in line:
            hidden.append("nobody")
            comment = "-->" not in line.rpartition("<!--")[2]
            continue
        told = bool(line.strip())
        # A block quote goes on over lazily continued lines, up to a blank one.
        quoted = line.lstrip().startswith(">") or (quoted and told and heading(line) is None)
        listed = _LISTED.match(line) is not None or (listed and (not told or line.startswith("  ")))
        indented = line.startswith("    ") and not listed and (indented or not above.strip())
        introduced = _introduced(introduced, line, told)
        hidden.append("nobody" if quoted or indented else "told" if introduced == "inside" else "")
        if told and introduced == "" and _opens(line[-_LOOKED_AT:]):
            introduced = "before"
        above = line
    return hidden, bool(fence)


def _opens(line: str) -> bool:
    """Say whether a line introduces what is not the reviewer's: "The log says:", "I will not write:"."""
    if _DENIES.search(line):
        return True
    if _LEADS_TO.search(line):
        return True
    return _INTRODUCES.search(line) is not None and _OWN.match(line) is None


def _introduced(now: Literal["", "before", "inside"], line: str, told: bool) -> Literal["", "before", "inside"]:
    """Return whether a line is introduced speech, which lasts up to the next blank line or heading."""
    head = heading(line) if told else None
    if now == "" or (head is not None and head.level < _BOLD):
        return ""
    if now == "before":
        return "inside" if told else "before"
    return "inside" if told else ""
