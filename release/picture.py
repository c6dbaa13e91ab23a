"""Draw what a command printed as an SVG of a terminal: ``make demo 2>&1 | python -m release.picture docs/demo.svg``.

Of a session's output it keeps the stages, the witnesses, the gates and the end. The picture names no font that would
have to be fetched.
"""

from __future__ import annotations

import re
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

COLUMNS = 104
_LOG_LINES = re.compile(r"design gate|stage \d|a witness|gate \w+:")
_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
_STYLES = (
    (re.compile(r"gate \w+: approve|VERIFIED|accepted:"), "bold green"),
    (re.compile(r"stage \d+/\d+ \w+"), "bold"),
    (re.compile(r"^\d\d:\d\d:\d\d"), "dim"),
)


def abridge_lines(printed: str) -> list[str]:
    """Return the lines to show: the lines of the log that :data:`_LOG_LINES` names, and all lines after the log."""
    lines = printed.rstrip("\n").split("\n")
    logged = [place for place, line in enumerate(lines) if re.match(r"\d\d:\d\d:\d\d", line)]
    end = logged[-1] + 1 if logged else 0
    return [line for line in lines[:end] if _LOG_LINES.search(line)] + lines[end:]


def draw_terminal(printed: str, title: str) -> str:
    """Return the picture of a text, wrapped at :data:`COLUMNS`."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    for line in abridge_lines(printed):
        text = Text(line)
        for pattern, style in _STYLES:
            text.highlight_regex(pattern, style)
        console.print(text)
    return _FONT.sub("", console.export_svg(title=title))


def main() -> int:
    """Read a command's output and write its picture."""
    out, title = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "peergate"
    out.write_text(draw_terminal(sys.stdin.read(), title), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
