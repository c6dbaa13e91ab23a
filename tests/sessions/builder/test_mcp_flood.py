"""Floods at the HTTP server of `peergate mcp`: descriptors are bounded, and a client with the token is answered."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import psutil
import pytest
from mcp import Client

from agents.external_builder import BuilderExchange
from bench.attack import flood
from bench.attack.flood import ACCEPT, INITIALIZE
from sessions.mcp.connections import MOST_SESSIONS
from sessions.mcp.tool_server import make_server
from sessions.mcp.transports import Http
from sessions.run import bounded_server
from sessions.run.bounded_server import BACKLOG, MOST_CONNECTIONS
from testing.fixtures.mcp_client import connected, http_transport

pytestmark = pytest.mark.integration

TOKEN = "t" * 43
BEARER = {"authorization": f"Bearer {TOKEN}"}
CROWD = 400


@pytest.fixture
def exchange() -> BuilderExchange:
    """An exchange whose session has ended: every call is answered at once."""
    exchange = BuilderExchange()
    exchange.ended = "the session is closed"
    return exchange


@pytest.fixture(scope="module")
def client() -> Iterator[httpx2.Client]:
    """A client that is made once: each reads the machine's certificates."""
    with httpx2.Client(headers=ACCEPT, timeout=20, limits=httpx2.Limits(max_keepalive_connections=0)) as client:
        yield client


@pytest.fixture
def http(exchange: BuilderExchange, client: httpx2.Client) -> Iterator[Http]:
    server = Http("127.0.0.1:0", TOKEN)
    server.start(make_server(exchange, "small"), lambda: None)
    try:
        until(lambda: client.get(server.url).status_code == 401)
        yield server
    finally:
        server.stop()


def opened(client: httpx2.Client, server: Http, **headers: str) -> httpx2.Response:
    return client.post(server.url, json=INITIALIZE, headers=BEARER | headers)


def pinged(client: httpx2.Client, server: Http, session: str) -> int:
    named = {"mcp-session-id": session, "mcp-protocol-version": "2025-06-18"}
    ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    return client.post(server.url, json=ping, headers=BEARER | named).status_code


def connect(server: Http) -> socket.socket:
    return socket.create_connection(("127.0.0.1", httpx2.URL(server.url).port or 0), 5)


def until(holds: Callable[[], bool], most_s: float = 20) -> None:
    end = time.monotonic() + most_s
    while True:
        try:
            if holds():
                return
        except httpx2.HTTPError:
            pass
        assert time.monotonic() < end
        time.sleep(0.05)


def is_closed(result: socket.socket, after_s: float) -> bool:
    result.settimeout(after_s)
    try:
        return result.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def test_a_crowd_of_connections_takes_few_descriptors_and_no_place_from_a_client(
    http: Http, client: httpx2.Client
) -> None:
    me = psutil.Process()
    base = me.num_fds()
    with ExitStack() as stack:
        for number in range(CROWD):
            stack.enter_context(connect(http))
            # Each iteration of the event loop accepts a few before it can close others.
            assert me.num_fds() - base - number - 1 <= MOST_CONNECTIONS + 6 * (BACKLOG + 1)
        until(lambda: me.num_fds() - base <= CROWD + MOST_CONNECTIONS)
        assert opened(client, http).status_code == 200
    until(lambda: me.num_fds() <= base)


@pytest.mark.parametrize("dripped", [b"", b"POST /mcp HTTP/1.1\r\nHost: x\r\nX: "], ids=["silent", "slow headers"])
def test_a_connection_without_a_whole_request_is_closed_in_time(
    http: Http, monkeypatch: pytest.MonkeyPatch, dripped: bytes
) -> None:
    monkeypatch.setattr(bounded_server, "HEADERS_S", 0.5)
    with connect(http) as result:
        result.sendall(dripped)
        began = time.monotonic()
        while not is_closed(result, 0.1):
            assert time.monotonic() - began < 10
            if dripped:
                result.send(b"x")


def test_a_body_that_never_ends_keeps_no_place_without_the_token(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded_server, "HEADERS_S", 0.5)
    with connect(http) as result:
        result.sendall(b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n ")
        result.settimeout(10)
        assert result.recv(100).startswith(b"HTTP/1.1 401")
        end = time.monotonic() + 10
        with pytest.raises(OSError):
            while time.monotonic() < end:
                result.send(b" ")
                time.sleep(0.05)


def test_a_call_that_takes_longer_than_headers_may_is_not_closed(
    http: Http, exchange: BuilderExchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded_server, "HEADERS_S", 0.3)
    monkeypatch.setattr("sessions.mcp.tool_server.PATIENCE_S", 1.5)
    exchange.ended = ""
    with connected(Client(http_transport(http.url, TOKEN))) as driver:
        began = time.monotonic()
        assert "no phase is open" in driver.call("brief").text and time.monotonic() - began >= 1.5


def test_sessions_that_were_left_make_room_for_new_ones_and_those_in_use_stay(
    http: Http, client: httpx2.Client
) -> None:
    used, *remaining = [opened(client, http).headers["mcp-session-id"] for _ in range(MOST_SESSIONS)]
    assert pinged(client, http, used) == 200
    for number in range(MOST_SESSIONS + 10):
        answer = opened(client, http)
        assert answer.status_code == 200, (number, answer.text)
        if number % 20 == 0:
            assert pinged(client, http, used) == 200
    assert pinged(client, http, used) == 200 and pinged(client, http, remaining[0]) == 404


def test_requests_without_the_token_end_nobodys_session(http: Http, client: httpx2.Client) -> None:
    mine = opened(client, http).headers["mcp-session-id"]
    for _ in range(2 * MOST_SESSIONS + 5):
        assert client.post(http.url, json=INITIALIZE, headers={"mcp-session-id": mine}).status_code == 401
        assert client.post(http.url, json=INITIALIZE).status_code == 401
    assert pinged(client, http, mine) == 200


@pytest.mark.parametrize("origin", ["", "null", "http://evil.example"])
def test_every_origin_is_refused_an_empty_one_too(http: Http, client: httpx2.Client, origin: str) -> None:
    assert opened(client, http, origin=origin).status_code == 403


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_flooded_server_survives_and_its_session_reaches_its_end(tmp_path: Path) -> None:
    outcome = flood.run(1, tmp_path)
    assert not outcome.not_run and outcome.missed == [] and outcome.attempts == 10
