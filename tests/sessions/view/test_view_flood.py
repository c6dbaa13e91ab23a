"""The page is bounded as the tool server: connections that say nothing, or not enough, keep no one out."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import psutil
import pytest

from sessions.pages.view.places import Scope
from sessions.pages.view.serving import HOST, PageServer
from sessions.run import bounded_server
from sessions.run.bounded_server import BACKLOG, MOST_CONNECTIONS

CROWD = 150
pytestmark = pytest.mark.integration


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PageServer]:
    monkeypatch.setattr(bounded_server, "HEADERS_S", 1.0)
    bound = PageServer(Scope(tmp_path), 0)
    server = bound.server()
    thread = threading.Thread(target=lambda: server.run(sockets=[bound.socket]), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield bound
    server.should_exit = True
    thread.join(10)


@pytest.mark.parametrize(
    "content", [b"", b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx: "], ids=["nothing", "half a request"]
)
def test_a_crowd_takes_no_descriptors_and_keeps_no_one_out(page: PageServer, content: bytes) -> None:
    before = psutil.Process().num_fds()
    with ExitStack() as stack:
        for _ in range(CROWD):
            connection = stack.enter_context(socket.create_connection((HOST, page.port)))
            try:
                connection.sendall(content)
            except OSError:
                continue
        assert httpx2.get(page.address(), timeout=10).status_code == 200
        # Each of the crowd has a descriptor at this end as well.
        assert psutil.Process().num_fds() - before - CROWD <= MOST_CONNECTIONS + BACKLOG + 10
        time.sleep(1.5)
        assert psutil.Process().num_fds() - before - CROWD <= 10, "who says too little is closed"
