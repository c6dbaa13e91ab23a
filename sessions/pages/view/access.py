"""Who may read the page: a browser on this machine that was given the token, by reading alone unless it may answer.

Everything else is refused before any page is made. A page of another site cannot ask: its requests come without the
cookie, and a name that it points at this machine is not the name of a loopback address.
"""

from __future__ import annotations

import html
import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
ENTER = "/enter/"
"""The token follows. Its page sets the cookie and leads on, so that the token stays in no address."""


class Access:
    """Lets requests through to the pages; ``token`` is for the address that is printed, the cookie is another."""

    def __init__(self, app: App, port: int, *, acts: bool = False) -> None:
        self.token = secrets.token_hex(16)
        self._cookie = secrets.token_urlsafe(24)
        # Cookies do not know ports: two pages on one machine would take each other's.
        self._name = f"peergate_view_{port}"
        self._app = app
        self._acts = acts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        path: str = scope["path"]
        if _host(headers.get("host", "")) not in LOOPBACK:
            await _answer(send, 421, "This page is only for this machine.")
        elif scope["method"] not in ("GET", "HEAD") and not (self._acts and _is_answer(scope["method"], path)):
            await _answer(send, 405, "This page is only for reading.")
        elif path.startswith(ENTER):
            await self._enter(path.removeprefix(ENTER), send)
        elif not secrets.compare_digest(_cookie(headers.get("cookie", ""), self._name), self._cookie):
            await _answer(send, 403, "Open the address that `peergate view` printed: this browser has no key yet.")
        elif scope["method"] == "POST" and headers.get("sec-fetch-site", "same-origin") != "same-origin":
            # The key in the form is what keeps other pages out; browsers say where a form comes from, too.
            await _answer(send, 403, "This form comes from another page.")
        else:
            await self._app(scope, receive, _with_headers(send))

    async def _enter(self, text: str, send: Send) -> None:
        token, _, where = text.partition("/")
        if not token.isascii() or not secrets.compare_digest(token, self.token):
            await _answer(send, 403, "This is not the token that `peergate view` printed.")
            return
        cookie = f"{self._name}={self._cookie}; HttpOnly; SameSite=Strict; Path=/"
        await _answer(send, 200, onward(_place(where)), ((b"set-cookie", cookie.encode()),), b"text/html")


def _is_answer(method: str, path: str) -> bool:
    """Return whether a request is one of the two that act: an answer or a verdict of one session."""
    return method == "POST" and re.fullmatch(r"/s/[^/]+/(answer|verdict)", path) is not None


def _place(where: str) -> str:
    """Return the path of a page of this server that an address leads to."""
    # One slash: two would lead to another machine.
    return "/" + re.sub(r"[^A-Za-z0-9/._-]", "", where).lstrip("/")


def onward(address: str) -> str:
    """Return a page that leads on at once.

    No redirect: browsers send a strict cookie only where a page of this server leads to the next one.
    """
    text = html.escape(address)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Peergate</title>'
        f'<meta http-equiv="refresh" content="0;url={text}"><p><a href="{text}">Continue</a></p>'
    )


def _host(header: str) -> str:
    """Return the name in a Host header, without its port."""
    name, colon, port = header.lower().rpartition(":")
    return name if colon and port.isdecimal() else header.lower()


def _cookie(header: str, name: str) -> str:
    try:
        morsel = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return morsel.value if morsel is not None and morsel.value.isascii() else ""


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *HEADERS]
        await send(message)

    return send_with_headers


async def _answer(
    send: Send, status: int, text: str, more: tuple[tuple[bytes, bytes], ...] = (), kind: bytes = b"text/plain"
) -> None:
    headers = [(b"content-type", kind + b"; charset=utf-8"), *HEADERS, *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": f"{text}\n".encode()})
