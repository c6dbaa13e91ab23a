"""Taking files over from another machine: safe paths, resumed transfers, compared digests, whole files in their places.

Jobs and pods share this; what differs is how they reach the other machine (``docs/decisions/0040-transfers.md``).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reviews.trail.store import sync_folder
from specs.digests import digest_path

NAME_BYTES = 200


class OtherBytes(Exception):
    """What came is not what its digest says; nothing of it is kept. The argument is the digest it has."""


def safe_parts(path: object, depth: int, name_bytes: int = NAME_BYTES) -> list[str]:
    """Return the names a path from elsewhere is made of, each one safe on every system that may read it.

    Raises:
        ValueError: no file should have such a name, or it is too many folders deep.
    """
    parts = path.split("/") if isinstance(path, str) else []
    for name in parts:
        plain = name.isprintable() and "\\" not in name and name not in ("", ".", "..")
        if not plain or len(name.encode("utf-8", "replace")) > name_bytes:
            raise ValueError(f"under the name {ascii(name)[:80]}")
    if not 1 <= len(parts) <= depth:
        raise ValueError(f"without a path, or more than {depth} folders deep")
    return parts


def resume(partial: Path, size: int, fetch: Callable[[Callable[[bytes], Any], int], Any]) -> int:
    """Fetch what a partial file of so many bytes lacks, and return how many it had already.

    Args:
        partial: the file; it may be missing.
        size: how long it becomes.
        fetch: hands the bytes from an offset on to a function.
    """
    partial.parent.mkdir(parents=True, exist_ok=True)
    begun = partial.stat().st_size if partial.is_file() else 0
    if begun > size:
        partial.unlink()
        begun = 0
    with partial.open("ab") as file:
        fetch(file.write, begun)
        file.flush()
        os.fsync(file.fileno())
    return begun


def take_whole(digest: str, target: Path, bring: Callable[[], tuple[Path, int]]) -> None:
    """Bring a file or folder, compare it with its digest, and put it in its place.

    Something resumed that has another digest is brought once more from its beginning: the part that was there may be
    what is wrong.

    Args:
        digest: what it has to be.
        target: where it goes; what lies there is replaced.
        bring: fetches it, and returns where it lies and how many bytes of it were there before.

    Raises:
        OtherBytes: it is not what its digest says.
    """
    came, begun = bring()
    if (found := digest_path(came)) != digest and begun:
        remove(came)
        came, begun = bring()
        found = digest_path(came)
    if found != digest:
        remove(came)
        raise OtherBytes(found)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir():
        shutil.rmtree(target)
    came.replace(target)
    sync_folder(target.parent)


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
