"""Blank out what no reviewer decides with: quotes, code, struck words, placeholders, file names, echoed choices."""

from __future__ import annotations

import re

_WORDS = (
    r"(?:yes|no|no[\s_-]?go|go|modify|approve[ _]with[ _](?:\w+[ _])?(?:conditions|changes|notes)|approve[ds]?"
    r"|reject(?:ed|s)?|revise|iterate|scale|investigate"
    r"|hold|pass(?:ed)?|fail(?:ed)?|ready|not[ _]ready|request[ _]changes|changes[ _]requested"
    r"|abstain|escalate|defer|stop|proceed|none)"
)
_TEMPLATE = re.compile(rf"(?i)(?<!\w)[\[(<]?{_WORDS}(?:\s*(?:/|\||\bor\b)\s*{_WORDS})+(?!\w)[\])>]?")
# "APPROVE, REVISE or REJECT"; "GO, proceed" is no choice.
_LISTED = re.compile(rf"(?i)(?<!\w){_WORDS}(?:\s*[,;]\s*{_WORDS})+\s*[,;]?\s*(?:\bor\b|/)\s*{_WORDS}(?!\w)")
_PATH = re.compile(
    r"(?<![\w.-])[\w.-]*[/\\][\w./\\-]*\.\w{1,5}\b|(?<![\w-])[\w-]+\.(?:md|txt|jsonl?|py|log|ya?ml|sh)\b"
)
_MASKS = (
    re.compile(r'"[^"]{0,600}"'),
    re.compile("\u201c[^\u201d]*(?:\u201d|$)"),
    re.compile("\u00ab[^\u00bb]*(?:\u00bb|$)"),
    re.compile(r"(?<!\w)'[^'\n]{1,120}'(?!\w)"),
    re.compile("\u2018[^\u2019]{1,120}\u2019(?!\\w)"),
    re.compile(r"`[^`]{1,200}`"),
    re.compile(r"~~[^~]{1,200}~~"),
    re.compile(r"<[^<>]{1,200}>|\{[^{}]{1,200}\}"),
    re.compile(r"\[ \].*$"),
    _PATH,
    _LISTED,
    _TEMPLATE,
)


def mask(text: str) -> str:
    """Return the text with such parts replaced by a mark, at the same length; file names have a mark of their own."""
    for pattern in _MASKS:
        mark = "\u00b7" if pattern is _PATH else "\u00a4"
        text = pattern.sub(lambda hit, mark=mark: mark * len(hit.group()), text)
    return text
