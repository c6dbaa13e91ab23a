"""The door of the tool server: no web pages, and a bounded number of MCP sessions."""

from __future__ import annotations

from collections import Counter, OrderedDict

from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_SESSIONS = 64
_SESSION = b"mcp-session-id"


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
        elif answer["status"] < 300 and (arguments := dict(answer["headers"]).get(_SESSION)) is not None:
            self._used[arguments] = None

    async def _make_room(self, scope: Scope) -> None:
        """End sessions as their client would, with the token of the request that was just served."""
        idle = [data for data in self._used if data not in self._busy]
        for session in idle[: max(len(self._used) - self._most, 0)]:
            self._used.pop(session, None)
            remaining = [header for header in scope["headers"] if header[0] in (b"host", b"authorization", b"accept")]
            ending = {**scope, "method": "DELETE", "headers": [*remaining, (_SESSION, session)]}
            await self._app(ending, _no_body, _unheard)


async def _no_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _unheard(message: Message) -> None:
    """No one waits for this answer."""
