"""`peergate view` as a process: it prints an address, answers there, and ends with Ctrl-C; and how it refuses."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from testing.fixtures.command_sessions import called

pytestmark = pytest.mark.integration


def test_the_printed_address_answers_until_it_is_interrupted(closed_quick: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "sessions.commands.cli",
        "view",
        closed_quick.name,
        "--runs",
        str(closed_quick.parent),
    ]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            address = process.stdout.readline().strip()
            base, _, path = address.partition("/enter/")
            assert base.startswith("http://127.0.0.1:") and path.endswith("/s/small/")
            with httpx2.Client(timeout=60) as browser:
                assert browser.get(f"{base}/s/small/").status_code == 403
                assert browser.get(address).status_code == 200
                page = browser.get(f"{base}/s/small/")
                assert page.status_code == 200 and "Accepted" in page.text and "server" not in page.headers
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert process.stderr.read() == ""


def test_a_taken_port_is_one_error(closed_quick: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = called("view", "--runs", closed_quick.parent, "--port", str(port))
    assert done.returncode == 2 and f"port {port} is not available" in done.stderr and "--port" in done.stderr


@pytest.mark.parametrize("values", [("none",), ("--runs", "none"), ("--port", "70000")])
def test_what_is_not_there_is_refused(values: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert called("view", *values).returncode == 2


def test_without_its_packages_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [module for module in sys.modules if module.startswith("sessions.pages.view.serving")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    done = called("view", "--runs", tmp_path)
    assert done.returncode == 2 and "pip install 'peergate[view]'" in done.stderr
