"""Serves a client over stdio, or HTTP with a token, in another thread: the session keeps signals and the trail."""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import stat
import threading
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal, TypeAlias

import anyio
import uvicorn
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import AnyHttpUrl

from sessions.mcp.connections import MOST_SESSIONS, Door
from sessions.run.bounded_server import BACKLOG, MOST_CONNECTIONS, make_bounded_protocol
from specs.system.errors import UserError
from specs.system.masking import know

SHORTEST = 32
"""Characters; a token made here has 43, which are 256 random bits."""
NAME = "the bearer token"
TokenKind = Literal["build", "manage", "read"]
"""What a token's holder may do, with which the token begins."""
_SERVERS: dict[TokenKind, str] = {
    "build": "a server that builds",
    "manage": "the management server",
    "read": "a server that only reads",
}
PATH = "/mcp"
NAMES_OF_THE_HOST = ("host.docker.internal", "host.containers.internal")
"""Names of the machine inside of its containers; no public name ends like this."""
STOP_S = 5.0


class Stdio:
    """Serves the process that started this one."""

    serves_single_client = True
    """The end of the connection is the end of the client."""

    def start(self, server: Server[Any], gone: Callable[[], None]) -> None:
        """Take over stdin and stdout, and call ``gone`` when they end; other output goes to stderr meanwhile."""
        ready = threading.Event()

        async def serve() -> None:
            async with stdio_server() as (incoming, outgoing):
                ready.set()
                await server.run(incoming, outgoing, server.create_initialization_options())

        def run() -> None:
            try:
                anyio.run(serve)
            finally:
                gone()
                ready.set()

        # A daemon: it may wait for a line on stdin that never comes.
        threading.Thread(target=run, name="mcp-stdio", daemon=True).start()
        ready.wait()

    def stop(self) -> None:
        """Do nothing: the connection ends with the client or this process."""


class Http:
    """Serves every client with the token, at one address."""

    serves_single_client = False

    def __init__(self, address: str, token: str) -> None:
        """Bind the address, before anything starts; raises UserError if that fails or would listen everywhere."""
        host, port = parse_address(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._socket = socket.create_server((host, port), family=family, backlog=BACKLOG)
        except OSError as error:
            raise UserError(f"cannot listen there: {error.strerror or error}", where=address) from error
        self._host, self._port = host, self._socket.getsockname()[1]
        self._token = token
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The address a client is given."""
        return f"http://{_bracket_ipv6(self._host)}:{self._port}{PATH}"

    def start(self, server: Server[Any], gone: Callable[[], None]) -> None:
        """Serve until stopped, and call ``gone`` then."""
        names = [_bracket_ipv6(self._host), "localhost", *NAMES_OF_THE_HOST]
        app = server.streamable_http_app(
            streamable_http_path=PATH,
            # A client may come back after a night; idle sessions end when there are too many.
            session_idle_timeout=None,
            max_sessions=2 * MOST_SESSIONS,
            transport_security=TransportSecuritySettings(
                allowed_hosts=[f"{name}:{self._port}" for name in names],
                # No web page may call, so no origin is allowed.
                allowed_origins=[],
            ),
            # The SDK wants the name of an authorization server. There is no such server, and no client hears of it.
            auth=AuthSettings(issuer_url=AnyHttpUrl(self.url), resource_server_url=None),
            token_verifier=StaticTokenVerifier(self._token),
        )
        config = uvicorn.Config(
            Door(app, MOST_SESSIONS),
            http=make_bounded_protocol(MOST_CONNECTIONS),
            ws="none",
            loop="asyncio",
            backlog=BACKLOG,
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_graceful_shutdown=1,
        )
        self._server = serving = uvicorn.Server(config)

        def run() -> None:
            try:
                serving.run(sockets=[self._socket])
            finally:
                gone()

        self._thread = threading.Thread(target=run, name="mcp-http", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Answer running requests for a second, and close."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(STOP_S)
        self._socket.close()


Transport: TypeAlias = Stdio | Http


class StaticTokenVerifier:
    """A :class:`mcp.server.auth.provider.TokenVerifier` that knows one token."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    async def verify_token(self, token: str) -> AccessToken | None:
        """Compare in constant time."""
        if not hmac.compare_digest(token.encode(), self._token):
            return None
        return AccessToken(token=token, client_id="client", scopes=[])


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of ``HOST:PORT``, ``[HOST]:PORT`` or ``PORT``, which is on loopback; UserError otherwise."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not port.isdecimal() or int(port) > 65535:
        raise UserError(f"invalid address '{address}'", hint="expected HOST:PORT or PORT, for example 127.0.0.1:8765")
    if _is_everywhere(host):
        hint = "name one address, for example that of the container network; the traffic is not encrypted"
        raise UserError(f"'{address}' would listen on every network of this machine", hint=hint)
    return host, int(port)


def _is_everywhere(host: str) -> bool:
    """Return whether a host stands for every address of this machine, in any spelling: 0.0.0.0, 0, 0x0, ::, ::0."""
    try:
        infos = socket.getaddrinfo(host, None, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        return host == "*"
    return any(ip_address(str(info[4][0]).partition("%")[0]).is_unspecified for info in infos)


def _bracket_ipv6(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def read_token(path: Path, kind: TokenKind) -> str:
    """Return the token of a file, made if it is missing.

    Raises:
        UserError: others can read it, it is too short, or it is of another kind: who reads neither builds nor manages.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return _make(path, kind)
    except OSError as error:
        raise UserError(f"the token cannot be read: {error.strerror}", where=str(path)) from error
    with os.fdopen(handle, "rb") as file:
        # Of the open file, which no one can replace between the check and the reading.
        stat_result = os.fstat(file.fileno())
        if not stat.S_ISREG(stat_result.st_mode):
            raise UserError("the token file is not a regular file", where=str(path))
        mode = stat.S_IMODE(stat_result.st_mode)
        if mode & 0o077 or stat_result.st_uid != os.getuid():
            message = f"the token's file has mode {mode:04o} and owner {stat_result.st_uid}, not 0600 and {os.getuid()}"
            hint = f"chmod 600 {path}, and take a new token if others could read it"
            raise UserError(message, where=str(path), hint=hint)
        token = file.read(4096).decode("utf-8", "replace").strip()
    if len(token) < SHORTEST or not token.isascii() or any(text.isspace() for text in token):
        message = f"the token is not one word of at least {SHORTEST} ASCII characters"
        raise UserError(message, where=str(path), hint="remove the file: a new token is made")
    if not token.startswith(f"{kind}-"):
        other = next((what for token_kind, what in _SERVERS.items() if token.startswith(f"{token_kind}-")), "")
        message = f"this token is for {other}, not for this one" if other else "this token does not say what it is for"
        hint = f"each server makes its own token file if it is missing; this one's begins with {kind}-"
        raise UserError(message, where=str(path), hint=hint)
    know(NAME, token)
    return token


def _make(path: Path, kind: TokenKind) -> str:
    token = f"{kind}-" + secrets.token_urlsafe(32)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise UserError(f"the token file cannot be created: {error.strerror}", where=str(path)) from error
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(f"{token}\n")
    know(NAME, token)
    return token
