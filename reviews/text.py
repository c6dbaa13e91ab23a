"""Make untrusted text (model output, logs, reviewer prose) safe to print: nothing in it can move or fake a line.

Does not guarantee that what the text says is true or harmless to a reader who believes it.
"""

from __future__ import annotations

import re
import unicodedata

# CSI with its parameters; OSC, DCS, SOS, PM and APC up to their terminator or the end of the line; other escapes.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
_LINE_ENDS = re.compile("\r\n|[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")


def plain(text: str, limit: int) -> str:
    """Return ``text`` without control, format and bidirectional characters, at most ``limit`` characters long.

    Newlines and tabs stay. What is cut is counted in a mark at the end. Cleaning clean text changes nothing.
    """
    text = _LINE_ENDS.sub("\n", _ESCAPES.sub("", text))
    kept = [letter for letter in text if letter in "\n\t" or unicodedata.category(letter) not in ("Cc", "Cf", "Cs")]
    clean = "".join(kept)
    if len(clean) <= limit:
        return clean
    mark = f"... [{len(clean) - limit} characters left out]"
    for _ in range(3):
        # The mark takes room from the text, which makes the number in it larger.
        left_out = len(clean) - max(0, limit - len(mark))
        mark = f"... [{left_out} characters left out]"
    return clean[: limit - len(mark)] + mark if len(mark) < limit else clean[:limit]
