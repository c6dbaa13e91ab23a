"""The way to a pod over a real OpenSSH server: host keys, what a configuration cannot weaken, how failures are told."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessions.pods.connection import Channel, ConnectionLost, HostKeyMismatch, PodConnection, shell
from sessions.pods.host_key import HostKey, confirm, read_known_key
from sessions.pods.pod_file import read_address
from specs.system.errors import PeergateError
from testing.fixtures.sshd_pod import MISSING, Pod, make_key, pod

pytestmark = [pytest.mark.integration, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]
CANARY = "sk-CANARY-never-sent"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    with pod(tmp_path_factory.mktemp("pod")) as result:
        yield result


@pytest.fixture
def way(machine: Pod, tmp_path: Path) -> Iterator[PodConnection]:
    connection = PodConnection(read_address("pod"), tmp_path / "known hosts", str(machine.config))
    yield connection
    connection.close()


def test_a_key_that_no_one_confirmed_is_refused_and_a_person_or_a_pin_can_confirm_it(
    machine: Pod, way: PodConnection
) -> None:
    with pytest.raises(HostKeyMismatch):
        way.run("true")
    with pytest.raises(HostKeyMismatch, match="no one has confirmed") as caught:
        confirm(way, (), None)
    assert machine.fingerprint in str(caught.value) and not way.known_hosts.exists()
    keys: list[HostKey] = []

    def ask(key: HostKey) -> bool:
        keys.append(key)
        return len(keys) > 1

    with pytest.raises(HostKeyMismatch):
        confirm(way, (), ask)
    with pytest.raises(HostKeyMismatch, match="expected SHA256:x"):
        confirm(way, ("SHA256:x",), ask)
    assert len(keys) == 1, "a pin is not asked about"
    assert confirm(way, (), ask).fingerprint == machine.fingerprint == keys[0].fingerprint
    assert way.run("echo there").out == b"there\n"
    # From now on no one has to be asked.
    assert confirm(way, (), None) == read_known_key(way.known_hosts)


def test_a_key_the_person_knows_already_is_not_asked_about(machine: Pod, way: PodConnection, tmp_path: Path) -> None:
    known = machine.folder / "nothing_known"
    public = (machine.folder / "host.pub").read_text().split()
    known.write_text(f"pod {public[0]} {public[1]}\n", encoding="ascii")
    try:
        subprocess.run(["ssh-keygen", "-H", "-f", str(known)], check=True, capture_output=True)
        assert confirm(way, (), None).fingerprint == machine.fingerprint
    finally:
        known.unlink()
    make_key(tmp_path / "other")
    other = (tmp_path / "other.pub").read_text().split()
    known.write_text(f"pod {other[0]} {other[1]}\n", encoding="ascii")
    way.known_hosts.unlink()
    try:
        with pytest.raises(HostKeyMismatch):
            confirm(way, (), None)
    finally:
        known.unlink()


def test_a_changed_host_key_is_refused_everywhere(tmp_path: Path) -> None:
    with pod(tmp_path / "pod") as machine:
        way = PodConnection(read_address("pod"), tmp_path / "known_hosts", str(machine.config))
        confirm(way, (machine.fingerprint,), None)
        assert way.run("true").code == 0
        way.close()
        before = machine.fingerprint
        machine.stop()
        make_key(machine.folder / "host")
        machine.start()
        with pytest.raises(HostKeyMismatch, match="host key differs from the confirmed key"):
            way.run("touch /durable/was-here")
        with pytest.raises(HostKeyMismatch):
            confirm(way, (before,), None)
        with pytest.raises(HostKeyMismatch, match=f"confirmed was {before.replace('+', '.')}"):
            confirm(way, (), lambda _: True)
        assert not (machine.durable / "was-here").exists()


def test_a_configuration_can_neither_forward_nor_send(
    machine: Pod, way: PodConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    confirm(way, (machine.fingerprint,), None)
    # The test's configuration says SendEnv *, ForwardAgent yes, LocalForward, StrictHostKeyChecking no.
    seen = way.run("env").out.decode()
    assert CANARY not in seen and "SSH_AUTH_SOCK" not in seen and "SSH_CONNECTION" in seen
    with socket.socket() as door:
        assert door.connect_ex(("127.0.0.1", 39999)) != 0, "a forwarded port is open"


def test_failures_are_distinguished(machine: Pod, way: PodConnection, tmp_path: Path) -> None:
    confirm(way, (machine.fingerprint,), None)
    assert way.run(shell("/bin/sh", "-c", "echo no >&2; exit 3"))[::2] == (3, "no\n")
    with pytest.raises(ConnectionLost, match=r"did not answer within 0\.5 s"):
        way.run("sleep 30", seconds=0.5)
    with pytest.raises(ConnectionLost, match="more than 100 bytes"):
        way.run("yes", most=100)
    nobody = PodConnection(read_address("127.0.0.1:1"), way.known_hosts)
    with pytest.raises(ConnectionLost, match=r"not reached: .*refused"):
        nobody.run("true")
    make_key(tmp_path / "stranger")
    text = machine.config.read_text().replace(str(machine.folder / "client"), str(tmp_path / "stranger"))
    (tmp_path / "config").write_text(text, encoding="utf-8")
    with pytest.raises(ConnectionLost, match=r"(?s)Permission denied.*asks for no password"):
        PodConnection(read_address("pod"), way.known_hosts, str(tmp_path / "config")).run("true")
    escaped = way.run(r"printf '\033]0;owned\007bad\n' >&2; exit 1").error
    assert escaped == "bad\n"


@pytest.mark.parametrize(
    ("answer", "output"),
    [
        (b"hello\n", "not a header"),
        (b"[1]\n", "not a header"),
        (b'{"bytes": -1}\n', "without a size"),
        (b'{"bytes": 99999999999}\n', "has 99999999999 bytes, the limit is"),
        (bytes(2_000_000), "an unterminated line"),
        (b'{"refused": "\\u001b[31mred", "bytes": 0}\n', "the pod refuses 'status': red"),
        (b'{"bytes": 9}\nabc', "connection ended"),
    ],
)
def test_a_pod_that_answers_anything_is_bounded(machine: Pod, way: PodConnection, answer: bytes, output: str) -> None:
    confirm(way, (machine.fingerprint,), None)
    inside = f"{Path(machine.root).parent}"
    python = machine.durable / "hostile"
    python.write_text(f"#!/bin/sh\nread line\ncat {inside}/answer\n", encoding="utf-8")
    python.chmod(0o755)
    (machine.durable / "answer").write_bytes(answer)
    with (
        Channel(way, f"{inside}/hostile", machine.root, "small") as channel,
        pytest.raises(PeergateError, match=output),
    ):
        channel.ask("status", log=0, seconds=20)
