"""Floods of connections and sessions at ``peergate mcp --http``: the session goes on, and its client is answered.

Only a server on 127.0.0.1 that was started here is attacked, with so many connections and for so long as stands below.
The server is the real command with jobs that end at once, and has few file descriptors, so that a leak is seen.
"""

from __future__ import annotations

import random
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psutil
from mcp import Client

from bench.attack.outcome import Outcome
from testing.fixtures.command_sessions import environment
from testing.fixtures.mcp_client import Driver, connected, http_transport, take_through
from testing.fixtures.quick_session import open_quick

HALF_OPEN = 1500
OPENING_S = 20.0
"""A server that accepts no more is flooded no longer than this."""
SLOW = 150
SLOW_S = 4.0
SESSIONS = 100
DESCRIPTORS = 256
"""What the server may have open; a session needs a small part of it."""
ANSWER_S = 15.0
"""How long the client may wait for an answer, with other work on the machine."""
BACK_S = 40.0
"""How long the server may take to give descriptors back."""
SPARE = 6
"""Descriptors that come and go with ordinary work: the trail, a job's files, the client's own connection."""
EXTERNAL = ("builder: {vendor: playbook}", "builder: {vendor: external}")
STAGES = ("base", "sample", "train", "tuned", "ship")
INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "flood", "version": "0"}},
}
ACCEPT = {"accept": "application/json, text/event-stream"}


@dataclass
class ServerTarget:
    """The server that is flooded."""

    process: psutil.Process
    url: str
    token: str

    @property
    def bearer(self) -> dict[str, str]:
        """The header with the token."""
        return {"authorization": f"Bearer {self.token}"}

    def address(self) -> tuple[str, int]:
        """Where it listens: on this machine, or nothing is attacked."""
        url = httpx2.URL(self.url)
        assert url.host == "127.0.0.1" and url.port is not None
        return url.host, url.port

    def client(self) -> Client:
        """A client that may."""
        return Client(http_transport(self.url, self.token))

    def descriptors(self) -> int:
        """How many the server has open."""
        return self.process.num_fds()


@contextmanager
def serve_target(folder: Path) -> Generator[tuple[ServerTarget, subprocess.Popen[str]]]:
    """Serve a small session over HTTP from a separate process, which ends with the context."""
    run, token = open_quick(folder, EXTERNAL), folder / "token"
    command = [sys.executable, "-m", "testing.fixtures.quick_mcp", "mcp", "small", "--runs", str(run.parent)]
    command += ["--http", "127.0.0.1:0", "--token-file", str(token)]
    limited = ["sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh", *command]
    with (
        (folder / "stderr.txt").open("w+", encoding="utf-8") as errors,
        subprocess.Popen(
            limited,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            text=True,
            env=environment() | {"PEERGATE_QUICK": "1"},
        ) as server,
    ):
        try:
            url = _wait(lambda: re.search(r"http://\S+/mcp", (folder / "stderr.txt").read_text(encoding="utf-8")))
            yield ServerTarget(psutil.Process(server.pid), url[0], token.read_text(encoding="ascii").strip()), server
        finally:
            with suppress(ProcessLookupError):
                server.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                server.wait(30)
            server.kill()


def _wait(look: Callable[[], Any], most_s: float = BACK_S) -> Any:
    until = time.monotonic() + most_s
    while not (result := look()):
        if time.monotonic() > until:
            raise TimeoutError(f"not within {most_s:.0f} s")
        time.sleep(0.1)
    return result


def half_open(target: ServerTarget, stack: ExitStack, seed: int) -> str:
    """Open many connections and say nothing."""
    until = time.monotonic() + OPENING_S
    for _ in range(HALF_OPEN):
        if time.monotonic() > until:
            break
        with suppress(OSError):
            stack.enter_context(socket.create_connection(target.address(), 0.5))
    return f"{HALF_OPEN} connections that say nothing"


def slow_headers(target: ServerTarget, stack: ExitStack, seed: int) -> str:
    """Begin requests and send their headers byte by byte, as long as someone listens."""
    started_at = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    _drip(target, stack, seed, started_at, b"X")
    return f"{SLOW} connections whose headers never end"


def slow_bodies(target: ServerTarget, stack: ExitStack, seed: int) -> str:
    """Send whole headers without the token, and then a body byte by byte."""
    host, port = target.address()
    data = f"POST /mcp HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 1000000000\r\n\r\n".encode()
    _drip(target, stack, seed, data, b" ")
    return f"{SLOW} connections without the token whose body never ends"


def _drip(target: ServerTarget, stack: ExitStack, seed: int, data: bytes, piece: bytes) -> None:
    connections: list[socket.socket] = []
    until = time.monotonic() + OPENING_S
    for _ in range(SLOW):
        if time.monotonic() > until:
            break
        with suppress(OSError):
            connection_socket = stack.enter_context(socket.create_connection(target.address(), 0.5))
            connections.append(connection_socket)
            connection_socket.sendall(data)
    draw, until = random.Random(seed), time.monotonic() + SLOW_S
    while time.monotonic() < until:
        for connection in draw.sample(connections, len(connections)):
            with suppress(OSError):
                connection.send(piece)
        time.sleep(0.5)


def abandoned_sessions(target: ServerTarget, stack: ExitStack, seed: int) -> str:
    """Open sessions with the token and never come back, as a client does that is started again and again."""
    with httpx2.Client(headers=ACCEPT | target.bearer, timeout=30) as http:
        for _ in range(SESSIONS):
            http.post(target.url, json=INITIALIZE)
    return f"{SESSIONS} sessions that were left"


FLOODS = (half_open, slow_headers, slow_bodies, abandoned_sessions)
REFUSED: tuple[tuple[dict[str, str], str], ...] = (
    ({}, "no token"),
    ({"authorization": "Bearer wrong"}, "a wrong token"),
    ({"authorization": "Bearer TOKEN", "origin": ""}, "an empty Origin"),
    ({"authorization": "Bearer TOKEN", "origin": "null"}, "the Origin of a sandboxed page"),
    ({"authorization": "Bearer TOKEN", "host": "evil.example"}, "another Host"),
)


def survives(
    target: ServerTarget, driver: Driver, base: int, flood: Callable[[ServerTarget, ExitStack, int], str], seed: int
) -> str:
    """Flood the server, and return what went wrong; empty if nothing did."""
    with ExitStack() as stack:
        with suppress(httpx2.HTTPError):
            flood(target, stack, seed)
        if not target.process.is_running() or target.process.status() == psutil.STATUS_ZOMBIE:
            return "the server is gone"
        began = time.monotonic()
        try:
            # During the flood: an existing client and a new client.
            if driver.begin("write_note", text=f"after {flood.__name__}").result(ANSWER_S).is_error:
                return "the client's call failed"
            answer = httpx2.post(target.url, json=INITIALIZE, headers=ACCEPT | target.bearer, timeout=ANSWER_S)
        except Exception as error:
            return f"the client was not answered: {type(error).__name__}: {error}"
        if answer.status_code != 200:
            return f"a new client got {answer.status_code}"
        if time.monotonic() - began > ANSWER_S:
            return f"the clients waited {time.monotonic() - began:.0f} s"
    try:
        _wait(lambda: target.descriptors() <= base + SPARE)
    except (TimeoutError, psutil.Error):
        return f"the server has more than {base + SPARE} descriptors, {base} before"
    return ""


def run(seed: int, folder: Path) -> Outcome:
    """Flood one server with everything, one after the other, and then have the session built to its end."""
    outcome = Outcome()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most != resource.RLIM_INFINITY and most < HALF_OPEN + 500:
        return Outcome(not_run=f"this process may have {most} descriptors only")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (HALF_OPEN + 500, most))
    try:
        with serve_target(folder) as (target, server):
            _attack(target, server, seed, outcome)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    return outcome


def _attack(target: ServerTarget, server: subprocess.Popen[str], seed: int, outcome: Outcome) -> None:
    # The client of a stopped server ends with its own error.
    with suppress(Exception), connected(target.client()) as driver:
        driver.begin("brief").result(ANSWER_S)
        base = target.descriptors()
        for flood in FLOODS:
            wrong = survives(target, driver, base, flood, seed)
            outcome.record(not wrong, f"{flood.__name__}: {wrong}")
            if wrong:
                # The server is not what it was, and its session may never answer again.
                return
    for headers, what in REFUSED:
        arguments = {name: value.replace("TOKEN", target.token) for name, value in headers.items()}
        try:
            status = httpx2.post(target.url, json=INITIALIZE, headers=ACCEPT | arguments, timeout=ANSWER_S).status_code
        except httpx2.HTTPError as error:
            outcome.record(False, f"{what}: {type(error).__name__}")
            continue
        outcome.record(status in (401, 403, 421), f"{what}: status {status}")
    try:
        with connected(target.client()) as driver:
            take_through(driver, *STAGES)
            driver.call("brief")
        code = server.wait(BACK_S)
    except Exception as error:
        outcome.record(False, f"the session did not reach its end: {type(error).__name__}: {error}")
        return
    outcome.record(code == 0, f"the session ended with exit code {code}")
