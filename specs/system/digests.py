"""Canonical bytes (RFC 8785) and sha256 digests, by which everything in Peergate is named."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import rfc8785
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from specs.system.regular_files import open_regular

if TYPE_CHECKING:
    from concurrent.futures import Future

Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
"""A name that a spec gives: of a stage, an input or a kind."""
Count = Annotated[int, Field(ge=0, lt=2**53)]
"""A number of tokens, rows or bytes."""
Positive = Annotated[int, Field(ge=1, lt=2**53)]
Quantity = Annotated[float, Field(ge=0)]
"""A time, a size or a norm."""
_LARGE = 2**28
"""Bytes in a folder from which on its files are digested side by side."""
_AT_ONCE = 2**24
"""Bytes that are read and hashed in one piece. A thread waits up to 5 ms for the interpreter's lock between two of them
while another one runs Python: with the 2**18 of hashlib it would mostly wait."""

_ENCODE = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, sort_keys=True, separators=(",", ":")
).encode
_MARKED = re.compile(r'"\\u0000([0-9.e-]+)"')
_LEAVES = frozenset({str, bool, type(None)})
_STRING = {str}


class Contract(BaseModel):
    """A frozen, strict value with a digest; the base of everything that is handed over."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)
    unique_by: ClassVar[tuple[str, ...]] = ()
    """For a row: the fields whose values no other row of its file may share."""

    def canonical(self) -> bytes:
        """Return the RFC 8785 bytes of this value."""
        return canonical_bytes(self.model_dump(mode="json"))

    def content_digest(self) -> str:
        """Return ``sha256:<hex>`` of the canonical bytes."""
        return digest_bytes(self.canonical())


def omit_default(default: Any = None, **limits: Any) -> Any:
    """Return a field that is left out where it has its default: what no one set is not granted, and rows stay short."""
    return Field(default=default, exclude_if=lambda value: value == default, **limits)


def canonical_bytes(value: Any) -> bytes:
    """Encode plain JSON data as RFC 8785 bytes.

    Raises:
        ValueError: NaN, infinity, an integer of 2**53 or beyond, or a type JSON does not have.
    """
    try:
        # Python's own encoder takes a tenth of the time.
        small: list[float] = []
        text = _ENCODE(_written_alike(value, small))
        if small:
            text, count = _MARKED.subn(r"\1", text)
            if count != len(small):
                raise ValueError("a text looks like a marked number")
        # Keys are sorted by UTF-16, which is another order only with characters beyond its first 2**16.
        if len(text.encode("utf-16-le")) == 2 * len(text):
            return text.encode()
    except (TypeError, ValueError):
        pass  # As rfc8785 writes it, or says why it cannot.
    try:
        return rfc8785.dumps(value)
    except rfc8785.CanonicalizationError as error:
        raise ValueError(f"cannot be written as canonical JSON: {error}") from error


def _written_alike(value: Any, small: list[float]) -> Any:
    """Return a value as Python's encoder has to get it to write it by RFC 8785; numbers near 0 as texts with a mark.

    Those numbers are added to ``small``.

    Raises:
        ValueError: it might write something else: a large number, a subclass, a key that is not a string.
    """
    kind = type(value)
    if kind is dict:
        if not {*map(type, value)} <= _STRING:
            raise ValueError("a key is not a string")
        return {
            key: element if type(element) in _LEAVES else _written_alike(element, small)
            for key, element in value.items()
        }
    if kind is list or kind is tuple:
        return [element if type(element) in _LEAVES else _written_alike(element, small) for element in value]
    if kind is float:
        if value.is_integer():
            value = int(value)  # 1, and not 1.0.
        elif abs(value) >= 1e-4:
            return value
        else:
            small.append(value)
            return f"\0{_near_zero(value)}"
    if type(value) is int and abs(value) < 2**53 or kind in _LEAVES:
        return value
    raise ValueError("left to rfc8785")


def _near_zero(value: float) -> str:
    """Return a number below 1e-4 as RFC 8785 writes it: 0.000025, and 2.5e-7 with an exponent of no more digits."""
    digits, _, power = repr(value).partition("e-")
    if int(power) > 6:
        return f"{digits}e-{int(power)}"
    sign = "-" if value < 0 else ""
    return f"{sign}0.{'0' * (int(power) - 1)}{digits.lstrip('-').replace('.', '')}"


def digest_bytes(data: bytes) -> str:
    """Return ``sha256:<hex>`` of raw bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def digest_value(value: Any) -> str:
    """Return the digest of plain JSON data over its canonical bytes."""
    return digest_bytes(canonical_bytes(value))


def digest_file(path: Path) -> str:
    """Return the digest of a file's bytes; raises OSError if it cannot be read or is not a regular file."""
    result = hashlib.sha256()
    with open_regular(path) as handle:
        buffer = memoryview(bytearray(max(2**12, min(_AT_ONCE, os.fstat(handle.fileno()).st_size))))
        while read := handle.readinto(buffer):
            result.update(buffer[:read])
    return f"sha256:{result.hexdigest()}"


def list_tree(folder: Path) -> list[Path]:
    """Return every file below ``folder``, sorted by path; raises ValueError at a link, FIFO, socket or device."""
    paths: list[Path] = []
    for path in folder.rglob("*"):
        if path.is_symlink():
            raise ValueError(f"{path} is a symbolic link; artifacts hold real files only")
        if path.is_file():
            paths.append(path)
        elif not path.is_dir():
            raise ValueError(f"{path} is neither a file nor a folder; artifacts hold real files only")
    return sorted(paths, key=lambda path: path.relative_to(folder).as_posix())


def digest_tree(folder: Path) -> str:
    """Return the digest of a folder's ``{path: file digest}`` table; raises OSError, or ValueError at a link."""
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is not a folder")
    files = list_tree(folder)
    names = (path.relative_to(folder).as_posix() for path in files)
    return digest_value(dict(zip(names, _digests(files), strict=True)))


def _digests(files: list[Path]) -> list[str]:
    if sum(path.stat().st_size for path in files) < _LARGE:
        return [digest_file(path) for path in files]
    # The parts of large weights, at once: hashing releases the interpreter's lock.
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(digest_file, files))


def digest_path(path: Path) -> str:
    """Return :func:`digest_file` of a file or :func:`digest_tree` of a folder."""
    return digest_tree(path) if path.is_dir() else digest_file(path)


@contextmanager
def digesting(paths: Mapping[str, Path]) -> Generator[dict[str, Future[str]]]:
    """Digest what is named, as :func:`digest_path` does, while the caller does something else; done at the end.

    Hashing releases the interpreter's lock: the digests of weights take no time next to imports. Each result has to be
    asked for, and then raises what :func:`digest_path` raises.
    """
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor() as pool:
        yield {name: pool.submit(digest_path, path) for name, path in paths.items()}
