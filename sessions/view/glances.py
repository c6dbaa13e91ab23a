"""What the list adds to a session's state when a browser asks for it: effect, money, what is waited for, damage."""

from __future__ import annotations

import threading
from typing import Any

from sessions.report.page_result import UNREADABLE, page_result
from sessions.view.places import Reader, stamp_of
from sessions.view.trail_state import Checks
from sessions.view.waits import busy_with

MOST = 5_000


class Glances:
    """What the list shows of a session beside its state."""

    def __init__(self, reader: Reader, checks: Checks) -> None:
        self._reader = reader
        self._checks = checks
        self._kept: dict[str, tuple[str, dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def of(self, name: str) -> dict[str, Any]:
        """Return effect and money of a session, what it waits for while it runs, and whether its trail is damaged."""
        try:
            place = self._reader.scope.place(name)
            stamp = stamp_of(place)
            if (known := self._kept.get(name)) is not None and known[0] == stamp:
                return known[1]
            entries = place.entries()
            found = page_result(entries, place.store)
            damaged = bool(self._checks.of(name).damage)
            told = (_told(found) if found else {}) | {"busy": busy_with(entries), "damaged": damaged}
        except (*UNREADABLE, OSError):
            return {}
        with self._lock:
            if len(self._kept) >= MOST:
                self._kept.clear()
            self._kept[name] = stamp, told
        return told

    def known(self, name: str) -> dict[str, Any]:
        """Return what was computed of a session before, however long ago; nothing if it never was."""
        return self._kept.get(name, ("", {}))[1]


def _told(found: dict[str, Any]) -> dict[str, Any]:
    effect = found["effect"]
    money = {name: found["costs"][name] for name in ("spent", "most", "left")}
    return money | ({name: effect[name] for name in ("gain", "interval", "p")} if effect else {})
