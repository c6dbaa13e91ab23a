"""What a text says under a disguise: look-alike letters, invisible marks, encodings, another order of the words.

All of it compares exactly: nothing here is a degree of similarity. Not seen through are ciphers other than rot13,
encodings inside encodings, synonyms, paraphrases and translations.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any
from urllib.parse import unquote_plus

Words = tuple[str, ...]
Bag = tuple[Words, Words]

LEAST_STEMS = 6
"""Fewer words make another question in another order too often."""
_LEAST_LETTERED = 4
"""Words with letters that a text needs before its rot13 or its reversal is looked for."""

_IGNORABLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u3164\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_LETTER = re.compile("[A-Za-z]")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}(?:\r?\n[A-Za-z0-9+/_-]{2,})*={0,2}")
_HEX = re.compile(r"(?:[0-9A-Fa-f]{2}[ :]?){8,}")
_PERCENT = re.compile(r"%[0-9A-Fa-f]{2}")
_ROT13 = str.maketrans("abcdefghijklmnopqrstuvwxyz", "nopqrstuvwxyzabcdefghijklm")
_FILLERS = frozenset(
    ("a", "an", "the", "please", "kindly", "just", "really", "very", "so", "now", "then", "also", "and", "to")
)


def normalise_lookalikes(text: str) -> str:
    """Return a text without invisible marks, with letters that only look Latin as Latin ones.

    A text without any Latin letter keeps its letters: in Greek or Russian they are what they look like.
    """
    if text.isascii():
        return text
    text = _IGNORABLE.sub("", text)
    return "".join(map(_latin, text)) if _LETTER.search(text) else text


@lru_cache(maxsize=4096)
def _latin(character: str) -> str:
    """Return the Latin letter that a letter is easily taken for, or the character itself."""
    if character.isascii() or not character.isalpha():
        return character
    from confusable_homoglyphs import confusables

    confusable: Any = confusables.is_confusable(character, greedy=True, preferred_aliases=["latin"])
    alike = [homoglyph["c"] for entry in confusable or () for homoglyph in entry["homoglyphs"]]
    return next((value for value in alike if len(value) == 1 and value.isascii() and value.isalpha()), character)


def transform_words(words: Words) -> tuple[Words, ...]:
    """Return words in rot13, in the reverse order, and spelled backwards; nothing for a few words.

    Each is its own inverse: a text turned like this is found by looking for what this returns of the plain one.
    """
    if sum(word.isalpha() for word in words) < _LEAST_LETTERED:
        return ()
    rotated = tuple(word.translate(_ROT13) for word in words)
    return rotated, words[::-1], tuple(word[::-1] for word in reversed(words))


def decode_hidden_texts(text: str) -> Iterator[str]:
    """Yield the texts that are in a text as base64, hexadecimal digits or percent signs."""
    if _PERCENT.search(text):
        yield unquote_plus(text)
    for match in _BASE64.finditer(text):
        body = "".join(match[0].split()).rstrip("=").replace("-", "+").replace("_", "/")
        yield from _readable(lambda body=body: base64.b64decode(body + "=" * (-len(body) % 4)))
    for match in _HEX.finditer(text):
        digits = re.sub("[ :]", "", match[0])
        yield from _readable(lambda digits=digits: bytes.fromhex(digits))


def _readable(decode: Any) -> Iterator[str]:
    try:
        text = decode().decode()
    except (binascii.Error, ValueError):
        return
    if all(character.isprintable() or character.isspace() for character in text):
        yield text


def content_of(words: Words) -> Words:
    """Return words without fillers, in their order."""
    return tuple(word for word in words if word not in _FILLERS)


def stems_of(words: Words) -> Words:
    """Return the stems of words without fillers, in their order."""
    return tuple(map(_stem, content_of(words)))


def bag_of(words: Words) -> Bag | None:
    """Return the sorted stems of words without fillers, and the words with digits in their order; None for a few.

    The order of numbers counts: "3 minus 5" is not "5 minus 3".
    """
    stems = sorted(stems_of(words))
    if len(stems) < LEAST_STEMS:
        return None
    return tuple(stems), tuple(word for word in words if any(map(str.isdigit, word)))


@lru_cache(maxsize=65536)
def _stem(word: str) -> str:
    return _stemmer().stemWord(word)


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    import snowballstemmer

    return snowballstemmer.stemmer("english")
