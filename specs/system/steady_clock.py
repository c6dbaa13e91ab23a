"""The time of one process: the system's when it began, and from then on a clock that no one sets."""

from __future__ import annotations

import time

REPORT_S = 60.0
"""A difference to the system's clock that is worth a word."""


def ticks_ns() -> int:
    """Return nanoseconds since this machine started, its sleep included."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class SteadyClock:
    """Goes on evenly while the system's clock is set, forward or back."""

    def __init__(self) -> None:
        self._began_ns, self._ticks_ns = time.time_ns(), ticks_ns()
        self._reported_s = 0.0

    def now_ns(self) -> int:
        """Return nanoseconds since 1970."""
        return self._began_ns + ticks_ns() - self._ticks_ns

    def after(self, ns: int) -> int:
        """Return :meth:`now_ns`; if that is before another time, go on from there."""
        now = self.now_ns()
        self._began_ns += max(ns - now, 0)
        return max(now, ns)

    def jump(self) -> str:
        """Return in words how the system's clock was set since the last call; empty if it was not."""
        moved = (time.time_ns() - self.now_ns()) / 1e9
        since, self._reported_s = moved - self._reported_s, moved
        if abs(since) < REPORT_S:
            self._reported_s -= since
            return ""
        way = "forward" if since > 0 else "back"
        amount = f"{abs(since) / 3600:.1f} h" if abs(since) >= 3600 else f"{abs(since):.0f} s"
        return f"the clock of this machine was set {way} by {amount}; hours are counted by a clock that no one sets"
