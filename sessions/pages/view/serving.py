"""Binds the page to a loopback address and serves it until it is interrupted."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import uvicorn

from sessions.pages.view.access import ENTER, Access, onward
from sessions.pages.view.answers import PageAnswers
from sessions.pages.view.places import Scope
from sessions.pages.view.server import Viewer
from sessions.run.bounded_server import BACKLOG, MOST_CONNECTIONS, make_bounded_protocol
from specs.system.errors import UserError

HOST = "127.0.0.1"


class PageServer:
    """A page that has its address already, so that a taken port is one error before anything is served."""

    def __init__(self, scope: Scope, port: int, by: str | None = None) -> None:
        """Bind the port, any free one for 0; raises UserError if it cannot be had. ``by`` may answer on the pages."""
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.socket.bind((HOST, port))
        except (OSError, OverflowError) as error:
            self.socket.close()
            message = getattr(error, "strerror", None) or str(error)
            raise UserError(
                f"port {port} is not available: {message}", hint="choose another --port, or omit it"
            ) from error
        self.port: int = self.socket.getsockname()[1]
        self.access = Access(Viewer(scope, PageAnswers(by) if by else None).app(), self.port, acts=by is not None)

    def address(self, path: str = "") -> str:
        """Return the address that lets a browser in, at a page."""
        return f"http://{HOST}:{self.port}{ENTER}{self.access.token}/{path}"

    @contextmanager
    def door(self, path: str) -> Generator[str]:
        """Give the address of a file that leads to a page, as long as the block lasts.

        A browser is started with the address as an argument, which other users of the machine can read; the token is
        in the file, which they cannot.
        """
        with tempfile.TemporaryDirectory(prefix="peergate-view-") as folder:
            file = Path(folder) / "open.html"
            file.write_text(onward(self.address(path)), encoding="utf-8")
            yield file.as_uri()

    def server(self) -> uvicorn.Server:
        """Return the server, which stops soon although streams are open."""
        settings: dict[str, Any] = {"log_level": "warning", "access_log": False, "lifespan": "off"}
        settings |= {
            "server_header": False,
            "timeout_graceful_shutdown": 1,
            "ws": "none",
            "proxy_headers": False,
            "interface": "asgi3",
            "http": make_bounded_protocol(MOST_CONNECTIONS),
            "loop": "asyncio",
            "backlog": BACKLOG,
        }
        return uvicorn.Server(uvicorn.Config(self.access, **settings))

    def serve(self) -> None:
        """Serve until the process is interrupted."""
        with suppress(KeyboardInterrupt):
            self.server().run(sockets=[self.socket])
