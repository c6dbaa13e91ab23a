"""Reviews saved as HTML: the words a reader would see, as lines of plain markup, each with the line it stood in."""

from __future__ import annotations

import re
from html.parser import HTMLParser

_BLOCKS = frozenset(
    [
        "p",
        "div",
        "section",
        "article",
        "main",
        "header",
        "footer",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "ul",
        "ol",
        "li",
        "table",
        "tr",
        "dl",
        "dt",
        "dd",
        "hr",
        "form",
        "fieldset",
        "body",
        "html",
    ]
)
_UNSEEN = frozenset(
    [
        "script",
        "style",
        "head",
        "template",
        "del",
        "s",
        "strike",
        "blockquote",
        "pre",
        "noscript",
        "svg",
        "select",
        "textarea",
    ]
)
_VOID = frozenset(
    ["br", "hr", "img", "input", "meta", "link", "area", "base", "col", "embed", "source", "track", "wbr"]
)
_HIDDEN = re.compile(r"(?i)display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0")
_TAGS = re.compile(r"(?i)</?(?:p|h[1-6]|div|li|td|tr|table|body|html|section|article|span)\b[^<>]{0,300}>")
_STARTS = re.compile(
    r"(?i)\s*(?:<!doctype\s+html|<!--.{0,2000}?-->\s*<\w|<(?:p|h[1-6]|div|html|body|table|section|article|del"
    r"|ul|ol|head)\b)",
    re.S,
)
MOST = 200_000
"""Longer markup is not taken apart."""

Numbered = tuple[int, str]


def is_markup(text: str) -> bool:
    """Say whether a text is HTML as a whole, not only sprinkled with it."""
    return _STARTS.match(text) is not None and _TAGS.search(text) is not None


def seen_lines(text: str) -> list[Numbered]:
    """Return what a reader of an HTML page sees, as numbered lines."""
    reader = _Reader()
    reader.feed(text[:MOST])
    reader.close()
    reader.break_line()
    return reader.lines


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[Numbered] = []
        self._parts: list[str] = []
        self._hidden: list[str] = []
        self._begun = 1

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._hidden:
            if tag == self._hidden[0]:
                self._hidden.append(tag)
            return
        values = dict(attrs)
        if tag not in _VOID and (tag in _UNSEEN or "hidden" in values or _HIDDEN.search(values.get("style") or "")):
            self._hidden.append(tag)
            self._parts.append(" ")
        elif tag in _BLOCKS or tag == "br":
            self.break_line(paragraph=tag not in ("br", "li", "tr"))
            if re.fullmatch(r"h[1-6]", tag):
                self._parts.append("#" * int(tag[1]) + " ")
            elif tag == "li":
                self._parts.append("- ")
        elif tag in ("td", "th"):
            self._parts.append(" | ")

    def handle_endtag(self, tag: str) -> None:
        if self._hidden:
            if tag == self._hidden[-1]:
                self._hidden.pop()
            return
        if tag == "tr" and any(one.strip() for one in self._parts):
            self._parts.append(" |")
        if tag in _BLOCKS:
            self.break_line(paragraph=tag not in ("li", "tr"))

    def handle_data(self, data: str) -> None:
        if self._hidden:
            return
        if not self._parts:
            self._begun = self.getpos()[0]
        for number, part in enumerate(data.split("\n")):
            if number:
                self._parts.append(" ")
            self._parts.append(part)

    def break_line(self, *, paragraph: bool = False) -> None:
        """End a line; a paragraph is followed by an empty one."""
        text = " ".join("".join(self._parts).split())
        if text.strip("#- |"):
            self.lines.append((self._begun, text))
        if paragraph and self.lines and self.lines[-1][1]:
            self.lines.append((self.getpos()[0], ""))
        self._parts = []
        self._begun = self.getpos()[0]
