"""Where a replica listens: torchft's ports are open to the whole network, and what it loads from others is pickled."""

from __future__ import annotations

import socket
from http.server import ThreadingHTTPServer
from typing import Any


def store_at(host: str) -> Any:
    """Return a store that listens at one address only."""
    from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

    listens = socket.create_server((host, 0))
    port, count = listens.getsockname()[1], listens.detach()
    return TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=count)


def listen_at(host: str) -> None:
    """Have the managers of this process listen at one address only, and name it where they named the machine."""
    from torchft import _torchft, manager
    from torchft.checkpointing import http_transport

    class Here(ThreadingHTTPServer):
        def __init__(self, _: Any, handler: Any) -> None:
            super().__init__((host, 0), handler)

    def server(bind: str, **arguments: Any) -> Any:
        return _torchft.ManagerServer(bind=f"{host}:0", **arguments)

    def address(self: Any) -> str:
        return f"http://{host}:{self._server.server_port}/checkpoint/"

    patched: Any = (manager, http_transport)
    patched[0].ManagerServer = server
    patched[1]._IPv6HTTPServer = Here
    patched[1].HTTPTransport.address = address
