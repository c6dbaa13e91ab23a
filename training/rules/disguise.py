"""What a text says under a disguise: look-alike letters, invisible marks, encodings, another order of the words.

All of it compares exactly: nothing here is a degree of similarity. Not seen through are ciphers other than rot13,
encodings inside encodings, synonyms, paraphrases and translations.
"""

from __future__ import annotations

import base64
import binascii
import re
import unicodedata
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

_IGNORABLE = re.compile(
    "[\u034f\u0591-\u05bd\u05bf\u05c1\u05c2\u0640\u064b-\u065f\u0670\u115f\u1160\u17b4\u17b5\u180b-\u180d\u3164\ufe00-\ufe0f"
    "\U000e0100-\U000e01ef]"
)
"""Vowels that Hebrew and Arabic may leave out are among them."""
_LETTER, _WORD = re.compile("[A-Za-z]"), re.compile(r"[^\W\d_]+")
_TWO_A_WORD = re.compile("[\u3040-\u309f\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_THREE_A_WORD = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")
"""Letters of Thai, Lao, Burmese and Khmer; above those of Chinese and Japanese."""
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}(?:\r?\n[A-Za-z0-9+/_-]{2,})*={0,2}")
_HEX = re.compile(r"(?:[0-9A-Fa-f]{2}[ :]?){8,}")
_PERCENT = re.compile(r"%[0-9A-Fa-f]{2}")
_ROT13 = str.maketrans("abcdefghijklmnopqrstuvwxyz", "nopqrstuvwxyzabcdefghijklm")
_FILLERS = frozenset(
    ("a", "an", "the", "please", "kindly", "just", "really", "very", "so", "now", "then", "also", "and", "to")
)


def normalise_lookalikes(text: str) -> str:
    """Return a text without marks that can be left out, with letters that only look Latin as Latin ones.

    Letters of Greek or Russian are what they look like, unless they stand inside Latin words, or the text has no other
    letters than such and Latin ones.
    """
    if text.isascii():
        return text
    text = _IGNORABLE.sub("", text)
    latin = "".join(map(_latin, text)) if _LETTER.search(text) else text
    if latin == text:
        return text
    foreign = [letter for letter in text if letter.isalpha() and not letter.isascii()]
    disguised = all(_latin(letter) != letter for letter in foreign) or any(
        _LETTER.search(word) and any(_latin(letter) != letter for letter in word) for word in _WORD.findall(text)
    )
    return latin if disguised else text


@lru_cache(maxsize=65536)
def _latin(character: str) -> str:
    """Return the Latin letter that a letter is easily taken for, or the character itself."""
    if not character.isalpha() or character.isascii() or _TWO_A_WORD.match(character):
        return character
    from confusable_homoglyphs import confusables

    confusable: Any = confusables.is_confusable(character, greedy=True, preferred_aliases=["latin"])
    alike = [homoglyph["c"] for entry in confusable or () for homoglyph in entry["homoglyphs"]]
    return next((value for value in alike if len(value) == 1 and value.isascii() and value.isalpha()), character)


def transform_words(words: Words) -> tuple[Words, ...]:
    """Return words in rot13, in the reverse order, and spelled backwards; nothing for a few words.

    Each is its own inverse: a text turned like this is found by looking for what this returns of the plain one.
    """
    if count_words(tuple(filter(str.isalpha, words))) < _LEAST_LETTERED:
        return ()
    rotated = tuple(word.translate(_ROT13) for word in words)
    forms = rotated, words[::-1], tuple(word[::-1] for word in reversed(words))
    return tuple(form for form in forms if form != words)


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


def count_letters(words: Words) -> int:
    """Return how many of the words are letters of scripts without spaces."""
    return sum(
        (_TWO_A_WORD.match(word) or _THREE_A_WORD.match(word)) is not None for word in words if not word.isascii()
    )


def count_words(words: Words) -> int:
    """Return the length of a text in words of a language with spaces; signs such as + do not count.

    Two letters of Chinese or Japanese, and three of Thai, make about one word.
    """
    twos = sum(_TWO_A_WORD.match(word) is not None for word in words if not word.isascii())
    threes = count_letters(words) - twos
    signs = sum(unicodedata.category(word[0]) in ("Sm", "Sc", "Sk") for word in words)
    return len(words) - signs - (twos - -(-twos // 2)) - (threes - -(-threes // 3))


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
    if count_words(words) < LEAST_STEMS or len(stems) < LEAST_STEMS:
        return None
    return tuple(stems), tuple(word for word in words if any(map(str.isdigit, word)))


@lru_cache(maxsize=65536)
def _stem(word: str) -> str:
    return _stemmer().stemWord(word)


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    import Stemmer

    return Stemmer.Stemmer("english")
