"""Finds runs of words of protected texts in other texts, so half a sentence too.

Letter case, spaces, punctuation, invisible characters, compatibility forms (full-width letters, ligatures) and JSON's
escapes at any depth make no difference. Not found: other encodings (base64, rot13), letters written apart or run
together, look-alikes of other scripts, translations, and pieces shorter than a run.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_SIGNS = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
_UNSEEN = "\u00ad\u200b-\u200f\u2060-\u2064\ufe00-\ufe0f\ufeff"
# First JSON's escapes of line ends and tabs, whose letter belongs to no word. Han, kana and hangul are written without
# spaces, so each of their characters is a word.
_TOKEN = re.compile(
    rf"\\+[nrtbf]|(?P<sign>[{_SIGNS}])"
    rf"|(?P<word>(?:\\+u[0-9a-fA-F]{{4}}|[^\W_{_SIGNS}]|[\u0300-\u036f{_UNSEEN}])+)"
)
_ESCAPED = re.compile(r"\\+u([0-9a-fA-F]{4})")
_INVISIBLE = re.compile(f"[{_UNSEEN}]")
SHORTEST = 12
"""Characters. Shorter texts and runs occur in any text."""


class Word(NamedTuple):
    """A word in its compared form, and its place."""

    form: str
    start: int
    end: int


def words_of(text: str) -> Iterator[Word]:
    """Yield the words of a text in order."""
    for match in _TOKEN.finditer(text):
        if match.lastgroup is None:
            continue
        form = match.group()
        if form.isascii() and "\\" not in form:
            yield Word(form.lower(), *match.span())
            continue
        if "\\" in form:
            # An escape may mean a space, so the decoded text is split again, all of it at this place.
            plain = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), form)
            plain = plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            for word in words_of(plain):
                yield Word(word.form, *match.span())
            continue
        # What a sign stands for may begin with a space: a mark that is shown alone.
        form = "".join(unicodedata.normalize("NFKC", _INVISIBLE.sub("", form)).casefold().split())
        if form:
            yield Word(form, *match.span())


class ProtectedTexts:
    """Texts whose words must not be shown."""

    def __init__(self, texts: Iterable[str], run: int, known: Iterable[str] = ()) -> None:
        """Protect texts as a whole and by every ``run`` of their words that occurs in no ``known`` text."""
        self._run = run
        self._runs: set[str] = set()
        self._long: dict[str, list[list[str]]] = {}
        """The phrases by their first words."""
        self._short: set[str] = set()
        """Texts shorter than a run."""
        for text in texts:
            forms = [word.form for word in words_of(text)]
            if len(" ".join(forms)) < SHORTEST:
                continue
            if len(forms) < run:
                self._short.add(" ".join(forms))
                continue
            self._long.setdefault(" ".join(forms[:run]), []).append(forms)
            self._runs.update(text for text in self._runs_of(forms) if len(text) >= SHORTEST)
        self._lengths = sorted({len(text.split()) for text in self._short}, reverse=True)
        for matching_texts in self._long.values():
            matching_texts.sort(key=len, reverse=True)
        for text in known if self._runs else ():
            self._runs.difference_update(self._runs_of([word.form for word in words_of(text)]))

    def _runs_of(self, forms: list[str]) -> Iterator[str]:
        for start in range(len(forms) - self._run + 1):
            yield " ".join(forms[start : start + self._run])

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the places of words of protected texts, in order and without overlaps."""
        if not (self._long or self._short):
            return []
        words = list(words_of(text))
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
        """Return how many words from here on belong to a protected text."""
        run = " ".join(forms[start : start + self._run])
        for whole in self._long.get(run, ()):
            if forms[start : start + len(whole)] == whole:
                return len(whole)
        if run in self._runs:
            return self._run
        return next((length for length in self._lengths if " ".join(forms[start : start + length]) in self._short), 0)
