"""One deadline over a whole exchange with a vendor, a wait that is never shortened, and answers that are too deep."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import httpx2
import pytest

from sessions.pages.report import page_result
from specs.system.vendors import http_exchange
from specs.system.vendors.http_exchange import RecordedClient, backoff_s

Serve = Callable[[socket.socket], None]


@pytest.fixture
def served() -> Iterator[Callable[[Serve], str]]:
    """Serve one connection in a way; returns the address."""
    listening: list[socket.socket] = []

    def start(serve: Serve) -> str:
        server = socket.create_server(("127.0.0.1", 0))
        listening.append(server)

        def accept() -> None:
            connection, _ = server.accept()
            with connection:
                try:
                    serve(connection)
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        return f"http://127.0.0.1:{server.getsockname()[1]}/v1"

    yield start
    for server in listening:
        server.close()


def drip(connection: socket.socket, start: bytes) -> None:
    """Send a byte now and then, for longer than any deadline here."""
    connection.recv(65536)
    connection.sendall(start)
    for _ in range(600):
        connection.sendall(b"a")
        time.sleep(0.02)


DRIPPING: dict[str, bytes] = {
    "the status line": b"HTTP/1.",
    "a header": b"HTTP/1.1 200 OK\r\nx-long: ",
    "the body": b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n",
    "a chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffff\r\n",
    "a trailer": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx-long: ",
}


@pytest.mark.parametrize("part", DRIPPING)
def test_a_server_that_drips_ends_at_the_deadline(served: Callable[[Serve], str], part: str) -> None:
    address = served(lambda connection: drip(connection, DRIPPING[part]))
    began = time.monotonic()
    with RecordedClient(0.5, "a-key-of-the-tests") as client:
        with pytest.raises(httpx2.ReadTimeout, match=r"did not (begin|end) in time"):
            client.post(address, json={})
        assert client.may_be_billed or part == "the body"
    assert 0.4 < time.monotonic() - began < 10


def test_a_server_that_says_nothing_ends_at_the_deadline(served: Callable[[Serve], str]) -> None:
    began = time.monotonic()
    with RecordedClient(0.3, "a-key-of-the-tests") as client, pytest.raises(httpx2.ReadTimeout):
        client.post(served(lambda connection: time.sleep(60)), json={})
    assert time.monotonic() - began < 20


def test_an_answer_in_time_is_whole_and_the_timer_ends_nothing_later(served: Callable[[Serve], str]) -> None:
    def answer(connection: socket.socket) -> None:
        for _ in range(2):
            request = b""
            while not request.endswith(b"{}"):
                request += connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

    address = served(answer)
    with RecordedClient(0.4, "a-key-of-the-tests") as client:
        assert client.post(address, json={}).json() == {}
        time.sleep(0.5)
        client.allow(5)
        assert client.post(address, json={}).json() == {}


def least(low: float, _: float) -> float:
    """Draw the least."""
    return low


@pytest.mark.parametrize("repeats", range(6))
@pytest.mark.parametrize("wish_s", [None, 0.0, 0.001, 0.5])
def test_a_server_never_shortens_the_own_wait(
    repeats: int, wish_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_exchange.random, "uniform", least)
    assert backoff_s(repeats, wish_s, 60.0) == min(2.0**repeats, 60.0)


def test_a_server_may_ask_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_exchange.random, "uniform", least)
    assert backoff_s(0, 90.0, 60.0) == 90.0


def test_what_is_nested_too_deep_is_an_unreadable_answer() -> None:
    for known in (http_exchange.UNREADABLE, page_result.UNREADABLE):
        assert RecursionError in known
