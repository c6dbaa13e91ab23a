"""Reaches the pod with this machine's OpenSSH client, and the configuration and agent its user already has.

The host key is always checked against the confirmed key; no configuration turns that off, and nothing is
forwarded. Answers are untrusted: bounded in size and time here, made printable where they are shown.
"""

from __future__ import annotations

import hashlib
import json
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from sessions.pods import protocol
from sessions.pods.pod_file import Address
from specs.system.errors import BlockedError, PeergateError, UserError
from specs.system.text import plain

SSH_FAILED = 255
"""The exit code of ssh when ssh itself failed, not the command."""
ALIAS = "peergate-pod"
"""The name under which the host key is kept, for any address."""
CONNECT_S = 20
MOST_BYTES = 4 << 20
ANSWER_S = 60.0
STILL_S = 60.0
"""A transfer that brings no byte for this long has failed."""
_LAST_TOLD = 4096
_PIECE, _LARGE_PIECE = 1 << 16, 1 << 18
_TOLD = 600
_PASSED = ("PATH", "HOME", "USER", "LOGNAME", "SSH_AUTH_SOCK", "XDG_RUNTIME_DIR", "TMPDIR")
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


class HostKeyMismatch(BlockedError):
    """The pod has a host key that differs from the confirmed key, or that no one confirmed."""


class PodCommandResult(NamedTuple):
    """A command that ended on the pod."""

    code: int
    out: bytes
    error: str
    """The printable beginning of its standard error."""


@dataclass(frozen=True)
class PodConnection:
    """One pod as SSH reaches it."""

    address: Address
    known_hosts: Path
    config: str | None = None

    def command(self, remote: str | None, options: Mapping[str, str] | None = None, master: bool = True) -> list[str]:
        """Return the command line of ssh; its options come before those of the configuration."""
        # ssh splits options at spaces, so paths are quoted; a path that holds a quote cannot be written.
        options_used = _ALWAYS | {"UserKnownHostsFile": f'"{self.known_hosts}"'} | dict(options or {})
        if master:
            options_used |= {"ControlMaster": "auto", "ControlPath": f'"{self.control}"', "ControlPersist": "60"}
        else:
            options_used |= {"ControlMaster": "no", "ControlPath": "none"}
        words = ["ssh", *self.options()]
        for name, value in options_used.items():
            words += ["-o", f"{name}={value}"]
        return [*words, "--", self.address.destination, *([remote] if remote is not None else [])]

    def options(self) -> list[str]:
        """Return the options of ssh that name its configuration and the port."""
        port = ["-p", str(self.address.port)] if self.address.port else []
        return [*(["-F", self.config] if self.config else []), *port]

    @property
    def control(self) -> Path:
        """The socket that commands share, in a folder with a short path, as sockets need."""
        folder = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"peergate-ssh-{os.getuid()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.stat()
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            raise UserError("this folder belongs to another user or is open to others", where=str(folder))
        named = f"{self.address.destination}:{self.address.port}:{self.config}:{self.known_hosts}"
        return folder / hashlib.sha256(named.encode()).hexdigest()[:16]

    def start(self, remote: str, arguments: BinaryIO | int = subprocess.PIPE) -> subprocess.Popen[bytes]:
        """Start a command on the pod, with pipes to it, or with a file as its standard input."""
        return subprocess.Popen(
            self.command(remote),
            stdin=arguments,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=environment(),
            start_new_session=True,
        )

    def run(self, remote: str, data: bytes = b"", *, seconds: float = 60.0, most: int = MOST_BYTES) -> PodCommandResult:
        """Run a command on the pod to its end.

        Raises:
            ConnectionLost: ssh failed, or the command took too long or wrote too much.
            HostKeyRefused: the pod's host key differs from the confirmed key.
        """
        done = converse(self.start(remote), data, seconds, most)
        if done.code == SSH_FAILED:
            raise failure(done.error, self.address)
        return done

    def run_json(self, remote: str, data: bytes, failed: str, *, seconds: float = 60.0) -> dict[str, Any]:
        """Return the JSON object that a command prints, or raise as :meth:`run`, or PeergateError with ``failed``."""
        done = self.run(remote, data, seconds=seconds)
        try:
            result = json.loads(done.out)
        except ValueError:
            result = None
        if not isinstance(result, dict):
            raise PeergateError(f"{failed}; it ended with {done.code}: {done.error or 'it printed nothing'}")
        return result

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
    """Return the few variables that ssh gets, so that SendEnv in a configuration finds no key to send."""
    return {name: os.environ[name] for name in _PASSED if name in os.environ} | {"LC_ALL": "C"}


def require_ssh() -> None:
    """Raise UserError if this machine has no OpenSSH client."""
    for program in ("ssh", "ssh-keygen"):
        if shutil.which(program) is None:
            raise UserError(f"'{program}' is not installed on this machine", hint="install the OpenSSH client")


def failure(text: str, address: Address) -> PeergateError:
    """Return the error that an output of ssh means."""
    where = f"{address.destination}{f':{address.port}' if address.port else ''}"
    if "host key verification failed" in text.lower() or "host identification has changed" in text.lower():
        return HostKeyMismatch(
            "the pod's host key differs from the confirmed key; nothing was sent",
            where=where,
            hint="someone may sit in between. If the machine was set up anew, `peergate pod up` with its new key: "
            "--host-key SHA256:...",
        )
    last = text.strip().rpartition("\n")[2] or "ssh said nothing"
    hint = "what runs there continues"
    if "permission denied" in text.lower():
        hint = "Peergate asks for no password: `ssh-add` your key, or name it in ~/.ssh/config"
    return ConnectionLost(f"the pod is not reached: {last}", where=where, hint=hint)


def shell(*words: str) -> str:
    """Return a command for the pod's shell."""
    return shlex.join(words)


def converse(process: subprocess.Popen[bytes], data: bytes, seconds: float, most: int) -> PodCommandResult:
    """Feed a process and read its outputs; raise ConnectionLost if it exceeds ``seconds`` or ``most`` bytes."""
    assert process.stdin and process.stdout and process.stderr
    out, stderr, remaining_data = bytearray(), bytearray(), memoryview(data)
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
                    raise ConnectionLost(f"the pod did not answer within {seconds:g} s")
                for key, _ in ready.select(max(0.0, min(1.0, deadline - time.monotonic()))):
                    if key.fileobj is process.stdin:
                        remaining_data = _give(process, remaining_data)
                        if not remaining_data:
                            ready.unregister(process.stdin)
                            process.stdin.close()
                        continue
                    piece = os.read(key.fd, _PIECE)
                    if not piece:
                        ready.unregister(key.fileobj)
                        open_ends -= 1
                    (out if key.fileobj is process.stdout else stderr).extend(piece)
                    if len(out) > most or len(stderr) > most:
                        raise ConnectionLost(f"the pod wrote more than {most} bytes where it was asked for less")
        code = process.wait(max(1.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired as error:
        raise ConnectionLost(f"the pod did not answer within {seconds:g} s") from error
    finally:
        end(process)
    return PodCommandResult(code, bytes(out), plain(stderr.decode("utf-8", "replace"), _TOLD))


def _give(process: subprocess.Popen[bytes], data: memoryview) -> memoryview:
    assert process.stdin
    try:
        return data[os.write(process.stdin.fileno(), data[:_PIECE]) :]
    except BlockingIOError:
        return data
    except BrokenPipeError:
        return data[:0]


def end(process: subprocess.Popen[bytes]) -> None:
    """End a client process and close its pipes; the shared connection stays."""
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


class PodRefusal(PeergateError):
    """The pod refused a request."""


class Channel:
    """The client of ``sessions/pods/remote/pod_entry.py``."""

    def __init__(self, connection: PodConnection, python: str, root: str, name: str) -> None:
        self._address = connection.address
        self._process = connection.start(
            shell(python, "-P", "-m", "sessions.pods.remote.pod_entry", "serve", root, name)
        )
        self._buffer, self._error_tail = bytearray(), bytearray()
        assert self._process.stdout and self._process.stderr
        self._ready = selectors.DefaultSelector()
        self._ready.register(self._process.stdout, selectors.EVENT_READ)
        self._ready.register(self._process.stderr, selectors.EVENT_READ)

    def ask(
        self, op: str, *, most: int = 1 << 20, seconds: float = ANSWER_S, **requests: Any
    ) -> tuple[dict[str, Any], bytes]:
        """Send a request, and return the header and the bytes of the answer.

        Raises:
            PodRefused: the pod refuses, and says why.
            ConnectionLost: the connection ended, or no answer came in time.
            PeergateError: the answer is malformed, or longer than ``most``.
        """
        pieces: list[bytes] = []
        header = self.fetch(op, pieces.append, most=most, seconds=seconds, **requests)
        return header, b"".join(pieces)

    def fetch(
        self, op: str, take: Callable[[bytes], Any], *, most: int, seconds: float = ANSWER_S, **requests: Any
    ) -> dict[str, Any]:
        """Send a request, and pass the bytes of the answer to ``take`` as they come; errors as in :meth:`ask`."""
        assert self._process.stdin
        try:
            self._process.stdin.write(protocol.line_of({"op": op, **requests}))
        except OSError as error:
            raise self._make_failure() from error
        deadline = time.monotonic() + seconds
        while (at := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > protocol.MAX_LINE:
                raise PeergateError("the pod's answer has an unterminated line", where=op)
            self._read(deadline)
        line = bytes(self._buffer[: at + 1])
        del self._buffer[: at + 1]
        try:
            header, size = protocol.read_line(line)
        except protocol.BadFrame as error:
            raise PeergateError(f"the pod answered {error}", where=op) from error
        if "refused" in header:
            raise PodRefusal(f"the pod refuses '{op}': {plain(str(header['refused']), 600)}", where=self._address.host)
        if size > most:
            raise PeergateError(f"the pod's answer has {size} bytes, the limit is {most}", where=op)
        while size:
            if not self._buffer:
                self._read(time.monotonic() + STILL_S)
            piece = bytes(self._buffer[:size])
            del self._buffer[: len(piece)]
            size -= len(piece)
            if piece:
                take(piece)
        return header

    def _read(self, deadline: float) -> None:
        """Wait for more of the answer, and keep the end of standard error."""
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise ConnectionLost("the pod did not answer in time", where=self._address.destination)
        for key, _ in self._ready.select(remaining):
            piece = os.read(key.fd, _LARGE_PIECE)
            if key.fileobj is self._process.stdout:
                if not piece:
                    raise self._make_failure()
                self._buffer += piece
            elif piece:
                self._error_tail = (self._error_tail + piece)[-_LAST_TOLD:]
            else:
                self._ready.unregister(key.fileobj)

    def _make_failure(self) -> PeergateError:
        message = plain(self._error_tail.decode("utf-8", "replace"), 600)
        return failure(message or "the connection ended", self._address)

    def close(self) -> None:
        """End the conversation; processes on the pod continue."""
        self._ready.close()
        end(self._process)

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
