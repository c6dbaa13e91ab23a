"""Private names of torchft: where its managers listen, and what they synchronise by."""

from __future__ import annotations

from http.server import ThreadingHTTPServer
from typing import Any

VERSION = "0.2"
"""The minor version whose internals these are; the extra ``train`` excludes the next."""


def listen_at(host: str) -> None:
    """Have the managers of this process listen at one address only, and name it where they named the machine.

    torchft's ports are open to the whole network, and what it loads from others is pickled.
    """
    from torchft import _torchft, manager
    from torchft.checkpointing import http_transport

    class LocalServer(ThreadingHTTPServer):
        def __init__(self, _: Any, handler: Any) -> None:
            super().__init__((host, 0), handler)

    def make_server(bind: str, **arguments: Any) -> Any:
        return _torchft.ManagerServer(bind=f"{host}:0", **arguments)

    def address(self: Any) -> str:
        return f"http://{host}:{self._server.server_port}/checkpoint/"

    patched: Any = (manager, http_transport)
    patched[0].ManagerServer = make_server
    patched[1]._IPv6HTTPServer = LocalServer
    patched[1].HTTPTransport.address = address


def sync_every(diloco: Any) -> int:
    """Return after how many steps a DiLoCo synchronises."""
    return diloco._sync_every


def min_replicas(manager: Any) -> int:
    """Return how many replicas a manager waits for."""
    return manager._min_replica_size


def quorum_id(manager: Any) -> int:
    """Return the number of the quorum that a manager belongs to."""
    return manager._quorum_id
