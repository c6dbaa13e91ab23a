"""Bounds for a server that everybody on its address can reach: connections, time for a request, MCP sessions.

A new connection takes the place of the one that has waited longest for a whole request, and each has to send headers in
time, so that neither descriptors nor places run out.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 64
MOST_SESSIONS = 64
HEADERS_S = 10.0
"""Seconds a connection may be without a whole request, from its beginning or its last answer."""
BACKLOG = 16
"""Connections that the event loop accepts at once: each is a descriptor before it is counted."""
_SESSION = b"mcp-session-id"


class Places:
    """The open connections; each keeps the order in which they began to wait for a request."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: set[Connection] = set()
        self._waiting: dict[Connection, bool] = {}
        """In order, whether a connection has been served before."""

    def take(self, connection: Connection) -> bool:
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

    def serve(self, connection: Connection) -> None:
        """Protect the place of a connection whose request is being answered."""
        self._waiting.pop(connection, None)

    def wait(self, connection: Connection) -> None:
        """Note that an answer is complete."""
        if connection in self._open:
            self._waiting[connection] = True

    def leave(self, connection: Connection) -> None:
        """Forget a connection."""
        self.serve(connection)
        self._open.discard(connection)


class Connection(H11Protocol):
    """A connection with a place, which it loses without a whole request in time."""

    places: Places
    _deadline: asyncio.TimerHandle | None = None

    @property
    def is_answering(self) -> bool:
        """Whether the headers of a request are whole, and its answer is not."""
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


def bounded(most: int) -> type[Connection]:
    """Return the protocol of a server with so many connections at once."""
    return type("BoundedConnection", (Connection,), {"places": Places(most)})


class Door:
    """Refuses web pages; of too many MCP sessions, which restarted clients leave, it ends those idle the longest."""

    def __init__(self, app: ASGIApp, most_sessions: int) -> None:
        self._app = app
        self._most = most_sessions
        self._used: OrderedDict[bytes, None] = OrderedDict()
        self._busy: Counter[bytes] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if b"origin" in headers:
            # An empty origin too: only browsers send one.
            await send({"type": "http.response.start", "status": 403, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})
            return
        ending = dict(scope)
        named = headers.get(_SESSION)

        async def watching(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._learn(scope["method"], named, message)
            await send(message)

        if named is not None:
            self._busy[named] += 1
        try:
            await self._app(scope, receive, watching)
        finally:
            if named is not None:
                self._busy[named] -= 1
                if not self._busy[named]:
                    del self._busy[named]
                if named in self._used:
                    self._used.move_to_end(named)
        await self._make_room(ending)

    def _learn(self, method: str, named: bytes | None, answer: Message) -> None:
        """Keep track of the sessions by the answers of the server."""
        if named is not None and (answer["status"] == 404 or (method == "DELETE" and answer["status"] < 300)):
            self._used.pop(named, None)
        elif answer["status"] < 300 and (given := dict(answer["headers"]).get(_SESSION)) is not None:
            self._used[given] = None

    async def _make_room(self, scope: Scope) -> None:
        """End sessions as their client would, with the token of the request that was just served."""
        idle = [one for one in self._used if one not in self._busy]
        for session in idle[: max(len(self._used) - self._most, 0)]:
            self._used.pop(session, None)
            kept = [one for one in scope["headers"] if one[0] in (b"host", b"authorization", b"accept")]
            ending = {**scope, "method": "DELETE", "headers": [*kept, (_SESSION, session)]}
            await self._app(ending, _no_body, _unheard)


async def _no_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _unheard(message: Message) -> None:
    """Nobody waits for this answer."""
