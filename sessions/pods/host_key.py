"""The pod's host key: shown once, confirmed by a person, a pin or the known hosts there are, and the only one after.

Learning a key sends nothing: no way to log in is offered to a host that nobody has confirmed.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from reviews.trail.store import write_durably
from sessions.pods.connection import ALIAS, CONNECT_S, Connection, HostKeyRefused, environment, failure
from specs.errors import PeergateError
from specs.text import plain

_TYPES = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")


class HostKey(NamedTuple):
    """A host key, as it stands in a file of known hosts."""

    kind: str
    data: str
    fingerprint: str

    @property
    def line(self) -> str:
        """The line of the pod's own file of known hosts."""
        return f"{ALIAS} {self.kind} {self.data}\n"


def confirm(connection: Connection, pins: tuple[str, ...], ask: Callable[[HostKey], bool] | None) -> HostKey:
    """Keep the pod's host key as the only one that is accepted from now on, if somebody vouches for it.

    Args:
        connection: the pod; its file of known hosts is written.
        pins: fingerprints that were stated; if there are any, only they count.
        ask: asks a person; None where nobody can be asked.

    Raises:
        HostKeyRefused: nobody vouches for it, or it is another one than before; nothing was kept.
        ConnectionLost: the pod is not reached.
    """
    shown = learn(connection)
    before = kept(connection.known_hosts)
    if pins:
        if shown.fingerprint not in pins:
            raise _refused(connection, f"the pod shows the host key {shown.fingerprint}, pinned is {' or '.join(pins)}")
    elif before is not None:
        if before[:2] != shown[:2]:
            told = f"the pod shows the host key {shown.fingerprint}, confirmed was {before.fingerprint}"
            raise _refused(connection, told)
    elif not is_known(connection, shown) and not (ask is not None and ask(shown)):
        raise _refused(connection, f"nobody has confirmed the pod's host key {shown.kind} {shown.fingerprint}")
    write_durably(connection.known_hosts, shown.line.encode())
    return shown


def learn(connection: Connection) -> HostKey:
    """Return the host key the pod shows, without offering to log in.

    Raises:
        ConnectionLost: it shows none.
    """
    with tempfile.TemporaryDirectory(prefix="peergate-hostkey-") as name:
        seen = Path(name) / "seen"
        options = [
            ("StrictHostKeyChecking", "accept-new"),
            ("UserKnownHostsFile", f'"{seen}"'),
            ("HashKnownHosts", "no"),
            ("PreferredAuthentications", "none"),
            ("PubkeyAuthentication", "no"),
            ("PasswordAuthentication", "no"),
            ("KbdInteractiveAuthentication", "no"),
            ("GSSAPIAuthentication", "no"),
            ("HostbasedAuthentication", "no"),
        ]
        command = connection.command("exit", master=False, options=options)
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                env=environment(),
                check=False,
                timeout=CONNECT_S + 10,
            )
        except subprocess.TimeoutExpired as error:
            raise failure("no answer in time", connection.address) from error
        found = kept(seen)
        if found is None:
            raise failure(plain(done.stderr.decode("utf-8", "replace"), 600), connection.address)
        return found


def kept(path: Path) -> HostKey | None:
    """Return the key in a file of known hosts that holds the pod's alone; None when there is none."""
    try:
        lines = [line.split() for line in path.read_text("ascii").splitlines()]
    except (OSError, ValueError):
        return None
    for line in lines:
        if len(line) == 3 and line[0] == ALIAS and line[1] in _TYPES:
            return HostKey(line[1], line[2], fingerprint(path))
    return None


def fingerprint(path: Path) -> str:
    """Return the fingerprint of the first key in a file of known hosts.

    Raises:
        PeergateError: ssh-keygen finds none.
    """
    done = _said("ssh-keygen", "-l", "-E", "sha256", "-f", str(path))
    words = done.split()
    if len(words) < 2 or not words[1].startswith("SHA256:"):
        raise PeergateError("ssh-keygen tells no fingerprint", where=str(path))
    return words[1]


def is_known(connection: Connection, key: HostKey) -> bool:
    """Say whether the files of known hosts of this user and machine hold this very key for this pod."""
    told = _effective(connection)
    host = told.get("hostkeyalias") or told.get("hostname", connection.address.host)
    port = told.get("port", "22")
    name = host if port == "22" or told.get("hostkeyalias") else f"[{host}]:{port}"
    files = f"{told.get('userknownhostsfile', '')} {told.get('globalknownhostsfile', '')}".split()
    for file in files:
        path = Path(file).expanduser()
        if path.is_file() and any(
            line.split()[-2:] == [key.kind, key.data] or line.split()[1:3] == [key.kind, key.data]
            for line in _said("ssh-keygen", "-F", name, "-f", str(path)).splitlines()
            if line and not line.startswith(("#", "@"))
        ):
            return True
    return False


def _effective(connection: Connection) -> dict[str, str]:
    """Return the options ssh would use by the person's own configuration."""
    words = ["ssh", "-G", *(["-F", connection.config] if connection.config else [])]
    words += ["-p", str(connection.address.port)] if connection.address.port else []
    lines = _said(*words, "--", connection.address.destination).splitlines()
    return {name: value for name, _, value in (line.partition(" ") for line in lines)}


def _said(*command: str) -> str:
    """Return what a program of OpenSSH prints."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env=environment(),
        check=False,
        timeout=10,
    )
    return done.stdout


def _refused(connection: Connection, message: str) -> HostKeyRefused:
    return HostKeyRefused(
        f"{message}; nothing was sent",
        where=connection.address.destination,
        hint="compare it with what your provider shows or `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` there, "
        "then pin it: host_key in the pod file, or --host-key SHA256:...",
    )
