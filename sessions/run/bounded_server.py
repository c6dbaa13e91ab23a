"""Bounds for a server that is open to its network: connections, and time for a request.

A new connection replaces the connection that has waited longest for a whole request, and each has to send headers in
time, so that neither descriptors nor places run out.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 64
HEADERS_S = 10.0
"""Seconds a connection may be without a whole request, from its beginning or its last answer."""
BACKLOG = 16
"""Connections that the event loop accepts at once: each is a descriptor before it is counted."""


class ConnectionSlots:
    """The open connections; each keeps the order in which they began to wait for a request."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: set[LimitedConnection] = set()
        self._waiting: dict[LimitedConnection, bool] = {}
        """In order, whether a connection has been served before."""

    def take(self, connection: LimitedConnection) -> bool:
        """Give a place to a new connection, if need be another's; False if every other serves a request."""
        if len(self._open) >= self._most:
            if not self._waiting:
                return False
            oldest = min(self._waiting, key=self._waiting.__getitem__)
            self.leave(oldest)
            oldest.transport.abort()
        self._open.add(connection)
        self._waiting[connection] = False
        return True

    def serve(self, connection: LimitedConnection) -> None:
        """Protect the place of a connection whose request is being answered."""
        self._waiting.pop(connection, None)

    def wait(self, connection: LimitedConnection) -> None:
        """Note that an answer is complete."""
        if connection in self._open:
            self._waiting[connection] = True

    def leave(self, connection: LimitedConnection) -> None:
        """Forget a connection."""
        self.serve(connection)
        self._open.discard(connection)


class LimitedConnection(H11Protocol):
    """A connection with a place, which it loses without a whole request in time."""

    places: ConnectionSlots
    _deadline: asyncio.TimerHandle | None = None

    @property
    def is_answering(self) -> bool:
        """Return whether the headers of a request are whole, and its answer is not."""
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a place, or close at once."""
        super().connection_made(transport)
        if self.places.take(self):
            self._begin_to_wait()
        else:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read; only a whole request ends the wait."""
        super().data_received(data)
        self._serve_if_whole()

    def on_response_complete(self) -> None:
        """Wait for the next request; it may have come with the last one."""
        self.places.wait(self)
        self._begin_to_wait()
        super().on_response_complete()
        self._serve_if_whole()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self._stop_waiting()
        self.places.leave(self)
        super().connection_lost(exc)

    def _serve_if_whole(self) -> None:
        if self.is_answering:
            self._stop_waiting()
            self.places.serve(self)

    def _begin_to_wait(self) -> None:
        self._stop_waiting()
        self._deadline = self.loop.call_later(HEADERS_S, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def make_bounded_protocol(most: int) -> type[LimitedConnection]:
    """Return the protocol of a server with so many connections at once."""
    return type("BoundedConnection", (LimitedConnection,), {"places": ConnectionSlots(most)})
