"""From the bytes of an old file to text: UTF-8, UTF-16, stray Windows bytes, UTF-8 once read as Windows-1252."""

from __future__ import annotations

import codecs
import re

from specs.text import plain

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_STRANGE_SHARE = 8
"""A file is not read if more than one in so many characters is broken."""
_CONTROL = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_TABLE = {ord(bytes([byte]).decode("cp1252", "ignore") or chr(byte)): byte for byte in range(0x80, 0xA0)}
_MULTIBYTE = re.compile(
    "[\u00c2-\u00df][\u0080-\u00bf]|[\u00e0-\u00ef][\u0080-\u00bf]{2}|[\u00f0-\u00f4][\u0080-\u00bf]{3}"
)
# The warning sign when an editor made a plain space of the hard one, or dropped the byte Windows-1252 does not have.
_MAIMED = (
    ("\u00e2\u0161 \u00ef\u00b8", "\u26a0"),
    ("\u00e2\u0161\u00a0\u00ef\u00b8", "\u26a0"),
    ("\u00e2\u0161\u00a0", "\u26a0"),
    ("\u00e2\u0152", "\u274c"),
)


def decode(raw: bytes, limit: int) -> str | None:
    """Return the bytes as plain text of at most ``limit`` characters, or None when they are not text."""
    name = next((name for mark, name in _BOMS if raw.startswith(mark)), None) or _unmarked(raw)
    text = raw.decode("utf-8-sig", "windows") if name == "utf-8" else raw.decode(name, "replace")
    broken = 0 if text.isascii() else raw.decode(name, "replace").count("\ufffd")
    if broken + len(_CONTROL.findall(text)) > max(4, len(text) // _STRANGE_SHARE):
        return None
    return plain(_mended(_mended(text)), limit)


def _unmarked(raw: bytes) -> str:
    """Return UTF-16 for text of mostly Latin letters without a mark: every second byte is zero."""
    sample = raw[:4096]
    if len(sample) < 8 or sample.count(0) * 3 <= len(sample):
        return "utf-8"
    return "utf-16-le" if sample[1::2].count(0) > sample[::2].count(0) else "utf-16-be"


def _mended(text: str) -> str:
    """Return text in which UTF-8 that was read as Windows-1252 is what it was."""
    as_bytes, parts, done = text.translate(_TABLE), list[str](), 0
    for hit in _MULTIBYTE.finditer(as_bytes):
        if right := hit.group().encode("latin-1").decode("utf-8", "ignore"):
            parts += [text[done : hit.start()], right]
            done = hit.end()
    text = "".join(parts) + text[done:]
    for wrong, right in _MAIMED:
        text = text.replace(wrong, right)
    return text


def _windows(error: UnicodeError) -> tuple[str, int]:
    """Read bytes that are not UTF-8 as Windows-1252: in an old file they are apostrophes or dashes, seldom noise."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return error.object[error.start : error.end].decode("cp1252", "replace"), error.end


codecs.register_error("windows", _windows)
