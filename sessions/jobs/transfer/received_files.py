"""Receives files from another machine, for jobs and pods: safe paths, resumed transfers, compared digests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reviews.trail.chain.store import sync_folder
from specs.system.digests import digest_path

NAME_BYTES = 200


class OtherBytes(Exception):
    """The received bytes have another digest, the argument, and were removed."""


def safe_parts(path: object, depth: int, name_bytes: int = NAME_BYTES) -> list[str]:
    """Return the names of an untrusted path, or raise ValueError if a name is unsafe or the path is too deep."""
    parts = path.split("/") if isinstance(path, str) else []
    for name in parts:
        plain = name.isprintable() and "\\" not in name and name not in ("", ".", "..")
        if not plain or len(name.encode("utf-8", "replace")) > name_bytes:
            raise ValueError(f"under the name {ascii(name)[:80]}")
    if not 1 <= len(parts) <= depth:
        raise ValueError(f"without a path, or more than {depth} folders deep")
    return parts


def resume(partial: Path, size: int, fetch: Callable[[Callable[[bytes], Any], int], Any]) -> int:
    """Fetch the missing bytes of a file of ``size`` bytes, from an offset on, and return how many it had already."""
    partial.parent.mkdir(parents=True, exist_ok=True)
    count = partial.stat().st_size if partial.is_file() else 0
    if count > size:
        count = 0
    with partial.open("ab" if count else "wb") as file:
        fetch(file.write, count)
        file.flush()
        os.fsync(file.fileno())
    return count


def take_whole(digest: str, target: Path, bring: Callable[[], tuple[Path, int]]) -> None:
    """Fetch a file or folder, compare it with its digest, and put it in its place.

    ``bring`` fetches it, and returns its path and how many bytes were there before. A resumed transfer that has another
    digest is repeated from its beginning; if that does not help, OtherBytes is raised.
    """
    came, count = bring()
    if (text := digest_path(came)) != digest:
        remove(came)
        if count:
            came, _ = bring()
            text = digest_path(came)
        if text != digest:
            remove(came)
            raise OtherBytes(text)
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
