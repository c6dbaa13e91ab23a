"""Which replicas wait for which others at a synchronisation, and when the log says so."""

from __future__ import annotations

import time
from collections.abc import Sequence

LOG_AFTER_S = 5.0


class Waits:
    """What is waited for at present, and what the log has said of it."""

    def __init__(self) -> None:
        self._now, self._since, self._logged = "", 0.0, set[str]()

    def lasts(self, what: str) -> bool:
        """Return whether to log what is waited for: once, where it has lasted for :data:`LOG_AFTER_S`."""
        if what != self._now:
            self._now, self._since = what, time.monotonic()
        if not what or what in self._logged or time.monotonic() - self._since < LOG_AFTER_S:
            return False
        self._logged.add(what)
        return True


def waiting(here: Sequence[int], missing: Sequence[int]) -> str:
    """Return in words which replicas wait for which; empty where none does."""
    return (
        f"{_format_replicas(here)} wait{'s' if len(here) == 1 else ''} for {_format_replicas(missing)}"
        if here and missing
        else ""
    )


def _format_replicas(numbers: Sequence[int]) -> str:
    return f"replica{'' if len(numbers) == 1 else 's'} {', '.join(map(str, numbers))}"
