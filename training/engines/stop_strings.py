"""Stop strings in decoded text. A stop is the whole string, wherever the borders of its tokens lie.

A text that holds only a part of a stop continues. Not covered: a stop whose first characters are in the prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

SLACK = 8
"""Tokens before the window that is searched at each step: decoding from the middle can garble a first character."""


class StopMatch(NamedTuple):
    """Where a stop begins in a text, and which one it is."""

    at: int
    stop: str


def find_stop(text: str, stops: Sequence[str]) -> StopMatch | None:
    """Return the stop that begins first; if several begin there, the first declared."""
    hits = [StopMatch(at, stop) for stop in stops if (at := text.find(stop)) >= 0]
    return min(hits, key=lambda hit: hit.at, default=None)


class StopWatcher:
    """Watches rows of token ids for stop strings while they are written; raises ValueError if one is empty."""

    def __init__(self, tokenizer: Any, stops: Sequence[str], *, keep_special: bool) -> None:
        if "" in stops:
            raise ValueError("an empty stop string would end every text at once")
        self._tokenizer = tokenizer
        self._stops = tuple(stops)
        self._keep_special = keep_special
        # A token stands for at least one byte.
        self._window = max((len(stop.encode()) for stop in stops), default=0) + SLACK

    def text_of(self, ids: Sequence[int]) -> str:
        """Return the text of token ids."""
        if not self._keep_special:
            return self._tokenizer.decode(list(ids), skip_special_tokens=True)
        return self._tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def has_stopped(self, ids: Sequence[int]) -> bool:
        """Return whether the text of ids whose last one is new holds a stop."""
        if not self._stops or find_stop(self.text_of(ids[-self._window :]), self._stops) is None:
            return False
        # The window can show a stop that the whole text has not.
        return self.found_in(ids) is not None

    def found_in(self, ids: Sequence[int]) -> StopMatch | None:
        """Return the first stop in the whole text."""
        return find_stop(self.text_of(ids), self._stops) if self._stops else None
