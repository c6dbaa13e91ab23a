"""Blank out what no reviewer decides with: quotes, code, struck words, placeholders, file names, echoed choices."""

from __future__ import annotations

import re

_WORDS = (
    r"(?:yes|no|no-?go|go|modify|approved?|approve with conditions|rejected?|revise|iterate|scale|investigate|hold|pass"
    r"|fail|ready|request changes|changes requested)"
)
_TEMPLATE = re.compile(rf"(?i)(?<!\w)[\[(<]?{_WORDS}(?:\s*(?:/|\||\bor\b)\s*{_WORDS})+(?!\w)[\])>]?")
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
    re.compile(r"(?<![\w.-])[\w.-]*[/\\][\w./\\-]*\.\w{1,5}\b|(?<![\w-])[\w-]+\.(?:md|txt|jsonl?|py|log|ya?ml|sh)\b"),
    _TEMPLATE,
)


def mask(text: str) -> str:
    """Return the text with such parts replaced by a mark, at the same length."""
    for pattern in _MASKS:
        text = pattern.sub(lambda hit: "\u00a4" * len(hit.group()), text)
    return text
