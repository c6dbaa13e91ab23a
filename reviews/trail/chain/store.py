"""The content store: bytes by their sha256, written once, checked on every read, so no edited file is returned."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from specs.system.digests import Contract, canonical_bytes, digest_bytes
from specs.system.errors import AuditDamage, EvidenceMissing
from specs.system.masking import current
from specs.system.regular_files import read_regular

ParsedT = TypeVar("ParsedT")
_MOST_PARSED, _MOST_PARSED_BYTES = 64, 1 << 20
"""How many values a store keeps parsed, and of how many bytes each."""


def write_durably(
    path: Path, data: bytes, partial_in: Path | None = None, *, mode: int = 0o666, replace: bool = True
) -> None:
    """Write a file so that after a crash it is either whole or absent (tmp + fsync + rename + folder fsync).

    Until it is whole it is in ``partial_in`` (on the same disk; the file's folder by default), where a process that is
    killed leaves it under a name that begins with a dot. Without ``replace`` a file that is there stays. Raises OSError
    if the disk is full or not writable, or the file stays.
    """
    if is_new := not path.parent.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
    partial = (partial_in or path.parent) / f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}"
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        if replace:
            partial.replace(path)
        else:
            path.hardlink_to(partial)
    finally:
        partial.unlink(missing_ok=True)
    sync_folder(path.parent)
    if is_new:
        sync_folder(path.parent.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a loss of power, not only the bytes of its files."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Store:
    """A folder of content-addressed files: ``<root>/ab/cdef...``."""

    def __init__(self, root: Path) -> None:
        self.root, self._root = root, str(root)
        self._parsed: dict[tuple[str, Callable[[bytes], Any]], Any] = {}

    def path(self, digest: str) -> Path:
        """Return the path of a digest's bytes, whether they exist or not."""
        return Path(self._place(digest))

    def _place(self, digest: str) -> str:
        name = digest.removeprefix("sha256:")
        return f"{self._root}/{name[:2]}/{name[2:]}"

    def put(self, data: bytes) -> str:
        """Keep bytes as they are and return their digest; keeping the same bytes again changes nothing.

        For evidence and masked bytes only; words of a person, a model or a job go to the other two methods.
        """
        digest = digest_bytes(data)
        path = self.path(digest)
        if not path.exists():
            # Partial files lie next to the files whose names are digests.
            write_durably(path, data, self.root)
        return digest

    def put_text(self, text: str | bytes) -> str:
        """Keep a text without its secrets, and return its digest."""
        return self.put(current().data(text if isinstance(text, bytes) else text.encode("utf-8", "replace")))

    def put_value(self, value: Contract | list[Any] | dict[str, Any]) -> str:
        """Keep a value, without its secrets, as canonical JSON and return its digest."""
        plain = value.model_dump(mode="json") if isinstance(value, Contract) else value
        return self.put(canonical_bytes(current().value(plain)))

    def get(self, digest: str) -> bytes:
        """Return the bytes of a digest.

        Raises:
            EvidenceMissing: nothing is stored under it.
            AuditDamage: what is stored has other bytes.
        """
        path = self._place(digest)
        try:
            data = read_regular(path)
        except OSError as error:
            raise EvidenceMissing(f"{digest} is not in the content store", where=path) from error
        if digest_bytes(data) != digest:
            raise AuditDamage(f"stored bytes have the digest {digest_bytes(data)}, not {digest}", where=path)
        return data

    def read(self, digest: str, parse: Callable[[bytes], ParsedT]) -> ParsedT:
        """Return what ``parse`` makes of the bytes of a digest; it is shared, so no caller may change it.

        The bytes are read and compared with their digest each time. Errors are those of :meth:`get` and of ``parse``.
        """
        data, key = self.get(digest), (digest, parse)
        if key in self._parsed:
            return self._parsed[key]
        value = parse(data)
        if len(data) <= _MOST_PARSED_BYTES:
            if len(self._parsed) >= _MOST_PARSED:
                self._parsed.pop(next(iter(self._parsed)), None)
            self._parsed[key] = value
        return value

    def get_value(self, digest: str) -> Any:
        """Return a stored JSON value; errors as in :meth:`get`."""
        return json.loads(self.get(digest))
