"""`peergate mcp --http`: who is let in, and that clients with the token build the same session."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from mcp import Client
from mcp.server.lowlevel.server import Server

from sessions.commands.mcp import serve
from sessions.mcp.transports import Http, TokenKind, parse_address, read_token
from specs.system.errors import UserError
from testing.fixtures.command_sessions import entries, environment
from testing.fixtures.mcp_client import connected, http_transport, open_brief
from testing.fixtures.quick_session import open_quick
from tests.sessions.builder.test_mcp import EXTERNAL

pytestmark = pytest.mark.integration

INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "nobody", "version": "0"}},
}
ACCEPT = {"accept": "application/json, text/event-stream"}


class Served(NamedTuple):
    """A server over HTTP on a session."""

    url: str
    run: Path
    token: str

    def client(self) -> Client:
        return Client(http_transport(self.url, self.token))

    def post(self, **headers: str) -> httpx2.Response:
        return httpx2.post(self.url, json=INITIALIZE, headers=ACCEPT | headers, timeout=120)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("http")
    run, token = open_quick(folder, EXTERNAL), folder / "token"
    command = [sys.executable, "-m", "testing.fixtures.quick_mcp", "mcp", "small", "--runs", str(run.parent)]
    with subprocess.Popen(
        [*command, "--http", "127.0.0.1:0", "--token-file", str(token)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment() | {"PEERGATE_QUICK": "1"},
    ) as server:
        assert server.stderr is not None and server.stdout is not None
        first = server.stderr.readline()
        url = re.search(r"http://\S+/mcp", first)
        assert url is not None, first + server.stderr.read()
        yield Served(url[0], run, token.read_text(encoding="ascii").strip())
        server.send_signal(signal.SIGINT)
        message, errors = server.communicate(timeout=300)
        assert server.returncode == 130 and message == "", errors
        assert entries(run)[-1].kind == "pause"


def test_two_clients_with_the_token_build_one_session(served: Served) -> None:
    with connected(served.client()) as result, connected(served.client()) as other:
        assert "stage 'base'" in open_brief(result).text
        begun = [
            driver.begin("write_note", text=f"from {name}") for driver, name in ((result, "one"), (other, "other"))
        ]
        assert sorted(future.result(60).text for future in begun) == ["kept as note.1", "kept as note.2"]
        assert "phase 'submit'" in result.call("launch_stage", stage="base", reason="r").then
        assert "stage 'sample'" in other.call("submit_stage").then
    assert [entry.raw["tool"] for entry in entries(served.run, "call")][2:] == ["launch_stage", "submit_stage"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer"}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "Basic TOKEN"}, 401),
        ({"authorization": "Bearer TOKEN", "host": "evil.example"}, 421),
        ({"authorization": "Bearer TOKEN", "host": "evil.example:PORT"}, 421),
        ({"authorization": "Bearer TOKEN", "origin": "http://evil.example"}, 403),
        ({"authorization": "Bearer TOKEN", "origin": "http://127.0.0.1:PORT"}, 403),
        ({"authorization": "Bearer TOKEN", "origin": ""}, 403),
        ({"authorization": "Bearer TOKEN"}, 200),
        ({"authorization": "Bearer TOKEN", "host": "host.docker.internal:PORT"}, 200),
    ],
)
def test_only_whoever_has_the_token_and_is_no_web_page_is_let_in(
    served: Served, headers: dict[str, str], status: int
) -> None:
    port = str(httpx2.URL(served.url).port)
    sent = {name: value.replace("TOKEN", served.token).replace("PORT", port) for name, value in headers.items()}
    answer = served.post(**sent)
    assert answer.status_code == status, answer.text
    assert served.token not in answer.text


def test_the_token_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = read_token(path, "build")
    assert len(token) >= 43 and read_token(path, "build") == token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    with pytest.raises(UserError, match="mode 0640"):
        read_token(path, "build")
    path.chmod(0o600)
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(UserError, match="cannot be read"):
        read_token(link, "build")
    for bad in ("short", "two words " * 10, "ä" * 40):
        path.write_text(bad, encoding="utf-8")
        with pytest.raises(UserError, match="not one word of at least 32"):
            read_token(path, "build")
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(UserError, match="not a regular file"):
        read_token(tmp_path / "pipe", "build")


KINDS: dict[TokenKind, str] = {
    "build": "a server that builds",
    "manage": "the management server",
    "read": "a server that only reads",
}


@pytest.mark.parametrize("server", KINDS)
@pytest.mark.parametrize("token", KINDS)
def test_a_token_is_for_one_kind_of_server(server: TokenKind, token: TokenKind, tmp_path: Path) -> None:
    """Nine pairs: a file of one kind starts no server of another, and its token opens none that runs."""
    path, own = tmp_path / "token", read_token(tmp_path / "own", server)
    text = read_token(path, token)
    assert text.startswith(f"{token}-") and len(text) > 43
    if server == token:
        assert read_token(path, server) == text
    else:
        output = f"this token is for {KINDS[token]}, not for this one"
        with pytest.raises(UserError, match=output) as refused:
            read_token(path, server)
        assert refused.value.hint.endswith(f"this one's begins with {server}-")
    running = Http("127.0.0.1:0", own)
    running.start(Server("nothing"), lambda: None)
    try:
        served = Served(running.url, tmp_path, own)
        assert served.post(authorization=f"Bearer {text}").status_code == 401
        assert served.post(authorization=f"Bearer {own}").status_code == 200
    finally:
        running.stop()


def test_a_token_that_does_not_say_what_it_is_for_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("x" * 43, encoding="ascii")
    path.chmod(0o600)
    for kind in KINDS:
        with pytest.raises(UserError, match="this token does not say what it is for"):
            read_token(path, kind)


@pytest.mark.parametrize(
    ("text", "read"), [("8765", ("127.0.0.1", 8765)), ("10.0.0.2:80", ("10.0.0.2", 80)), ("[::1]:80", ("::1", 80))]
)
def test_an_address_is_on_loopback_unless_it_says_otherwise(text: str, read: tuple[str, int]) -> None:
    assert parse_address(text) == read


@pytest.mark.parametrize("text", ["0.0.0.0:80", "[::]:80", "host", "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:-1"])
def test_an_address_that_is_none_or_every_is_refused(text: str) -> None:
    with pytest.raises(UserError):
        parse_address(text)


def test_a_port_that_is_taken_is_reported_before_anything_starts() -> None:
    first = Http("127.0.0.1:0", "t" * 40)
    try:
        port = httpx2.URL(first.url).port
        with pytest.raises(UserError, match="cannot listen there"):
            Http(f"127.0.0.1:{port}", "t" * 40)
    finally:
        first.stop()


def test_http_without_a_token_and_a_token_without_http_are_refused(tmp_path: Path) -> None:
    run = open_quick(tmp_path, EXTERNAL)
    with pytest.raises(UserError, match="--http requires a token"):
        serve("small", runs=run.parent, http="127.0.0.1:0")
    with pytest.raises(UserError, match="--token-file requires --http"):
        serve("small", runs=run.parent, token_file=tmp_path / "token")
    assert [entry.kind for entry in entries(run)][-1] == "model", "nothing was started"
