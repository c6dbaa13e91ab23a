"""A place that two machines can reach: bytes under their digests, and the few files of each job.

It is a folder of this machine, or a URL that fsspec opens (``s3://BUCKET/PREFIX`` with ``s3fs``). Received bytes are
compared with their digest before they are used. Interrupted transfers resume.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from sessions.jobs.job_state import EngineUnavailable
from sessions.jobs.transfer.received_files import OtherBytes, resume, safe_parts, take_whole
from specs.system.digests import Contract, Digest, digest_file, digest_value, list_tree
from specs.system.errors import AuditDamage, UserError
from specs.system.text import plain

ATOMIC = ("file", "local", "memory", "s3", "s3a", "gs", "gcs")
"""Protocols whose file systems create a file atomically, and refuse if it exists."""
PIECE = 1 << 22
TABLE_BYTES = 64 << 20
DEPTH = 16


class Piece(Contract):
    """One file: its digest and size."""

    digest: Digest
    bytes: int


class FileTable(Contract):
    """Files by their path below a folder; a single file has the path ``""``."""

    files: dict[str, Piece]

    def digest(self) -> str:
        """Return the artifact's digest, as :func:`specs.system.digests.digest_path` computes it."""
        if "" in self.files:
            return self.files[""].digest
        return digest_value({path: piece.digest for path, piece in self.files.items()})


def table_of(path: Path) -> FileTable:
    """Return the table of a file or folder; raise OSError, or ValueError for a symbolic link."""
    files = (
        {current_path.relative_to(path).as_posix(): current_path for current_path in list_tree(path)}
        if path.is_dir()
        else {"": path}
    )
    return FileTable(
        files={name: Piece(digest=digest_file(path), bytes=path.stat().st_size) for name, path in files.items()}
    )


class SharedPlace:
    """Reads and writes below one URL, a path of this machine or of a protocol in :data:`ATOMIC`.

    Raises:
        UserError: the URL has another protocol, holds a password, or its package is not installed.
    """

    def __init__(self, url: str) -> None:
        import fsspec

        parts = urlsplit(url)
        if parts.username or parts.password or parts.query:
            raise UserError(
                "the place's address holds a password or a query",
                where="PEERGATE_PLACE",
                hint="it is written into the run folder; the protocol's own settings take a password",
            )
        protocol = parts.scheme or "file"
        if protocol not in ATOMIC:
            raise UserError(
                f"protocol '{plain(protocol, 40)}' cannot create a file exclusively",
                where="PEERGATE_PLACE",
                hint=f"use a path, {', '.join(f'{name}://' for name in ATOMIC[2:])}",
            )
        self.url = url.rstrip("/")
        try:
            self._fs, self._root = fsspec.url_to_fs(self.url)
        except ImportError as error:
            raise UserError(f"'{protocol}' needs a package: {error}", where="PEERGATE_PLACE") from error
        self._is_local = protocol in ("file", "local")
        self._has_folders = self._is_local or protocol == "memory"

    def _at(self, path: str) -> str:
        return f"{self._root.rstrip('/')}/{path}"

    def write(self, path: str, data: bytes) -> None:
        """Write a small file, whole or not at all."""
        with self._writing():
            self._write_whole(self._at(path), lambda to: self._fs.pipe_file(to, data))

    def create(self, path: str, data: bytes) -> bool:
        """Create a file; False if it exists. One of any number of callers gets True."""
        with self._writing():
            at = self._at(path)
            self._make_parent(at)
            try:
                if self._is_local:
                    # fsspec would look first and write afterwards.
                    with self._fs.open(at, "xb") as handle:
                        handle.write(data)
                else:
                    self._fs.pipe_file(at, data, mode="create")
            except FileExistsError:
                return False
            except OSError as error:
                # Some versions of s3fs report the refused condition (HTTP 412) like this.
                if "PreconditionFailed" in repr(error) or getattr(error, "errno", None) == 17:
                    return False
                raise
            return True

    def read(self, path: str, most: int) -> bytes | None:
        """Return a small file, None if it is missing; raise AuditDamage if it is larger than ``most``."""
        with _reaching(self.url):
            try:
                with self._fs.open(self._at(path), "rb") as handle:
                    data = handle.read(most + 1)
            except FileNotFoundError:
                return None
        if len(data) > most:
            raise AuditDamage(f"{path} is larger than {most} bytes", where=self.url)
        return data

    def send(self, path: Path, piece: Piece) -> None:
        """Send a file's bytes, unless they are there."""
        at = self._at(_blob(piece.digest))
        with self._writing():
            self._fs.invalidate_cache()
            if self._fs.exists(at) and self._fs.size(at) == piece.bytes:
                return
            self._write_whole(at, lambda to: self._fs.put_file(str(path), to))

    def take(self, piece: Piece, target: Path) -> None:
        """Receive bytes, resuming an interrupted transfer, and compare them with their digest.

        Raises:
            AuditDamage: other bytes lie under the digest. They are removed, so that they can be sent again.
            EngineUnavailable: they are missing, or the place cannot be reached.
        """
        if target.is_file() and target.stat().st_size == piece.bytes and digest_file(target) == piece.digest:
            return
        try:
            take_whole(piece.digest, target, lambda: self._bring(piece, target.with_name(f".{target.name}.part")))
        except OtherBytes as error:
            with _reaching(self.url):
                self._fs.rm_file(self._at(_blob(piece.digest)))
            raise AuditDamage(f"the bytes under {piece.digest} have the digest {error}", where=self.url) from error

    def _bring(self, piece: Piece, partial: Path) -> tuple[Path, int]:
        def fetch(write: Callable[[bytes], Any], count: int) -> None:
            with self._fs.open(self._at(_blob(piece.digest)), "rb") as source:
                source.seek(count)
                # One byte more than stated reveals a longer file.
                remaining = piece.bytes - count + 1
                while remaining > 0 and (data := source.read(min(remaining, PIECE))):
                    write(data)
                    remaining -= len(data)

        try:
            with _reaching(self.url):
                return partial, resume(partial, piece.bytes, fetch)
        except FileNotFoundError as error:
            raise EngineUnavailable(f"{piece.digest} is not in the place", where=self.url) from error

    def send_tree(self, path: Path) -> FileTable:
        """Send a file or folder, and return its table."""
        table = table_of(path)
        for name, piece in table.files.items():
            self.send(path / name if name else path, piece)
        return table

    def take_tree(self, table: FileTable, target: Path, cache: Path | None = None) -> None:
        """Receive a file or folder; ``cache`` is a folder that keeps bytes under their digests for other jobs.

        Raises:
            AuditDamage: a path leads elsewhere, or bytes do not match their digest.
            EngineUnavailable: the place cannot be reached.
        """
        for name, piece in table.files.items():
            try:
                to = target.joinpath(*safe_parts(name, DEPTH)) if name else target
            except ValueError as error:
                message = f"a job may not leave the path {plain(ascii(name), 120)}"
                raise AuditDamage(message, where=self.url) from error
            if cache is None:
                self.take(piece, to)
                continue
            path = cache / piece.digest.removeprefix("sha256:")
            self.take(piece, path)
            to.parent.mkdir(parents=True, exist_ok=True)
            if not to.exists():
                try:
                    os.link(path, to)
                except OSError:
                    shutil.copyfile(path, to)

    @contextmanager
    def _writing(self) -> Generator[None]:
        try:
            with _reaching(self.url):
                yield
        except FileNotFoundError as error:
            if self._has_folders:
                raise
            # Nothing has to exist before a write, so the bucket is missing.
            raise EngineUnavailable(f"the place cannot be used: {plain(str(error), 200)}", where=self.url) from error

    def _make_parent(self, at: str) -> None:
        """Make the folder of a file, except in a bucket: s3fs would make the bucket, and hide a misspelt name."""
        if self._has_folders:
            self._fs.makedirs(self._fs._parent(at), exist_ok=True)  # pyright: ignore[reportPrivateUsage]

    def _write_whole(self, at: str, write: Callable[[str], object]) -> None:
        """Write a file, whole or not at all: a folder of this machine would show half of it."""
        self._make_parent(at)
        if not self._is_local:
            write(at)
            return
        partial = f"{at}.{os.getpid()}.{secrets.token_hex(4)}"
        try:
            write(partial)
            Path(partial).replace(at)
        finally:
            Path(partial).unlink(missing_ok=True)


def read_table(data: bytes, where: str) -> dict[str, FileTable]:
    """Read tables by name, or raise AuditDamage if they are malformed."""
    try:
        table: Any = json.loads(data)
        return {str(name): FileTable.model_validate(value) for name, value in table.items()}
    except (ValueError, ValidationError, AttributeError, RecursionError) as error:
        raise AuditDamage("this is not a file table", where=where) from error


def _blob(digest: str) -> str:
    name = digest.removeprefix("sha256:")
    return f"blobs/{name[:2]}/{name[2:]}"


@contextmanager
def _reaching(url: str) -> Generator[None]:
    """Report every error of the file system's library as an unreachable place."""
    try:
        yield
    except (AuditDamage, EngineUnavailable, FileNotFoundError):
        raise
    except Exception as error:
        message = plain(f"{type(error).__name__}: {error}", 200)
        raise EngineUnavailable(f"the place cannot be used: {message}", where=url) from error
