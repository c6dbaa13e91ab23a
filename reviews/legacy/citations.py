"""Files, and lines of files, that a text points to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_SUFFIX = (
    r"(?:py|md|txt|jsonl?|ya?ml|toml|cfg|ini|sh|bash|csv|tsv|log|ipynb|rst|html?|js|ts|tsx|c|h|cc|cpp|hpp|rs|go"
    r"|java|sql|parquet|safetensors"
    r"|lock|patch|diff|pdf|png)"
)
_PATH = re.compile(
    r"(?<![\w./:@%-])(?P<path>(?:~/|/|(?:\.{1,2}/){1,8})?(?:[\w@+-][\w.@+-]*/){0,12}[\w@+-][\w.@+-]{0,150}\."
    + _SUFFIX
    + r")(?![\w/])"
    r"(?:(?::|#L|\s*\(?(?:lines?|L)\s*)(?P<first>\d{1,6})(?:(?:\s*[-\u2013]\s*|\s+to\s+)L?(?P<last>\d{1,6}))?)?"
)
_LINES_OF = re.compile(
    r"(?i)\blines?\s+(?P<first>\d{1,6})(?:\s*(?:-|\u2013|to)\s*(?P<last>\d{1,6}))?\s+(?:of|in)\s+[`*]*$"
)
_URL = re.compile(r"\b[a-z][a-z0-9+.-]{1,12}://\S{1,500}", re.IGNORECASE)
_PATTERN = re.compile(r"(?i)y{2,4}mm|\bhhmm|^(?:foo|bar|file|path|example|name|x|y|z)\.\w+$")
_NAMES = re.compile(r"(?i)^(?:node|vue|next|three|d3|express|e\.g|i\.e)\.\w+$")
MOST = 200
"""Citations of one text beyond this many are left out."""


class Citation(NamedTuple):
    """A file as a text names it, with a range of lines if it gives one."""

    path: str
    first: int | None = None
    last: int | None = None

    def __str__(self) -> str:
        if self.first is None:
            return self.path
        return f"{self.path}:{self.first}" + (f"-{self.last}" if self.last not in (None, self.first) else "")


def citations_in(text: str) -> Iterator[Citation]:
    """Yield the files that a text cites, each with its lines; web addresses and patterns of names are none."""
    text = _URL.sub(lambda hit: " " * len(hit.group()), text)
    seen: set[Citation] = set()
    for hit in _PATH.finditer(text):
        path = hit["path"]
        if _PATTERN.search(path) or _NAMES.match(path) or "{" in text[max(0, hit.start() - 1) : hit.end() + 1]:
            continue
        if text[max(0, hit.start() - 1) : hit.start()] in ("*", "<", "$"):
            continue
        lines = hit if hit["first"] else _LINES_OF.search(text[max(0, hit.start() - 60) : hit.start()])
        first = int(lines["first"]) if lines else None
        last = int(lines["last"]) if lines and lines["last"] else first
        one = Citation(path, first, last)
        if one not in seen:
            seen.add(one)
            yield one
        if len(seen) >= MOST:
            return
