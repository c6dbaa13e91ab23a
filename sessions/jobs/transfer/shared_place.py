"""A place that two machines can reach: bytes under their digests, and the few files of each job.

A folder of this machine, or a URL that fsspec opens (``s3://BUCKET/PREFIX`` with ``s3fs``). What is taken from it is
compared with its digest before anything uses it, and what was half sent or half taken is gone on with.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from reviews.trail.store import sync_folder
from sessions.jobs.engine_launcher import EngineUnavailable
from specs.digests import Contract, Digest, digest_file, digest_value, list_tree
from specs.errors import AuditDamage, UserError
from specs.text import plain

ATOMIC = ("file", "local", "memory", "s3", "s3a", "gs", "gcs")
"""Protocols of file systems that create a file only where there is none, atomically."""
PIECE = 1 << 22
TABLE_BYTES = 64 << 20
DEPTH = 16
NAME_BYTES = 200


class Piece(Contract):
    """One file: its digest and size."""

    digest: Digest
    bytes: int


class Table(Contract):
    """Files by their path below a folder; a single file has the path ``""``."""

    files: dict[str, Piece]

    def digest(self) -> str:
        """Return the digest the artifact has: as :func:`specs.digests.digest_path` computes it."""
        if "" in self.files:
            return self.files[""].digest
        return digest_value({path: piece.digest for path, piece in self.files.items()})


def table_of(path: Path) -> Table:
    """Return the table of a file or folder.

    Raises:
        OSError: it cannot be read.
        ValueError: it holds a symbolic link.
    """
    if not path.is_dir():
        return Table(files={"": _piece(path)})
    return Table(files={one.relative_to(path).as_posix(): _piece(one) for one in list_tree(path)})


def _piece(path: Path) -> Piece:
    return Piece(digest=digest_file(path), bytes=path.stat().st_size)


def require_safe(path: str, where: str) -> PurePosixPath:
    """Return a path from elsewhere if it stays below the folder it is put in.

    Raises:
        AuditDamage: it does not, or no file should have such a name.
    """
    found = PurePosixPath(path)
    parts = path.split("/")
    plain_parts = all(
        one not in ("", ".", "..")
        and one.isprintable()
        and "\\" not in one
        and len(one.encode("utf-8", "replace")) <= NAME_BYTES
        for one in parts
    )
    if not plain_parts or len(parts) > DEPTH:
        raise AuditDamage(f"the path {plain(ascii(path), 120)} is none of a job's", where=where)
    return found


class Place:
    """Reads and writes below one URL.

    Args:
        url: a path of this machine, or a URL of a protocol in :data:`ATOMIC`.

    Raises:
        UserError: the URL is of another protocol, holds a password, or its package is not installed.
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
                f"'{plain(protocol, 40)}' is no protocol that creates a file only once",
                where="PEERGATE_PLACE",
                hint=f"taken are a path, {', '.join(f'{name}://' for name in ATOMIC[2:])}",
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
            self._put(self._at(path), data)

    def create(self, path: str, data: bytes) -> bool:
        """Write a file only where there is none; say whether there was none. Of any number of callers one gets True."""
        with self._writing():
            at = self._at(path)
            self._make_parent(at)
            try:
                if self._is_local:
                    # fsspec would look first and write then.
                    with self._fs.open(at, "xb") as handle:
                        handle.write(data)
                else:
                    self._fs.pipe_file(at, data, mode="create")
            except FileExistsError:
                return False
            except OSError as error:
                # s3fs tells the refused condition (HTTP 412) so in some versions.
                if "PreconditionFailed" in repr(error) or getattr(error, "errno", None) == 17:
                    return False
                raise
            return True

    def read(self, path: str, most: int) -> bytes | None:
        """Return a small file; None where there is none.

        Raises:
            AuditDamage: it is larger than it can be.
        """
        with _reaching(self.url):
            try:
                with self._fs.open(self._at(path), "rb") as handle:
                    data = handle.read(most + 1)
            except FileNotFoundError:
                return None
        if len(data) > most:
            raise AuditDamage(f"{path} is larger than {most} bytes", where=self.url)
        return data

    def exists(self, path: str) -> bool:
        """Say whether a file is there."""
        with _reaching(self.url):
            self._fs.invalidate_cache()
            return bool(self._fs.exists(self._at(path)))

    def send(self, path: Path, piece: Piece) -> None:
        """Bring a file's bytes, unless they are there."""
        at = self._at(_blob(piece.digest))
        with self._writing():
            self._fs.invalidate_cache()
            if self._fs.exists(at) and self._fs.size(at) == piece.bytes:
                return
            self._make_parent(at)
            if not self._is_local:
                self._fs.put_file(str(path), at)
                return
            partial = f"{at}.{os.getpid()}.{secrets.token_hex(4)}"
            try:
                self._fs.put_file(str(path), partial)
                Path(partial).replace(at)
            finally:
                Path(partial).unlink(missing_ok=True)

    def take(self, piece: Piece, target: Path) -> None:
        """Bring bytes here, going on where it was broken off, and compare them with their digest.

        Raises:
            AuditDamage: other bytes lie under the digest. They are removed, so that they can be sent again.
            EngineUnavailable: they are not there, or the place cannot be reached.
        """
        if target.is_file() and target.stat().st_size == piece.bytes and digest_file(target) == piece.digest:
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f".{target.name}.part")
        at = self._at(_blob(piece.digest))
        with _reaching(self.url):
            begun = partial.stat().st_size if partial.is_file() else 0
            if begun > piece.bytes:
                partial.unlink()
                begun = 0
            try:
                with self._fs.open(at, "rb") as source, partial.open("ab") as to:
                    source.seek(begun)
                    # One byte more than stated shows that it is longer.
                    left = piece.bytes - begun + 1
                    while left > 0 and (data := source.read(min(left, PIECE))):
                        to.write(data)
                        left -= len(data)
                    to.flush()
                    os.fsync(to.fileno())
            except FileNotFoundError as error:
                raise EngineUnavailable(f"{piece.digest} is not in the place", where=self.url) from error
        found = digest_file(partial)
        if found != piece.digest:
            partial.unlink()
            with _reaching(self.url):
                # What was broken off may be to blame; what lies there whole under a wrong name is removed.
                if begun == 0:
                    self._fs.rm_file(at)
            raise AuditDamage(f"the bytes under {piece.digest} have the digest {found}", where=self.url)
        partial.replace(target)
        sync_folder(target.parent)

    def send_tree(self, path: Path) -> Table:
        """Bring a file or folder, and return its table."""
        table = table_of(path)
        for name, piece in table.files.items():
            self.send(path / name if name else path, piece)
        return table

    def take_tree(self, table: Table, target: Path, cache: Path | None = None) -> None:
        """Bring a file or folder here.

        Args:
            table: what it is made of.
            target: where it goes.
            cache: a folder where bytes are kept under their digests for other jobs.

        Raises:
            AuditDamage: a path leads elsewhere, or bytes are other ones.
            EngineUnavailable: the place cannot be reached.
        """
        for name, piece in table.files.items():
            to = target / require_safe(name, self.url) if name else target
            if cache is None:
                self.take(piece, to)
                continue
            kept = cache / piece.digest.removeprefix("sha256:")
            self.take(piece, kept)
            to.parent.mkdir(parents=True, exist_ok=True)
            if not to.exists():
                try:
                    os.link(kept, to)
                except OSError:
                    shutil.copyfile(kept, to)

    @contextmanager
    def _writing(self) -> Generator[None]:
        try:
            with _reaching(self.url):
                yield
        except FileNotFoundError as error:
            if self._has_folders:
                raise
            # Of a bucket: what is written does not have to be there before.
            raise EngineUnavailable(f"the place cannot be used: {plain(str(error), 200)}", where=self.url) from error

    def _make_parent(self, at: str) -> None:
        """Make the folder of a file. Where there are none, s3fs would make the bucket: a slip of the pen is told."""
        if self._has_folders:
            self._fs.makedirs(self._fs._parent(at), exist_ok=True)  # pyright: ignore[reportPrivateUsage]

    def _put(self, at: str, data: bytes) -> None:
        self._make_parent(at)
        if not self._is_local:
            self._fs.pipe_file(at, data)
            return
        partial = f"{at}.{os.getpid()}.{secrets.token_hex(4)}"
        try:
            self._fs.pipe_file(partial, data)
            Path(partial).replace(at)
        finally:
            Path(partial).unlink(missing_ok=True)


def read_table(data: bytes, where: str) -> dict[str, Table]:
    """Read tables by name.

    Raises:
        AuditDamage: they are none.
    """
    try:
        told: Any = json.loads(data)
        return {str(name): Table.model_validate(one) for name, one in told.items()}
    except (ValueError, ValidationError, AttributeError, RecursionError) as error:
        raise AuditDamage("this is no table of files", where=where) from error


def _blob(digest: str) -> str:
    name = digest.removeprefix("sha256:")
    return f"blobs/{name[:2]}/{name[2:]}"


@contextmanager
def _reaching(url: str) -> Generator[None]:
    """Tell whatever the file system's library raises as the place being out of reach."""
    try:
        yield
    except (AuditDamage, EngineUnavailable, FileNotFoundError):
        raise
    except Exception as error:
        told = plain(f"{type(error).__name__}: {error}", 200)
        raise EngineUnavailable(f"the place cannot be used: {told}", where=url) from error
