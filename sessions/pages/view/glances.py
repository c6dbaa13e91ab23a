"""What the list adds to a session's state when a browser asks for it: effect, money, what is waited for, damage."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

from sessions.pages.report.page_result import UNREADABLE, page_result
from sessions.pages.view.places import TrailCache, stamp_of
from sessions.pages.view.trail_state import TrailAudits
from sessions.pages.view.waits import busy_with
from specs.system.errors import PeergateError

MOST = 5_000


class SessionSummaries:
    """What the list shows of a session next to its state."""

    def __init__(self, reader: TrailCache, checks: TrailAudits) -> None:
        self._reader = reader
        self._checks = checks
        self._cache: dict[str, tuple[str, dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def of(self, name: str) -> dict[str, Any]:
        """Return effect and money of a session, what it waits for, and whether its trail is damaged, once verified."""
        try:
            place = self._reader.scope.place(name)
            stamp = stamp_of(place)
            if (known := self._cache.get(name)) is not None and known[0] == stamp:
                return known[1]
            audit = self._checks.of(name)
            state: dict[str, Any] = {"damaged": bool(audit.damage) or not audit.readable}
            newest = self._checks.is_of(name, stamp)
        except (*UNREADABLE, OSError):
            return {}
        # Of a damaged trail there may be nothing else to tell.
        with suppress(*UNREADABLE, OSError):
            history = place.history()
            state |= {"busy": busy_with(history)} | _summarize_result(page_result(history))
        if not newest and not state["damaged"]:
            # It changed since: this trail was not verified.
            return {name: value for name, value in state.items() if name != "damaged"}
        with self._lock:
            if len(self._cache) >= MOST:
                self._cache.clear()
            self._cache[name] = stamp, state
        return state

    def read_cached(self, name: str) -> dict[str, Any]:
        """Return what was computed of a session before, and whether its trail is still the same (``verified``)."""
        stamp, remaining = self._cache.get(name, ("", {}))
        try:
            return remaining and remaining | {"verified": stamp == stamp_of(self._reader.scope.place(name))}
        except (PeergateError, OSError):
            return {}


def _summarize_result(result: dict[str, Any] | None) -> dict[str, Any]:
    if not result:
        return {}
    effect = result["effect"]
    money = {name: result["costs"][name] for name in ("spent", "most", "left")}
    return money | ({name: effect[name] for name in ("gain", "interval", "p")} if effect else {})
