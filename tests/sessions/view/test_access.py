"""Who is let in: a browser with the printed token, over a loopback name, by reading alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sessions.pages.view.access import ENTER, POLICY
from sessions.pages.view.places import Scope
from testing.fixtures.view_client import Client


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(Scope(tmp_path))


def test_the_printed_address_lets_a_browser_in_and_leads_on_without_the_token(client: Client) -> None:
    entered = client.stranger(f"{ENTER}{client.access.token}/s/demo/")
    assert entered.status == 200 and 'content="0;url=/s/demo/"' in entered.text
    assert "HttpOnly; SameSite=Strict; Path=/" in entered.headers["set-cookie"]
    assert client.access.token not in f"{entered.headers} {entered.text}"
    assert client.get("/").status == 200


@pytest.mark.parametrize(
    "where", ["//evil.example/", "/\\evil.example", "https://evil.example/", '"><script>x</script>']
)
def test_the_printed_address_leads_nowhere_else(client: Client, where: str) -> None:
    page = client.stranger(f"{ENTER}{client.access.token}/{where}").text
    assert re.search(r'content="0;url=/(?!/)[\w./-]*"><p><a href="/(?!/)[\w./-]*">', page), page


@pytest.mark.parametrize("cookie", ["", "peergate_view_7=", "peergate_view_7=other", "peergate_view_7=\xe9", "=;=,"])
def test_a_browser_without_the_cookie_sees_nothing(client: Client, cookie: str) -> None:
    for path in ("/", "/static/view.js", "/sessions.json", "/s/demo/", "/events"):
        refused = client.stranger(path, cookie=cookie)
        assert refused.status == 403 and "peergate view" in refused.text


@pytest.mark.parametrize("token", ["", "0" * 32, "\xe9", "x/../"])
def test_another_token_lets_no_one_in(client: Client, token: str) -> None:
    refused = client.stranger(f"{ENTER}{token}/")
    assert refused.status == 403 and "set-cookie" not in refused.headers


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example:7", "", "0.0.0.0:7", "localhost.evil.example"]
)
def test_a_name_that_someone_pointed_at_this_machine_is_refused(client: Client, host: str) -> None:
    assert client.get("/", host=host).status == 421
    assert client.stranger(f"{ENTER}{client.access.token}/", host=host).status == 421


@pytest.mark.parametrize("host", ["127.0.0.1:7", "localhost:9", "LOCALHOST", "[::1]:7"])
def test_loopback_names_are_answered_through_a_tunnel_too(client: Client, host: str) -> None:
    assert client.get("/", host=host).status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_written(client: Client, method: str) -> None:
    for path in ("/", "/s/small/answer", "/s/small/verdict"):
        assert client.stranger(path, method, cookie=client.cookie).status == 405
    entered = client.stranger(f"{ENTER}{client.access.token}/", method)
    assert entered.status == 405 and "set-cookie" not in entered.headers


def test_every_answer_forbids_scripts_and_places_of_others(client: Client) -> None:
    assert "unsafe" not in POLICY and POLICY.startswith("default-src 'none'; script-src 'self'")
    answers = [client.get(text) for text in ("/", "/s/none/", "/static/page.css", "/sessions.json", "/nothing")]
    for answer in (*answers, client.stranger("/"), client.get("/", host="evil.example")):
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff" and answer.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in answer.headers
