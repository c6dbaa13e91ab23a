"""The log of a job: the output of its processes, kept whole up to a size, then its first and last part.

A job that prints without end must not fill the disk, and a job that prints to a full disk must not fail. Missing bytes
are counted in the log and in the exit record.
"""

from __future__ import annotations

import hashlib
import os
import select
import threading
from contextlib import suppress
from pathlib import Path

HEAD_BYTES = 1 << 20
"""Always kept of the beginning."""
TAIL_BYTES = 4 << 20
"""Kept of the end at least, once something is left out; the file holds at most twice as much of it."""
PIECE_BYTES = 1 << 16
DRAIN_BYTES = 2 << 20
"""Read at most after the job has ended: a pipe holds less, and a process that escaped the job may print for ever."""
LOOK_S = 0.2
MARKER = "\n[peergate: {} bytes of the log were left out here]\n"


class JobLog(threading.Thread):
    """Copies a pipe into a new file, with ``head`` bytes of the beginning and at least ``tail`` of the end."""

    def __init__(self, path: Path, source: int, head: int = HEAD_BYTES, tail: int = TAIL_BYTES) -> None:
        super().__init__(name="log", daemon=True)
        self.left_out = 0
        """Bytes that are not in the file."""
        self._path, self._source = path, source
        self._head, self._tail = head, tail
        self._ended = threading.Event()
        self._file, self._size = _fresh(path), 0
        self._first = 0
        """The offset after the beginning and the marker, if there is one."""
        os.set_blocking(source, False)

    def run(self) -> None:
        """Copy until the pipe is closed, or until the job has ended and the pipe is empty."""
        drained = 0
        while drained < DRAIN_BYTES:
            ended = self._ended.is_set()
            ready, _, _ = select.select([self._source], [], [], 0 if ended else LOOK_S)
            if not ready:
                if ended:
                    break
                continue
            try:
                piece = os.read(self._source, PIECE_BYTES)
            except BlockingIOError:
                continue
            if not piece:
                break
            drained += len(piece) if ended else 0
            self._take(piece)
        os.close(self._source)

    def finish(self) -> str:
        """Empty the pipe of an ended job, make the file durable and return its digest; OSError if the disk is full."""
        self._ended.set()
        if self.ident is not None:
            self.join()
        os.fsync(self._file)
        digest, offset = hashlib.sha256(), 0
        while piece := os.pread(self._file, 1 << 20, offset):
            digest.update(piece)
            offset += len(piece)
        return f"sha256:{digest.hexdigest()}"

    def _take(self, piece: bytes) -> None:
        most = self._head + 2 * self._tail
        while piece:
            if self._size >= most:
                with suppress(OSError):
                    self._cut()
            now = piece[: max(most - self._size, 0)]
            try:
                written = os.pwrite(self._file, now, self._size)
            except OSError:
                written = 0
            self._size += written
            piece = piece[written:]
            if not written:
                # A disk that is full for a moment must not end the job.
                self.left_out += len(piece)
                return

    def _cut(self) -> None:
        """Write the file anew, without its middle."""
        begin = os.pread(self._file, self._head, 0)
        tail = os.pread(self._file, self._tail, self._size - self._tail)
        # From the next start of a line, if it is near.
        newline = tail.find(b"\n", 0, PIECE_BYTES)
        tail = tail[newline + 1 :]
        left_out = self.left_out + self._size - max(self._first, self._head) - len(tail)
        marker = MARKER.format(left_out).encode()
        partial = self._path.with_name(f".{self._path.name}")
        fresh = _fresh(partial)
        try:
            size = 0
            for part in (begin, marker, tail):
                done = os.pwrite(fresh, part, size)
                if done < len(part):
                    raise OSError(f"{done} of {len(part)} bytes could be written")
                size += done
            partial.replace(self._path)
        except OSError:
            os.close(fresh)
            partial.unlink(missing_ok=True)
            raise
        os.close(self._file)
        self._file, self._size, self._first, self.left_out = fresh, size, len(begin) + len(marker), left_out


def _fresh(path: Path) -> int:
    """Open a new file in place of anything that the job has put there."""
    path.unlink(missing_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
