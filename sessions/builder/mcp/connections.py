"""Bounds for a server that everybody on its address can reach: connections, time for a request, MCP sessions.

Without the token nobody keeps a place: the connection that has waited longest for a whole request gives up its place to
a new one, and each has to send the headers of a request in a bounded time. So neither descriptors nor places run out.
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
"""How long a connection may be without a whole request, from its beginning or its last answer."""
BACKLOG = 16
"""Connections the kernel keeps and the event loop accepts at once: each is a descriptor before it can be counted."""
_SESSION = b"mcp-session-id"


class Places:
    """The open connections; each keeps the order in which they began to wait for a request."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: set[Connection] = set()
        self._strangers: OrderedDict[Connection, None] = OrderedDict()
        self._idle: OrderedDict[Connection, None] = OrderedDict()

    def take(self, connection: Connection) -> bool:
        """Give a place to a new connection, another's if there is none; False if every other serves a request."""
        if len(self._open) >= self._most:
            oldest = next(iter(self._strangers), None) or next(iter(self._idle), None)
            if oldest is None:
                return False
            self.leave(oldest)
            oldest.transport.abort()
        self._open.add(connection)
        self._strangers[connection] = None
        return True

    def serve(self, connection: Connection) -> None:
        """Say that a request is being answered: nobody takes this place."""
        self._strangers.pop(connection, None)
        self._idle.pop(connection, None)

    def wait(self, connection: Connection) -> None:
        """Say that an answer is complete."""
        if connection in self._open:
            self._idle[connection] = None

    def leave(self, connection: Connection) -> None:
        """Forget a connection."""
        self.serve(connection)
        self._open.discard(connection)


class Connection(H11Protocol):
    """A connection with a place, which it loses when it sends no whole request in time."""

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
        """Read; what is no whole request does not give more time."""
        super().data_received(data)
        if self.is_answering:
            self._stop_waiting()
            self.places.serve(self)

    def on_response_complete(self) -> None:
        """Wait for the next request; it may have come with the last one."""
        self.places.wait(self)
        self._begin_to_wait()
        super().on_response_complete()
        if self.is_answering:
            self._stop_waiting()
            self.places.serve(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self._stop_waiting()
        self.places.leave(self)
        super().connection_lost(exc)

    def _begin_to_wait(self) -> None:
        self._stop_waiting()
        self._deadline = self.loop.call_later(HEADERS_S, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def bounded(most: int) -> type[Connection]:
    """Return the protocol of one server, which serves so many connections at once."""
    return type("BoundedConnection", (Connection,), {"places": Places(most)})


class Door:
    """Refuses web pages, and ends the MCP session that was idle longest when there are too many.

    Clients leave sessions behind when they are started again; one that waits for an answer is never ended.
    """

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
            # An empty one too: only browsers send any.
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
        """Take down which sessions there are, from the answers of the server."""
        if named is not None and (answer["status"] == 404 or (method == "DELETE" and answer["status"] < 300)):
            self._used.pop(named, None)
        elif answer["status"] < 300 and (given := dict(answer["headers"]).get(_SESSION)) is not None:
            self._used[given] = None

    async def _make_room(self, scope: Scope) -> None:
        """End sessions as their client would: the request that was just let in has the token."""
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
