"""One conversation with the pod over one SSH command. Its answers are bounded in size and time, and not believed."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable
from typing import Any

from sessions.pods import protocol
from sessions.pods.connection import Connection, ConnectionLost, end, failure, shell
from specs.errors import PeergateError
from specs.text import plain

ANSWER_S = 60.0
STILL_S = 60.0
"""A transfer without a byte for this long has failed."""
_PIECE = 1 << 18
_TOLD = 4096


class PodRefused(PeergateError):
    """The pod did not do what it was asked."""


class Channel:
    """The commands' side of ``sessions/pods/remote/pod_entry.py``."""

    def __init__(self, connection: Connection, python: str, root: str, name: str) -> None:
        self._address = connection.address
        self._process = connection.start(
            shell(python, "-P", "-m", "sessions.pods.remote.pod_entry", "serve", root, name)
        )
        self._buffer = bytearray()
        self._told = bytearray()
        assert self._process.stdout and self._process.stderr
        self._ready = selectors.DefaultSelector()
        self._ready.register(self._process.stdout, selectors.EVENT_READ)
        self._ready.register(self._process.stderr, selectors.EVENT_READ)

    def ask(
        self, op: str, *, most: int = 1 << 20, seconds: float = ANSWER_S, **asked: Any
    ) -> tuple[dict[str, Any], bytes]:
        """Ask, and return the header and the bytes of the answer.

        Raises:
            PodRefused: the pod says why it does not.
            ConnectionLost: the connection ended, or no answer came in time.
            PeergateError: what came is no answer, or longer than ``most``.
        """
        pieces: list[bytes] = []
        header = self.fetch(op, pieces.append, most=most, seconds=seconds, **asked)
        return header, b"".join(pieces)

    def fetch(
        self, op: str, take: Callable[[bytes], Any], *, most: int, seconds: float = ANSWER_S, **asked: Any
    ) -> dict[str, Any]:
        """Ask, and hand the bytes of the answer over as they come; errors as in :meth:`ask`."""
        assert self._process.stdin
        try:
            self._process.stdin.write(protocol.line_of({"op": op, **asked}))
        except OSError as error:
            raise self._lost() from error
        deadline = time.monotonic() + seconds
        while (at := self._buffer.find(b"\n")) < 0:
            if len(self._buffer) > protocol.MAX_LINE:
                raise PeergateError("the pod answered a line without an end", where=op)
            self._read(deadline)
        line = bytes(self._buffer[: at + 1])
        del self._buffer[: at + 1]
        try:
            header, size = protocol.read_line(line)
        except protocol.BadFrame as error:
            raise PeergateError(f"the pod answered {error}", where=op) from error
        if "refused" in header:
            raise PodRefused(f"the pod refuses '{op}': {plain(str(header['refused']), 600)}", where=self._address.host)
        if size > most:
            raise PeergateError(f"the pod's answer has {size} bytes, at most {most} were asked for", where=op)
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
        """Wait for more of the answer, and keep the last of what standard error says."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise ConnectionLost("the pod gave no answer in time", where=self._address.destination)
        for key, _ in self._ready.select(left):
            piece = os.read(key.fd, _PIECE)
            if key.fileobj is self._process.stdout:
                if not piece:
                    raise self._lost()
                self._buffer += piece
            elif piece:
                self._told = (self._told + piece)[-_TOLD:]
            else:
                self._ready.unregister(key.fileobj)

    def _lost(self) -> PeergateError:
        told = plain(self._told.decode("utf-8", "replace"), 600)
        return failure(told or "the connection ended", self._address)

    def close(self) -> None:
        """End the conversation; nothing on the pod ends with it."""
        self._ready.close()
        end(self._process)

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
