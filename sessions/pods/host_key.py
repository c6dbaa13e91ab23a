"""The pod's only accepted host key, confirmed by a person, a pin or known hosts; learning it offers no login."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from reviews.trail.chain.store import write_durably
from sessions.pods.connection import ALIAS, CONNECT_S, HostKeyMismatch, PodConnection, environment, failure
from specs.system.regular_files import read_regular
from specs.system.text import plain

_TYPES = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")
_NO_LOGIN = {
    "StrictHostKeyChecking": "accept-new",
    "HashKnownHosts": "no",
    "PreferredAuthentications": "none",
    "PubkeyAuthentication": "no",
    "PasswordAuthentication": "no",
    "KbdInteractiveAuthentication": "no",
    "GSSAPIAuthentication": "no",
    "HostbasedAuthentication": "no",
}


class HostKey(NamedTuple):
    """A host key as a line of a known_hosts file holds it."""

    kind: str
    data: str

    @property
    def fingerprint(self) -> str:
        """The fingerprint as ``ssh-keygen -l`` prints it."""
        digest = hashlib.sha256(base64.b64decode(self.data)).digest()
        return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"

    @property
    def line(self) -> str:
        """The line of the pod's own known_hosts file."""
        return f"{ALIAS} {self.kind} {self.data}\n"


def confirm(connection: PodConnection, pins: tuple[str, ...], ask: Callable[[HostKey], bool] | None) -> HostKey:
    """Keep the pod's host key as the only accepted one if a pin, known hosts or a person vouch for it.

    If there are pins, only their fingerprints are accepted. ``ask`` is None if no person can be asked.

    Raises:
        HostKeyRefused: no one vouches for it, or it differs from the confirmed one; nothing was kept.
        ConnectionLost: the pod is not reached.
    """
    host_key = learn(connection)
    before = read_known_key(connection.known_hosts)
    if pins:
        if host_key.fingerprint not in pins:
            raise _make_mismatch(
                connection, f"the pod shows the host key {host_key.fingerprint}, expected {' or '.join(pins)}"
            )
    elif before is not None:
        if before != host_key:
            message = f"the pod shows the host key {host_key.fingerprint}, confirmed was {before.fingerprint}"
            raise _make_mismatch(connection, message)
    elif not is_known(connection, host_key) and not (ask is not None and ask(host_key)):
        raise _make_mismatch(
            connection, f"no one has confirmed the pod's host key {host_key.kind} {host_key.fingerprint}"
        )
    write_durably(connection.known_hosts, host_key.line.encode())
    return host_key


def learn(connection: PodConnection) -> HostKey:
    """Return the host key the pod shows, without a login, or raise ConnectionLost if it shows none."""
    with tempfile.TemporaryDirectory(prefix="peergate-hostkey-") as name:
        seen_path = Path(name) / "seen"
        options = _NO_LOGIN | {"UserKnownHostsFile": f'"{seen_path}"'}
        command = connection.command("exit", master=False, options=options)
        try:
            _, error = _run_openssh(*command, seconds=CONNECT_S + 10)
        except subprocess.TimeoutExpired as late:
            raise failure("no answer in time", connection.address) from late
        host_key = read_known_key(seen_path)
        if host_key is None:
            raise failure(plain(error, 600), connection.address)
        return host_key


def read_known_key(path: Path) -> HostKey | None:
    """Return the pod's key from a known_hosts file; None if it holds none."""
    with suppress(OSError, ValueError):
        for line in read_regular(path, 1 << 16).decode("ascii").splitlines():
            match line.split():
                case [name, kind, data] if name == ALIAS and kind in _TYPES and base64.b64decode(data, validate=True):
                    return HostKey(kind, data)
                case _:
                    pass
    return None


def is_known(connection: PodConnection, key: HostKey) -> bool:
    """Return whether the known_hosts files of this user or machine hold this key for this pod."""
    # The options that ssh would use by the user's own configuration.
    text, _ = _run_openssh("ssh", "-G", *connection.options(), "--", connection.address.destination)
    facts = {name: value for name, _, value in (line.partition(" ") for line in text.splitlines())}
    host = facts.get("hostkeyalias") or facts.get("hostname", connection.address.host)
    port = facts.get("port", "22")
    name = host if port == "22" or facts.get("hostkeyalias") else f"[{host}]:{port}"
    for file in f"{facts.get('userknownhostsfile', '')} {facts.get('globalknownhostsfile', '')}".split():
        path = Path(file).expanduser()
        if path.is_file() and any(
            list(key) in (line.split()[-2:], line.split()[1:3])
            for line in _run_openssh("ssh-keygen", "-F", name, "-f", str(path))[0].splitlines()
            if line and not line.startswith(("#", "@"))
        ):
            return True
    return False


def _run_openssh(*command: str, seconds: float = 10) -> tuple[str, str]:
    """Return what a program of OpenSSH prints, and its standard error."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env=environment(),
        check=False,
        timeout=seconds,
    )
    return done.stdout, done.stderr


def _make_mismatch(connection: PodConnection, message: str) -> HostKeyMismatch:
    return HostKeyMismatch(
        f"{message}; nothing was sent",
        where=connection.address.destination,
        hint="compare it with what your provider shows or `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` there, "
        "then pin it: host_key in the pod file, or --host-key SHA256:...",
    )
