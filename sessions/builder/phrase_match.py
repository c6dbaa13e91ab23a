"""Finds the words of protected texts in other texts, however they are spaced, cased or escaped.

Texts are compared as sequences of words: letter case, spaces, punctuation, invisible characters, compatibility forms
(full-width letters, ligatures) and the escapes of JSON at any depth make no difference. Found are runs of so many words
that stand in a protected text, so half a sentence is found too. Not found: other encodings (base64, rot13), letters
written apart or run together, look-alikes of other scripts, translations, and pieces shorter than a run.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_SIGNS = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
_UNSEEN = "\u00ad\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff"
# First what JSON writes for a line end and the like: its letter belongs to no word. Han, kana and hangul are written
# without spaces, so each of their characters is a word.
_TOKEN = re.compile(
    rf"\\+[nrtbf]|(?P<sign>[{_SIGNS}])"
    rf"|(?P<word>(?:\\+u[0-9a-fA-F]{{4}}|[^\W_{_SIGNS}]|[\u0300-\u036f{_UNSEEN}])+)"
)
_ESCAPED = re.compile(r"\\+u([0-9a-fA-F]{4})")
_INVISIBLE = re.compile(f"[{_UNSEEN}]")
SHORTEST = 12
"""Characters. Shorter texts and runs are words that stand in any text."""


class Word(NamedTuple):
    """A word in the form in which it is compared, and where it stands."""

    form: str
    start: int
    end: int


def words_of(text: str) -> list[Word]:
    """Return the words of a text in order."""
    return list(_words(text))


def _words(text: str) -> Iterator[Word]:
    for found in _TOKEN.finditer(text):
        if found.lastgroup is None:
            continue
        form = found.group()
        if form.isascii() and "\\" not in form:
            yield Word(form.lower(), *found.span())
            continue
        if "\\" in form:
            # An escape may stand for a space: what it stands for is taken apart again, all of it at this place.
            plain = _ESCAPED.sub(lambda one: chr(int(one[1], 16)), form)
            plain = plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            for word in _words(plain):
                yield Word(word.form, *found.span())
            continue
        form = unicodedata.normalize("NFKC", _INVISIBLE.sub("", form)).casefold()
        if form:
            yield Word(form, *found.span())


class Protected:
    """Texts whose words must not be shown."""

    def __init__(self, texts: Iterable[str], run: int, known: Iterable[str] = ()) -> None:
        """Take the texts in.

        Args:
            texts: what is protected. Each one is found as a whole, and by every run of its words.
            run: how many words in a row are taken for a piece of a protected text.
            known: texts that may be read; a run that stands in one of them is no secret.
        """
        self._run = run
        self._runs: set[str] = set()
        self._long: dict[str, list[list[str]]] = {}
        """By their first words."""
        self._short: set[str] = set()
        """Of fewer words than a run has."""
        for text in texts:
            forms = [word.form for word in _words(text)]
            if len(" ".join(forms)) < SHORTEST:
                continue
            if len(forms) < run:
                self._short.add(" ".join(forms))
                continue
            self._long.setdefault(" ".join(forms[:run]), []).append(forms)
            self._runs.update(one for one in self._runs_of(forms) if len(one) >= SHORTEST)
        self._lengths = sorted({len(one.split()) for one in self._short}, reverse=True)
        for found in self._long.values():
            found.sort(key=len, reverse=True)
        for text in known if self._runs else ():
            self._runs.difference_update(self._runs_of([word.form for word in _words(text)]))

    def _runs_of(self, forms: list[str]) -> Iterator[str]:
        for start in range(len(forms) - self._run + 1):
            yield " ".join(forms[start : start + self._run])

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return where words of protected texts stand, in order and without overlaps."""
        if not (self._long or self._short):
            return []
        words = words_of(text)
        forms = [word.form for word in words]
        covered = 0
        spans: list[tuple[int, int]] = []
        for start in range(len(words)):
            length = self._longest(forms, start)
            if not length or start + length <= covered:
                continue
            first, last = words[start].start, words[start + length - 1].end
            if spans and start <= covered:
                spans[-1] = spans[-1][0], last
            else:
                spans.append((first, last))
            covered = start + length
        return spans

    def _longest(self, forms: list[str], start: int) -> int:
        """Return how many words from here on are those of a protected text."""
        run = " ".join(forms[start : start + self._run])
        for whole in self._long.get(run, ()):
            if forms[start : start + len(whole)] == whole:
                return len(whole)
        if run in self._runs:
            return self._run
        return next((one for one in self._lengths if " ".join(forms[start : start + one]) in self._short), 0)
