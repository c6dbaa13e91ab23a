"""The store of a replica, which listens at one address only."""

from __future__ import annotations

import socket
from typing import Any


def store_at(host: str) -> Any:
    """Return a store that listens at one address only."""
    from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

    listens = socket.create_server((host, 0))
    port, count = listens.getsockname()[1], listens.detach()
    return TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=count)
