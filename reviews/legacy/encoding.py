"""From the bytes of an old file to text: UTF-8, UTF-16, stray Windows bytes, UTF-8 once read as Windows-1252."""

from __future__ import annotations

import codecs
import re

from specs.text import plain

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_STRANGE_SHARE = 8
"""A text of which more than one in so many characters is no text at all is not read."""
_SAMPLE = 4096
_CONTROL = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_BYTE_OF = {bytes([byte]).decode("cp1252", "ignore") or chr(byte): chr(byte) for byte in range(0x80, 0xA0)}
_TABLE = str.maketrans(_BYTE_OF | {chr(byte): chr(byte) for byte in range(0x80, 0x100)})
_MULTIBYTE = re.compile(
    "[\u00c2-\u00df][\u0080-\u00bf]|[\u00e0-\u00ef][\u0080-\u00bf]{2}|[\u00f0-\u00f4][\u0080-\u00bf]{3}"
)
# What is left when an editor dropped the byte that Windows-1252 does not have, or made a space of the hard one.
_MAIMED = (
    ("\u00e2\u0152", "\u274c"),
    ("\u00e2\u20ac\ufffd", "\u201d"),
    ("\u00e2\u0161 \u00ef\u00b8", "\u26a0"),
    ("\u00e2\u0161\u00a0\u00ef\u00b8", "\u26a0"),
    ("\u00e2\u0161\u00a0", "\u26a0"),
    ("\u00e2\ufffd\u0152", "\u274c"),
    ("\u00f0\u0178\u0161\u00a8", "\U0001f6a8"),
    ("\u00f0\u0178\u2019\u00a1", "\U0001f4a1"),
)


def decode(raw: bytes, limit: int) -> str | None:
    """Return the bytes as plain text of at most ``limit`` characters, or None when they are not text."""
    text = _decoded(raw)
    if _strange(raw, text) > max(4, len(text) // _STRANGE_SHARE):
        return None
    return plain(mended(text), limit)


def _strange(raw: bytes, text: str) -> int:
    """Count what no text holds: bytes that are not UTF-8, and control characters."""
    wide = any(raw.startswith(mark) for mark, name in _BOMS if name != "utf-8") or text.isascii()
    broken = text.count("\ufffd") if wide else raw.decode("utf-8", "replace").count("\ufffd")
    return broken + len(_CONTROL.findall(text))


def mended(text: str) -> str:
    """Return text in which UTF-8 that was read as Windows-1252, even twice, is what it was."""
    for _ in range(2):
        if re.search("[\u00c2-\u00f4][\u0080-\u2122]", text) is None:
            break
        text = _mended_once(text)
    for wrong, right in _MAIMED:
        text = text.replace(wrong, right)
    return text


def _mended_once(text: str) -> str:
    as_bytes = text.translate(_TABLE)
    parts: list[str] = []
    done = 0
    for hit in _MULTIBYTE.finditer(as_bytes):
        try:
            right = hit.group().encode("latin-1").decode("utf-8")
        except UnicodeDecodeError:
            continue
        parts += [text[done : hit.start()], right]
        done = hit.end()
    return "".join(parts) + text[done:]


def _decoded(raw: bytes) -> str:
    for mark, name in _BOMS:
        if raw.startswith(mark):
            return (
                raw[len(codecs.BOM_UTF8) :].decode(name, "windows") if name == "utf-8" else raw.decode(name, "replace")
            )
    sample = raw[:_SAMPLE]
    zeros = sample.count(0)
    if len(sample) >= 8 and zeros * 3 > len(sample):
        # Text of mostly Latin letters in UTF-16 without its mark: every second byte is zero.
        return raw.decode("utf-16-le" if sample[1::2].count(0) > sample[::2].count(0) else "utf-16-be", "replace")
    return raw.decode("utf-8", "windows")


def _windows(error: UnicodeError) -> tuple[str, int]:
    """Read a byte that is not UTF-8 as Windows-1252: in an old file it is an apostrophe or a dash, seldom noise."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    bad = error.object[error.start : error.end]
    strange = [bytes([byte]).decode("cp1252", "replace") for byte in bad]
    return "".join(strange), error.end


codecs.register_error("windows", _windows)
