"""The way to the pod: the OpenSSH client of this machine, with the configuration and agent a person already has.

Host keys are checked always, against one file that holds the one key that was confirmed (``host_key.py``); no option of
a configuration turns that off, and nothing is forwarded. The client gets few variables, so none of them can be sent.
What comes back is bytes of somebody else: bounded in size and time here, made printable where it is shown.
"""

from __future__ import annotations

import hashlib
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from sessions.pods.pod_file import Address
from specs.errors import Blocked, PeergateError, UserError
from specs.text import plain

SSH_FAILED = 255
"""ssh ends with this when it is ssh that failed, not the command."""
ALIAS = "peergate-pod"
"""The name the host key is kept under, whatever the pod's address is."""
CONNECT_S = 20
MOST_BYTES = 4 << 20
_PIECE = 1 << 16
_TOLD = 600
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR", "TMPDIR")
_ALWAYS = {
    "BatchMode": "yes",
    "StrictHostKeyChecking": "yes",
    "UpdateHostKeys": "no",
    "VerifyHostKeyDNS": "no",
    "GlobalKnownHostsFile": "none",
    "HostKeyAlias": ALIAS,
    "CheckHostIP": "no",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "ClearAllForwardings": "yes",
    "PermitLocalCommand": "no",
    "RemoteCommand": "none",
    "RequestTTY": "no",
    "LogLevel": "ERROR",
    "ConnectTimeout": str(CONNECT_S),
    "ServerAliveInterval": "10",
    "ServerAliveCountMax": "3",
}


class ConnectionLost(PeergateError):
    """The pod was not reached, or the connection to it ended. What runs there continues."""


class HostKeyRefused(Blocked):
    """The pod has another host key than the one that was confirmed, or one that nobody confirmed."""


class Done(NamedTuple):
    """A command that ended on the pod."""

    code: int
    out: bytes
    told: str
    """What it wrote to standard error, made printable and cut."""


@dataclass(frozen=True)
class Connection:
    """One pod as SSH reaches it."""

    address: Address
    known_hosts: Path
    config: str | None = None

    def command(self, remote: str | None, *, master: bool = True, options: Sequence[tuple[str, str]] = ()) -> list[str]:
        """Return the command line of ssh; what is given first wins over the configuration."""
        # Its parser splits at spaces, so a path goes in quotes; one that holds a quote cannot be said.
        chosen = dict(options)
        told = {**_ALWAYS, "UserKnownHostsFile": f'"{self.known_hosts}"', **chosen}
        if master:
            told |= {"ControlMaster": "auto", "ControlPath": f'"{self.control}"', "ControlPersist": "60"}
        else:
            told |= {"ControlMaster": "no", "ControlPath": "none"}
        words = [
            "ssh",
            *(["-F", self.config] if self.config else []),
            *(["-p", str(self.address.port)] if self.address.port else []),
        ]
        for name, value in told.items():
            words += ["-o", f"{name}={value}"]
        return [*words, "--", self.address.destination, *([remote] if remote is not None else [])]

    @property
    def control(self) -> Path:
        """The socket that commands share. Its path has to be short, so it lies in the folder for such things."""
        folder = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"peergate-ssh-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.stat()
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise UserError("this folder belongs to somebody else or is open to others", where=str(folder))
        name = hashlib.sha256(
            f"{self.address.destination}:{self.address.port}:{self.config}:{self.known_hosts}".encode()
        )
        return folder / name.hexdigest()[:16]

    def start(self, remote: str, given: BinaryIO | int = subprocess.PIPE) -> subprocess.Popen[bytes]:
        """Start a command on the pod, with pipes to it, or with a file as its standard input."""
        return subprocess.Popen(
            self.command(remote),
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=environment(),
            start_new_session=True,
        )

    def run(self, remote: str, given: bytes = b"", *, seconds: float = 60.0, most: int = MOST_BYTES) -> Done:
        """Run a command on the pod to its end.

        Raises:
            ConnectionLost: ssh failed, or the command took too long or wrote too much.
            HostKeyRefused: the pod's host key is not the one that was confirmed.
        """
        done = converse(self.start(remote), given, seconds, most)
        if done.code == SSH_FAILED:
            raise failure(done.told, self.address)
        return done

    def close(self) -> None:
        """End the shared connection, if there is one."""
        if self.control.exists():
            words = self.command(None)
            # The operation is an option, so it goes before the destination.
            at = words.index("--")
            with suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(
                    [*words[:at], "-O", "exit", *words[at:]],
                    env=environment(),
                    capture_output=True,
                    check=False,
                    timeout=10,
                )


def environment() -> dict[str, str]:
    """Return the few variables ssh gets: an option SendEnv in a configuration finds no key to send."""
    return {name: os.environ[name] for name in _KEPT if name in os.environ} | {"LC_ALL": "C"}


def require_ssh() -> None:
    """Make sure that there is an OpenSSH client.

    Raises:
        UserError: there is none.
    """
    for program in ("ssh", "ssh-keygen"):
        if shutil.which(program) is None:
            raise UserError(f"there is no '{program}' on this machine", hint="install the OpenSSH client")


def failure(told: str, address: Address) -> PeergateError:
    """Return the error that an output of ssh means."""
    where = f"{address.destination}{f':{address.port}' if address.port else ''}"
    if "host key verification failed" in told.lower() or "host identification has changed" in told.lower():
        return HostKeyRefused(
            "the pod shows another host key than the one that was confirmed; nothing was sent",
            where=where,
            hint="somebody may sit in between. If the machine was set up anew, `peergate pod up` with its new key: "
            "--host-key SHA256:...",
        )
    last = told.strip().rpartition("\n")[2] or "ssh said nothing"
    hint = (
        "what runs there goes on"
        if "permission denied" not in told.lower()
        else ("Peergate asks for no password: `ssh-add` your key, or name it in ~/.ssh/config")
    )
    return ConnectionLost(f"the pod is not reached: {last}", where=where, hint=hint)


def shell(*words: str) -> str:
    """Return a command for the pod's shell, whichever that is."""
    return shlex.join(words)


def converse(process: subprocess.Popen[bytes], given: bytes, seconds: float, most: int) -> Done:
    """Give a process its input, take at most so many bytes of each of its outputs, and wait for its end.

    Raises:
        ConnectionLost: it took too long or wrote too much; it was ended.
    """
    assert process.stdin and process.stdout and process.stderr
    out, told, left = bytearray(), bytearray(), memoryview(given)
    deadline = time.monotonic() + seconds
    try:
        with selectors.DefaultSelector() as ready:
            ready.register(process.stdout, selectors.EVENT_READ)
            ready.register(process.stderr, selectors.EVENT_READ)
            os.set_blocking(process.stdin.fileno(), False)
            ready.register(process.stdin, selectors.EVENT_WRITE)
            open_ends = 2
            while open_ends:
                if time.monotonic() > deadline:
                    raise ConnectionLost(f"the pod gave no answer within {seconds:g} s")
                for key, _ in ready.select(max(0.0, min(1.0, deadline - time.monotonic()))):
                    if key.fileobj is process.stdin:
                        left = _give(process, left)
                        if not left:
                            ready.unregister(process.stdin)
                            process.stdin.close()
                        continue
                    piece = os.read(key.fd, _PIECE)
                    if not piece:
                        ready.unregister(key.fileobj)
                        open_ends -= 1
                    (out if key.fileobj is process.stdout else told).extend(piece)
                    if len(out) > most or len(told) > most:
                        raise ConnectionLost(f"the pod wrote more than {most} bytes where it was asked for less")
        code = process.wait(max(1.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired as error:
        raise ConnectionLost(f"the pod gave no answer within {seconds:g} s") from error
    finally:
        end(process)
    return Done(code, bytes(out), plain(told.decode("utf-8", "replace"), _TOLD))


def _give(process: subprocess.Popen[bytes], left: memoryview) -> memoryview:
    assert process.stdin
    try:
        return left[os.write(process.stdin.fileno(), left[:_PIECE]) :]
    except BlockingIOError:
        return left
    except BrokenPipeError:
        return left[:0]


def end(process: subprocess.Popen[bytes]) -> None:
    """End a client process and close its pipes; the shared connection is another process."""
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with suppress(OSError):
                pipe.close()
