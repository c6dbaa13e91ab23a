"""What the checks of one gate make once: they judge the same rows, and nothing is kept for the next gate."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

Made = TypeVar("Made")
_made: ContextVar[dict[Hashable, tuple[object, Any]] | None] = ContextVar("made", default=None)


@contextmanager
def one_gate() -> Generator[None]:
    """Keep what :func:`once` makes until the end of the block."""
    before = _made.set({})
    try:
        yield
    finally:
        _made.reset(before)


def once(key: Hashable, of: object, make: Callable[[], Made]) -> Made:
    """Return what was made under this key of this very object earlier in the gate; outside of one, make it anew."""
    made = _made.get()
    if made is None:
        return make()
    if key not in made or made[key][0] is not of:
        made[key] = of, make()
    return made[key][1]
